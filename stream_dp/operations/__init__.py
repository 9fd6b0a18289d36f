"""What a worker says about itself: open metrics, operators' metrics, probes and logs.

`open_metrics.py` is a function of public facts alone.  Everything that depends on the data, and be it only by the
time or the memory that labels take, is in `operator_metrics.py`, behind a token.
"""
