"""What a group has given to a member: opened once, kept in case it comes back, given up where somebody else has it."""

from dataclasses import dataclass
from math import inf
from types import SimpleNamespace

import pytest

from stream_dp.kafka.log import NoLeader
from stream_dp.operations.progress import Progress
from stream_dp.store.fence import Fenced
from stream_dp.workers import holdings
from stream_dp.workers.holdings import Holdings


@dataclass
class Held:
    """One whose fence somebody else may have changed."""

    number: int
    taken_over: bool = False

    def check_hold(self) -> None:
        if self.taken_over:
            raise Fenced("somebody else has it")


class Member:
    """Opens what it is given, and writes down what it opened and gave up."""

    def __init__(self) -> None:
        self.opened: list[int] = []
        self.given_up: list[int] = []
        self.progress = Progress("stream x", lambda *_: None)
        self.held = Holdings[Held]("x", "shard", lambda number, _: self.given_up.append(number))

    async def open_due(self) -> None:
        await self.held.open_due(self._open, self.progress)

    async def _open(self, number: int, kept: Held | None) -> Held:
        if kept is None:
            self.opened.append(number)
            return Held(number)
        return kept

    async def given(self, *numbers: int) -> None:
        """The group divides anew."""
        self.held.let_go()
        self.held.assigned(numbers)
        await self.open_due()


@pytest.fixture
def member() -> Member:
    return Member()


def numbers(member: Member) -> list[int]:
    return [number for number, _ in member.held.items()]


async def test_what_is_assigned_is_opened_once(member: Member) -> None:
    await member.given(1, 3)
    await member.open_due()
    assert (member.opened, numbers(member), len(member.held)) == ([1, 3], [1, 3], 2)
    assert member.held.get(3) == Held(3)
    assert member.held.get(2) is None


async def test_what_comes_back_is_still_in_memory(member: Member) -> None:
    await member.given(1, 2)
    first = member.held.get(1)
    await member.given(1)
    assert member.held.get(1) is first
    assert (member.opened, numbers(member)) == ([1, 2], [1])
    await member.given(1, 2)  # by then, somebody else has had the second one
    assert member.opened == [1, 2, 2]


async def test_what_comes_back_after_somebody_else_had_it_is_opened_again(member: Member) -> None:
    await member.given(1)
    first = member.held.get(1)
    assert first is not None
    first.taken_over = True
    await member.given(1)
    assert member.opened == [1, 1]
    assert member.held.get(1) is not first


async def test_what_was_not_saved_is_not_kept(member: Member) -> None:
    await member.given(1)
    for number, _ in member.held.let_go():
        member.held.forget(number)
    member.held.assigned([1])
    await member.open_due()
    assert member.opened == [1, 1]


async def test_what_another_process_has_taken_over_is_given_up_and_tried_again(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holdings, "time", SimpleNamespace(monotonic=lambda: 0.0))
    await member.given(1, 2)
    first = member.held.get(1)
    assert first is not None
    first.taken_over = True
    await member.held.check_holds(member.progress)
    assert (member.given_up, numbers(member)) == ([1], [2])
    await member.open_due()  # whoever took it over is at work
    assert member.opened == [1, 2]
    monkeypatch.setattr(holdings, "time", SimpleNamespace(monotonic=lambda: inf))
    await member.open_due()
    assert (member.opened, sorted(numbers(member))) == ([1, 2, 1], [1, 2])


async def test_one_that_cannot_be_opened_is_tried_again_and_gives_nothing_up(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    async def once_too_early(number: int, kept: Held | None) -> Held:
        tries.append(number)
        if len(tries) == 1:
            raise Fenced("somebody else was faster")
        return Held(number)

    monkeypatch.setattr(holdings, "_FENCED_SECONDS", 0.0)
    member.held.assigned([1])
    await member.held.open_due(once_too_early, member.progress)
    assert (numbers(member), member.given_up) == ([], [])
    await member.held.open_due(once_too_early, member.progress)
    assert (numbers(member), tries) == ([1], [1, 1])


async def test_one_that_nobody_leads_is_tried_again_and_holds_up_no_other(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    led = False

    async def opened(number: int, kept: Held | None) -> Held:
        if number == 1 and not led:
            raise NoLeader("partition 1 has no leader")
        return Held(number)

    monkeypatch.setattr(holdings, "_UNLED_SECONDS", 0.0)
    member.held.assigned([1, 2])
    await member.held.open_due(opened, member.progress)
    assert (numbers(member), member.held.to_open, member.given_up) == ([2], [1], [])
    led = True
    await member.held.open_due(opened, member.progress)
    assert (sorted(numbers(member)), member.held.to_open) == ([1, 2], [])


async def test_a_new_epoch_opens_everything_anew(member: Member) -> None:
    await member.given(1, 2)
    member.held.begin_again()
    assert not member.held
    await member.open_due()
    assert (member.opened, numbers(member)) == ([1, 2, 1, 2], [1, 2])
