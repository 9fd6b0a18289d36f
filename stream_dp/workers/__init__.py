"""The processes that run forever: worker, standby, table and windows."""
