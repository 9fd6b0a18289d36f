"""Numbers of epochs, for those who need nothing else of an epoch: what draws its noise takes long to load."""

from collections.abc import Collection


def may_follow(number: int, last: int, closed: Collection[int]) -> bool:
    """Whether an epoch of this number may be opened after `last`, which is 0 where there is none.

    Numbers leave none out, and an epoch is closed before the next one is opened.
    """
    return number == last + 1 and (last == 0 or last in closed)
