"""Computing releases again from key and log: verify, rebuild, republish."""
