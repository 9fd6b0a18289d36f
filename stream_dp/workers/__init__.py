"""The processes that run forever: worker, shard, merge and standby."""
