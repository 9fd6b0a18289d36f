"""What a stream will cost and show, before there is one."""
