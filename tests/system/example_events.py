"""Events as producers would send them, a few of them broken."""

import json
import random


def event(*items: str) -> bytes:
    """The bytes of a valid event."""
    return json.dumps({"items": items}).encode()


def some_events(count: int, seed: int, users: int = 0) -> list[bytes | None]:
    """Events over a few frequent and many rare labels; one in twenty is no valid event.

    Where there are `users`, each event is one of theirs, and one in twenty nobody's.
    """
    rng = random.Random(seed)
    labels = ["tea", "milk", "päron", "梨", *(f"rare {number}" for number in range(60))]
    weights = [30, 20, 10, 10, *[1] * 60]
    events: list[bytes | None] = []
    for _ in range(count):
        good = event(*rng.choices(labels, weights, k=rng.randint(1, 5)))
        if users and rng.random() < 0.95:
            good = good[:-1] + b', "user": "user %d"}' % rng.randrange(users)
        events.append(good if rng.random() < 0.95 else rng.choice([None, b"", good[:-2], b'{"items": []}']))
    return events
