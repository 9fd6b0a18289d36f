"""How an epoch is opened, recorded, closed and found again."""
