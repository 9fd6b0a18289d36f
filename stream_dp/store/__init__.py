"""What a stream keeps in Redis: checkpoints, ledger, noise key and lease."""
