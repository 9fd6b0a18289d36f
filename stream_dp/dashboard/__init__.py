"""The live dashboard: a stream's public topics on one page, for any number of viewers.

It reads `<stream>.releases` and `<stream>.results` and nothing else.  It has no connection to Redis and never
opens the topics of events and dead letters, so it cannot show anything that subscribers may not read.

One thread reads Kafka (reader.py) and tells the board (board.py) what is new.  The frames (frames.py) turn the
board into messages at most ten times a second, the same bytes for every viewer, and app.py serves them.
"""
