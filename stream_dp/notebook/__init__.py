"""Widgets for notebooks: `stream_dp.watch` follows a stream, `stream_dp.what_if` tries settings on public data.

Each is a page in a frame of its own (page.py puts it into one document), and what the page asks goes to the kernel
instead of a server (widget.py).  The live chart is the dashboard's page, with the dashboard's own answers.
"""
