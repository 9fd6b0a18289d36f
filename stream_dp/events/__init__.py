"""Bytes in: records, events, rounds, bounding and the digest of the log.  No client, no Redis."""
