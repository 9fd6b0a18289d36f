"""The embedded broker's consumer groups, one call at a time: who waits, who is answered, who is put out."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from kafka.errors import (
    FencedInstanceIdError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    MemberIdRequiredError,
    NoError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

from stream_dp.dev.consumer_groups import Group, Joined, JoinRequest, State

HOURS = 3600.0


def asked(member_id: str = "", **changes: Any) -> JoinRequest:
    """A join of a client with patience, in the older form that needs no second call for its id."""
    usual: dict[str, Any] = {
        "member_id": member_id,
        "client_id": "client",
        "protocol_type": "consumer",
        "protocols": {"range": b"topics"},
        "session_timeout": HOURS,
        "rebalance_timeout": HOURS,
        "id_first": False,
    }
    return JoinRequest(**(usual | changes))


async def started(waiting: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    """Run a call until it waits or is done."""
    task = asyncio.create_task(waiting)
    for _ in range(3):
        await asyncio.sleep(0)
    return task


async def lone_member(group: Group, **changes: Any) -> Joined:
    """The first member, leader, assigned and stable."""
    joined = await group.join(asked(**changes))
    assert await group.sync(joined.member_id, joined.generation, {joined.member_id: b"all"}) == (
        NoError,
        b"all",
    )
    assert group.state is State.STABLE
    return joined


async def pair(group: Group) -> tuple[Joined, Joined]:
    """Two members that have joined the same generation; the first leads."""
    first = await lone_member(group)
    second = await started(group.join(asked()))
    again = await group.join(asked(first.member_id))
    return again, await second


async def test_a_newcomer_is_first_told_its_id() -> None:
    group = Group()
    told = await group.join(asked(id_first=True))
    assert told.error is MemberIdRequiredError
    joined = await group.join(asked(told.member_id, id_first=True))
    assert (joined.error, joined.member_id, joined.leader) == (NoError, told.member_id, told.member_id)
    group.close()


async def test_a_second_member_makes_the_first_join_again_and_both_share_a_generation() -> None:
    group = Group()
    first = await lone_member(group)
    newcomer = await started(group.join(asked()))
    assert not newcomer.done()
    assert group.heartbeat(first.member_id, first.generation) is RebalanceInProgressError
    again = await group.join(asked(first.member_id))
    second = await newcomer
    assert again.generation == second.generation == first.generation + 1
    assert {id for id, _, _ in again.members} == {first.member_id, second.member_id}
    assert second.members == ()
    follower = await started(group.sync(second.member_id, second.generation, {}))
    assert not follower.done()
    shares = {first.member_id: b"left", second.member_id: b"right"}
    assert await group.sync(first.member_id, again.generation, shares) == (NoError, b"left")
    assert await follower == (NoError, b"right")
    group.close()


async def test_a_silent_member_is_put_out_and_the_others_join_again() -> None:
    group = Group()
    first = await lone_member(group)
    newcomer = await started(group.join(asked(session_timeout=0.05)))
    again = await group.join(asked(first.member_id))
    second = await newcomer
    await group.sync(first.member_id, again.generation, {})
    while group.heartbeat(first.member_id, again.generation) is NoError:
        await asyncio.sleep(0.01)
    assert group.heartbeat(second.member_id, again.generation) is UnknownMemberIdError
    alone = await group.join(asked(first.member_id))
    assert [id for id, _, _ in alone.members] == [first.member_id]
    group.close()


async def test_who_does_not_join_again_in_time_is_left_out() -> None:
    group = Group()
    first = await lone_member(group, rebalance_timeout=0.05)
    second = await group.join(asked(rebalance_timeout=0.05))
    assert [id for id, _, _ in second.members] == [second.member_id]
    assert group.heartbeat(first.member_id, second.generation) is UnknownMemberIdError
    group.close()


async def test_leaving_hands_over_at_once_and_the_last_one_empties_the_group() -> None:
    group = Group()
    first, second = await pair(group)
    assert group.leave(first.member_id) is NoError
    alone = await group.join(asked(second.member_id))
    assert alone.leader == second.member_id
    assert group.leave(second.member_id) is NoError
    assert group.state is State.EMPTY
    assert group.leave(second.member_id) is UnknownMemberIdError
    group.close()


async def test_only_members_of_the_generation_commit_or_anyone_while_the_group_is_empty() -> None:
    group = Group()
    assert group.may_commit("", -1) is NoError
    joined = await group.join(asked())
    assert group.may_commit(joined.member_id, joined.generation) is RebalanceInProgressError
    await group.sync(joined.member_id, joined.generation, {})
    assert group.may_commit(joined.member_id, joined.generation) is NoError
    assert group.may_commit(joined.member_id, joined.generation - 1) is IllegalGenerationError
    assert group.may_commit("", -1) is UnknownMemberIdError
    group.close()


async def test_members_without_a_common_protocol_are_refused() -> None:
    group = Group()
    await lone_member(group)
    other = await group.join(asked(protocols={"sticky": b""}))
    kind = await group.join(asked(protocol_type="connect"))
    assert other.error is kind.error is InconsistentGroupProtocolError
    group.close()


async def test_the_protocol_most_members_prefer_wins() -> None:
    group = Group()
    first = await group.join(asked(protocols={"range": b"", "sticky": b""}))
    newcomers = [await started(group.join(asked(protocols={"sticky": b"", "range": b""}))) for _ in range(2)]
    again = await group.join(asked(first.member_id, protocols={"range": b"", "sticky": b""}))
    assert [again.protocol, *[(await newcomer).protocol for newcomer in newcomers]] == ["sticky"] * 3
    group.close()


@pytest.mark.parametrize("gone", [True, False])
async def test_an_instance_takes_its_old_place_and_fences_its_former_self(gone: bool) -> None:
    """Its former id, dead or alive, need not leave first and is told that it was replaced."""
    group = Group()
    former = await lone_member(group, instance="worker-1")
    if not gone:
        assert group.heartbeat(former.member_id, former.generation, "worker-1") is NoError
    back = await group.join(asked(instance="worker-1"))
    assert (back.error, back.leader) == (NoError, back.member_id)
    assert [(id, instance) for id, instance, _ in back.members] == [(back.member_id, "worker-1")]
    assert group.heartbeat(former.member_id, former.generation, "worker-1") is FencedInstanceIdError
    assert (await group.join(asked(former.member_id, instance="worker-1"))).error is FencedInstanceIdError
    group.close()


async def test_a_waiting_follower_hears_of_the_next_rebalance() -> None:
    group = Group()
    first, second = await pair(group)
    follower = await started(group.sync(second.member_id, second.generation, {}))
    await started(group.join(asked()))
    assert await follower == (RebalanceInProgressError, b"")
    assert (await group.sync(first.member_id, first.generation, {}))[0] is RebalanceInProgressError
    group.close()
