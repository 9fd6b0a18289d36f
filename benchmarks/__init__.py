"""Ratios measured side by side in one run: `make bench`.  Machines differ and are noisy; ratios travel better."""
