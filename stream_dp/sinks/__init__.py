"""Where releases, frames and dead letters are handed to the broker."""
