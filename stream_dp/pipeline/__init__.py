"""One batch through all of it, alone or divided among shards.  No input or output."""
