"""Continual counters behind one protocol (protocol.py), chosen by the setting `mechanism`.

This is the list of them, and each declares itself: the class of that name, in the module of the setting's name, says
how it is calibrated, what it charges, whom it can protect, how its noise moves, and what the audit enumerates.
Nothing is imported here, so settings know the names without loading numpy.
"""

RUNNING = {
    "binary": "BinaryMechanism",
    "blt": "BltMechanism",
}
"""Those that count since an epoch's first round, up to a horizon."""

MECHANISMS = tuple(RUNNING)
"""Their names."""

DISCOVERY = "discovery"
"""What comparisons call `blt` with labels that are found at the default tests: see discovery.py."""

COMPARED = (*MECHANISMS, DISCOVERY)
"""What comparisons are of."""

WINDOW = "window"
"""The name of the one that counts the last rounds, for ever."""
