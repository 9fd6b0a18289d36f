"""Attacks on the real mechanisms: how much privacy do they lose, measured from outside?

`catalogue.pairs()` lists neighbouring inputs, each with what its mechanism claims; `examine.examine` runs both inputs
many times and returns a lower bound on epsilon.  A claim below such a bound is refuted.  `controls.py` holds
mechanisms that are broken on purpose, which must be caught: an audit that catches nothing proves nothing.

No part of a mechanism may import this package.
"""
