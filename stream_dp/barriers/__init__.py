"""Barriers end the rounds of a stream at certain times, and are written by a process that reads no event."""
