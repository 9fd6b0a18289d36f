"""Where releases and dead letters are handed to the broker."""
