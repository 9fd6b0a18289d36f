"""One batch through all of it.  No input or output."""
