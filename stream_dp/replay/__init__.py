"""Sending a log through a stream again."""
