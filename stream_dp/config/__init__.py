"""Settings, addresses, secrets, and how people write times."""
