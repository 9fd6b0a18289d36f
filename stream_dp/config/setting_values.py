"""Which values the settings take, and how a wrong one is told what would be right."""

from typing import Annotated

import msgspec

from stream_dp.config.wrong_values import Form
from stream_dp.counters import MECHANISMS, WINDOW

LARGEST_BATCH_ROUNDS = 500
"""Most rounds that a worker takes at once: see `releases.topic.LONGEST_REPETITION`."""

Positive = Annotated[int, msgspec.Meta(ge=1)]
BatchRounds = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_BATCH_ROUNDS)]
CheckpointEvery = Annotated[
    str,
    msgspec.Meta(pattern=r"^[1-9][0-9]{0,8}(ms|s|m|h)?\Z"),
    Form("a time such as 1s or 500ms, or a number of rounds such as 5000"),
]
Listener = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[^\s]+:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6([0-4][0-9]{3}|5([0-4][0-9]{2}|5([0-2][0-9]|3[0-5]))))\Z"
    ),
    Form("HOST:PORT such as 127.0.0.1:9464"),
]
Name = Annotated[
    str,
    msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,200}\Z"),
    Form("at most 201 letters, digits, dots, dashes and underscores, the first one a letter or a digit"),
]
Mechanism = Annotated[
    str,
    msgspec.Meta(pattern=rf"^({'|'.join((*MECHANISMS, WINDOW))})\Z"),
    Form(" or ".join((*MECHANISMS, WINDOW))),
]
Rounds = Annotated[
    str,
    msgspec.Meta(pattern=r"^(per-event|every-([2-9]|[1-9][0-9]{1,6})|ticks)\Z"),
    Form("per-event, every-N with N from 2 on, or ticks"),
]
Release = Annotated[
    str,
    msgspec.Meta(pattern=r"^every-(round|[1-9][0-9]{0,6}(ms)?)\Z"),
    Form("every-round, every-N rounds such as every-10, or every so many milliseconds such as every-500ms"),
]
NoiseKey = Annotated[
    str, msgspec.Meta(pattern=r"^(redis|env:.+|file:.+)$"), Form("redis, env:NAME or file:PATH")
]
Discover = Annotated[
    str,
    msgspec.Meta(pattern=r"^(default|every-round|every-[1-9][0-9]{0,8}[smhd]?)\Z"),
    Form("default, every-round, every-N rounds such as every-2048, or with ticks a time such as every-1h"),
]
File = Annotated[str, msgspec.Meta(pattern=r"^file:.+$"), Form("file:PATH")]
