"""In which rounds labels are found: the public test rounds of an epoch.

Tests are `step` rounds apart, and the first step is halved again and again, while enough rounds remain: a test costs
little, and a label that is frequent from the beginning need not wait for a whole step.  Of rounds of one event there
must be 64, for fewer can find nothing.  A tick may hold many events, so there eight are enough.

Without a step there are sixteen equal parts.  How many tests there are decides how high the threshold is, and how far
apart they are how long a new label stays unseen.
"""

PARTS = 16
FEWEST_ROUNDS, FEWEST_TICKS = 64, 8
"""No test before the first whole step comes earlier than this round."""


def rounds_of_tests(horizon: int, step: int | None = None, fewest: int = FEWEST_ROUNDS) -> tuple[int, ...]:
    """The test rounds in order: multiples of `step`, or sixteenths of the horizon rounded down.

    >>> rounds_of_tests(1000)[:6], len(rounds_of_tests(1000))
    ((62, 125, 187, 250, 312, 375), 16)
    >>> rounds_of_tests(1000, 300)
    (75, 150, 300, 600, 900)
    """
    if step is None:
        apart = {part * horizon // PARTS for part in range(1, PARTS + 1)} - {0}
        step = horizon // PARTS
    else:
        apart = {*range(step, horizon + 1, step)}
    while (step := step // 2) >= fewest:
        if step <= horizon:
            apart.add(step)
    return tuple(sorted(apart))
