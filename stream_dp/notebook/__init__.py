"""A widget for notebooks: `stream_dp.watch` follows a stream.

It is the dashboard's page in a frame of its own (page.py puts it into one document), and what the page asks goes to the
kernel instead of a server, which gives the dashboard's own answers (live.py).
"""
