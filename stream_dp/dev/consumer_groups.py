"""Consumer groups of the embedded broker (trying out and tests): who is in a group and who reads what.

A group goes EMPTY -> JOINING (members are collected) -> SYNCING (the leader assigns) -> STABLE, and back to
JOINING whenever a member comes, leaves, or is silent for longer than its session timeout.
A member may name an instance ("static membership"): when it comes back it takes its old place at once.
Members are kept in memory only: after a restart of the broker they join again.
"""

import asyncio
import uuid
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from kafka.errors import (
    BrokerResponseError,
    FencedInstanceIdError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    MemberIdRequiredError,
    NoError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

Error = type[BrokerResponseError]
Answer = TypeVar("Answer")


class State(Enum):
    EMPTY = "Empty"
    JOINING = "PreparingRebalance"
    SYNCING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(frozen=True)
class Joined:
    """The answer to a join; `members` (id, instance, metadata) is filled for the leader only."""

    error: Error
    member_id: str
    generation: int = -1
    protocol: str = ""
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()


@dataclass(frozen=True)
class JoinRequest:
    """What a client says when it joins; timeouts in seconds, `protocols` in its order of preference."""

    member_id: str
    client_id: str
    protocol_type: str
    protocols: dict[str, bytes]
    session_timeout: float
    rebalance_timeout: float
    id_first: bool  # a newcomer is first told its id and joins again with it (request version 4 on)
    instance: str | None = None


@dataclass
class _Member:
    id: str
    asked: JoinRequest
    assignment: bytes = b""
    joining: asyncio.Future[Joined] | None = None
    syncing: asyncio.Future[tuple[Error, bytes]] | None = None
    expiry: asyncio.TimerHandle | None = None


@dataclass
class Group:
    """One consumer group; all methods run on the broker's event loop."""

    protocol_type: str = ""
    state: State = State.EMPTY
    generation: int = 0
    protocol: str = ""
    leader: str = ""
    _members: dict[str, _Member] = field(default_factory=dict)
    _promised_ids: set[str] = field(default_factory=set)
    _join_deadline: asyncio.TimerHandle | None = None

    async def join(self, asked: JoinRequest) -> Joined:
        """Wait until every member has joined, or the slowest ran out of time; returns the new generation."""
        member_id = asked.member_id
        if not member_id:
            member_id = f"{asked.client_id}-{uuid.uuid4()}"
            if asked.id_first and asked.instance is None:
                self._promised_ids.add(member_id)
                return Joined(MemberIdRequiredError, member_id)
        elif member_id not in self._members and member_id not in self._promised_ids:
            return Joined(self._unknown(asked.instance), member_id)
        if not self._can_join(member_id, asked):
            return Joined(InconsistentGroupProtocolError, member_id)
        self._promised_ids.discard(member_id)
        self._make_way(member_id, asked.instance)
        member = self._members.get(member_id)
        changed = member is None or member.asked.protocols != asked.protocols
        if member is None:
            member = self._members[member_id] = _Member(member_id, asked)
        member.asked = asked
        self.protocol_type = asked.protocol_type
        if self.state in (State.STABLE, State.SYNCING) and not changed and member_id != self.leader:
            return self._joined(member)
        return await self._wait_for_generation(member)

    async def sync(
        self, member_id: str, generation: int, assignments: dict[str, bytes], instance: str | None = None
    ) -> tuple[Error, bytes]:
        """Wait for the leader's assignment; the leader's own call brings it. Returns (error, assignment)."""
        error = self.check(member_id, generation, instance)
        if error is not NoError:
            return error, b""
        if self.state is State.JOINING:
            return RebalanceInProgressError, b""
        member = self._members[member_id]
        if self.state is State.SYNCING and member_id == self.leader:
            self.state = State.STABLE
            for other in self._members.values():
                other.assignment = assignments.get(other.id, b"")
                _answer(other.syncing, (NoError, other.assignment))
                other.syncing = None
        if self.state is State.STABLE:
            return NoError, member.assignment
        _answer(member.syncing, (RebalanceInProgressError, b""))
        member.syncing = asyncio.get_running_loop().create_future()
        return await member.syncing

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None) -> Error:
        """Keep a member alive; tells it to join again while the group is JOINING."""
        error = self.check(member_id, generation, instance)
        if error is NoError and self.state is State.JOINING:
            return RebalanceInProgressError
        return error

    def leave(self, member_id: str, instance: str | None = None) -> Error:
        """Take a member out, named by its id or, without one, by its instance."""
        member_id = member_id or self._holder(instance) or ""
        self._promised_ids.discard(member_id)
        if member_id not in self._members:
            return self._unknown(instance)
        self._remove(member_id)
        return NoError

    def may_commit(self, member_id: str, generation: int, instance: str | None = None) -> Error:
        """Whether offsets may be committed: by a member, or by anyone (generation -1) while nobody is in."""
        if generation < 0 and not self._members:
            return NoError
        error = self.check(member_id, generation, instance)
        if error is NoError and self.state is State.SYNCING:
            return RebalanceInProgressError
        return error

    def check(self, member_id: str, generation: int, instance: str | None = None) -> Error:
        """Whether this is a member of this generation; if so its session starts anew."""
        member = self._members.get(member_id)
        if member is None:
            return self._unknown(instance)
        if generation != self.generation:
            return IllegalGenerationError
        self._restart_session(member)
        return NoError

    def close(self) -> None:
        """Stop the timers."""
        for member in self._members.values():
            _cancel(member.expiry)
        _cancel(self._join_deadline)

    def _can_join(self, member_id: str, asked: JoinRequest) -> bool:
        """Whether the newcomer has an assignment protocol in common with everybody else."""
        others = [
            member.asked
            for id, member in self._members.items()
            if id != member_id and (asked.instance is None or member.asked.instance != asked.instance)
        ]
        if not asked.protocols or any(other.protocol_type != asked.protocol_type for other in others):
            return False
        return any(all(name in other.protocols for other in others) for name in asked.protocols)

    def _holder(self, instance: str | None) -> str | None:
        """The id of the member that has this instance name."""
        if instance is None:
            return None
        return next((id for id, member in self._members.items() if member.asked.instance == instance), None)

    def _unknown(self, instance: str | None) -> Error:
        """Why an id is not known: its instance came back under a new id, or it never was."""
        return FencedInstanceIdError if self._holder(instance) else UnknownMemberIdError

    def _make_way(self, member_id: str, instance: str | None) -> None:
        """Put the member that had this instance name out, without the rebalance its leaving would cause."""
        holder = self._holder(instance)
        if holder is not None and holder != member_id:
            old = self._members.pop(holder)
            _cancel(old.expiry)
            _answer(old.joining, Joined(FencedInstanceIdError, holder))
            _answer(old.syncing, (FencedInstanceIdError, b""))

    async def _wait_for_generation(self, member: _Member) -> Joined:
        if self.state is not State.JOINING:
            self._start_joining()
        _cancel(member.expiry)  # a member that waits for the others cannot send heartbeats
        _answer(
            member.joining, Joined(RebalanceInProgressError, member.id)
        )  # asked again on a new connection
        member.joining = waiting = asyncio.get_running_loop().create_future()
        if all(other.joining is not None for other in self._members.values()):
            self._complete_joining()
        return await waiting

    def _start_joining(self) -> None:
        self.state = State.JOINING
        for member in self._members.values():
            _answer(member.syncing, (RebalanceInProgressError, b""))
            member.syncing = None
        patience = max(member.asked.rebalance_timeout for member in self._members.values())
        self._join_deadline = asyncio.get_running_loop().call_later(patience, self._complete_joining)

    def _complete_joining(self) -> None:
        """Open the next generation with everybody who has joined; the others are out."""
        _cancel(self._join_deadline)
        for member in [member for member in self._members.values() if member.joining is None]:
            _cancel(member.expiry)
            del self._members[member.id]
        self.generation += 1
        if not self._members:
            self.state = State.EMPTY
            return
        if self.leader not in self._members:
            self.leader = next(iter(self._members))
        self.protocol = self._choose_protocol()
        self.state = State.SYNCING
        for member in self._members.values():
            member.assignment = b""
            _answer(member.joining, self._joined(member))
            member.joining = None
            self._restart_session(member)

    def _choose_protocol(self) -> str:
        """The protocol most members like best among those all of them know."""
        asked = [member.asked.protocols for member in self._members.values()]
        common = [name for name in asked[0] if all(name in other for other in asked)]
        favourites = [next(name for name in protocols if name in common) for protocols in asked]
        return max(common, key=favourites.count)

    def _joined(self, member: _Member) -> Joined:
        members: tuple[tuple[str, str | None, bytes], ...] = ()
        if member.id == self.leader:
            members = tuple(
                (other.id, other.asked.instance, other.asked.protocols[self.protocol])
                for other in self._members.values()
            )
        return Joined(NoError, member.id, self.generation, self.protocol, self.leader, members)

    def _restart_session(self, member: _Member) -> None:
        _cancel(member.expiry)
        loop = asyncio.get_running_loop()
        member.expiry = loop.call_later(member.asked.session_timeout, self._expire, member)

    def _expire(self, member: _Member) -> None:
        if self._members.get(member.id) is not member or member.joining is not None:
            return
        if member.syncing is not None:  # it waits for the leader and cannot send heartbeats
            self._restart_session(member)
            return
        self._remove(member.id)

    def _remove(self, member_id: str) -> None:
        member = self._members.pop(member_id)
        _cancel(member.expiry)
        _answer(member.joining, Joined(UnknownMemberIdError, member_id))
        _answer(member.syncing, (UnknownMemberIdError, b""))
        if not self._members:
            _cancel(self._join_deadline)
            self.state = State.EMPTY
            self.generation += 1
        elif self.state is not State.JOINING:
            self._start_joining()
        elif all(other.joining is not None for other in self._members.values()):
            self._complete_joining()


def _answer(waiting: asyncio.Future[Answer] | None, answer: Answer) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(answer)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
