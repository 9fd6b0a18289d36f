"""Histograms in your own program: the numbers of a worker, without any server."""
