"""The processes that run for ever: worker, shard, merge and standby."""
