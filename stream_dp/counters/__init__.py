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

EVERY_ROUND = "blt every-round"
"""What comparisons call `blt` with `discover = "every-round"`; by its name alone it looks for labels at tests."""

COMPARED = ("binary", EVERY_ROUND, "blt")
"""What comparisons are of, each by its `mechanism` and, unless it is the default, its `discover`."""

WINDOW = "window"
"""The name of the one that counts the last rounds, for ever."""
