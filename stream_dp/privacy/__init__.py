"""The mathematics: distributions, tails, accounting and keyed noise.  Imports no other folder."""
