"""Bytes out: the release, its encoder, and everything that reads releases again."""
