"""The partitions of the events topics: who owns each, since when, and how its owners changed.

The term in force is the offset of the Claim that it began with. The term before it is in the record before that Claim,
and in the Claim itself as far as its writer had read; the higher one counts, since either may be older. So the Claims
of a partition are a list that is followed backwards from the newest: what is shown costs as many reads as owners shown,
however long the log is. A Claim never changes, so each is read once by a process. The total number of Claims is in no
place, and counting them would read the whole log.

Ends and terms are those that this process has read to, a moment behind the broker's; cursors are the projectors' own.

Before: services/application/operations/log_handlers.py. After: event_hub.py and replicas.py have the terms,
connectors/kafka the Claims, projections/engine/cursors.py the cursors.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from typing_extensions import TypedDict

from loomlog.connectors.protocols import LogRanges
from loomlog.projections.engine.cursors import CursorRow
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.schemas.codec import Codec, Undecodable
from loomlog.schemas.generated.stream_events import Claim
from loomlog.services.application.queries.log_pages import LogReadQueue
from loomlog.services.application.queries.read_models import ReadModels
from loomlog.services.core.access.decide import Caller

TAKEOVERS_DEFAULT = 3
TAKEOVERS_MAX = 50
"""Most take-overs of a partition in one answer."""
READS_MAX = 1_000
"""Most Claims that one request reads from the log; about a millisecond each. The next request continues."""
CACHED_CLAIMS_MAX = 20_000
"""Claims kept in memory: the newest ones of 1,000 partitions of three topics."""


class Takeover(TypedDict):
    """A Claim of a partition. Its offset is the term; `liveness_address` is the socket that breaks when the owner
    dies.
    """

    term: int
    owner: str
    reason: str
    liveness_address: str | None
    at: str


class PartitionOwnership(TypedDict):
    """A partition of an events topic. `owner`, `since` and `reason` are those of the newest take-over; null when it
    has none, or its Claim is deleted with the beginning of the log. `has_more`: there are take-overs before those
    listed. `next_offset` and `lag` are of the read models, in records.
    """

    partition: int
    term: int | None
    owner: str | None
    since: str | None
    reason: str | None
    takeovers: list[Takeover]
    has_more: bool
    end_offset: int
    next_offset: int
    lag: int
    projector: str | None


class TopicPartitions(TypedDict):
    """An events topic: of runs, or of the families of a topic set."""

    name: str
    topic: str
    partitions: list[PartitionOwnership]


class PartitionList(TypedDict):
    """All events topics."""

    topics: list[TopicPartitions]


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedTopic:
    """An events topic that this process reads: the term in force, and the offset after the last record read."""

    name: str
    topic: str
    partitions: Sequence[int]
    term: Callable[[int], int]
    end_offset: Callable[[int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReadClaim:
    takeover: Takeover
    previous_term: int
    """-1: it is the first."""


Place = tuple[str, int, int]
"""Topic, partition and offset of a Claim."""


class Partitions:
    """Reads owners and cursors of partitions."""

    def __init__(
        self, topics: Sequence[FollowedTopic], projection: ReadModels, ranges: LogRanges, codec: Codec
    ) -> None:
        self._topics = topics
        self._projection = projection
        self._ranges = ranges
        self._codec = codec
        self._claims: OrderedDict[Place, _ReadClaim | None] = OrderedDict()
        """None: the record is deleted."""
        self._reads = LogReadQueue()

    async def list(self, caller: Caller, *, takeovers: int = TAKEOVERS_DEFAULT) -> PartitionList:
        """Return all partitions, each with its newest take-overs, newest first.

        Raises Refused: insufficient_scope, log_unavailable, projection_unavailable, backpressure.
        """
        cursors = {
            (cursor.topic, cursor.partition): cursor for cursor in (await self._projection.progress())["cursors"]
        }
        topics = self._topics
        terms = {(one.topic, number): one.term(number) for one in topics for number in one.partitions}
        await self._read_claims(caller, [(*place, term) for place, term in terms.items()], takeovers)
        return {
            "topics": [
                {
                    "name": one.name,
                    "topic": one.topic,
                    "partitions": [
                        self._partition(one, number, terms[one.topic, number], cursors, takeovers)
                        for number in one.partitions
                    ],
                }
                for one in topics
            ]
        }

    def _partition(
        self,
        followed: FollowedTopic,
        number: int,
        term: int,
        cursors: Mapping[tuple[str, int], CursorRow],
        takeovers: int,
    ) -> PartitionOwnership:
        shown: list[Takeover] = []
        at = term
        while at >= 0 and len(shown) < takeovers:
            claim = self._claims.get((followed.topic, number, at))
            if claim is None:
                break
            shown.append(claim.takeover)
            at = claim.previous_term
        is_deleted = (followed.topic, number, at) in self._claims and self._claims[followed.topic, number, at] is None
        newest = shown[0] if shown else None
        cursor = cursors.get((followed.topic, number))
        end_offset, next_offset = followed.end_offset(number), 0 if cursor is None else cursor.next_offset
        return {
            "partition": number,
            "term": term if term >= 0 else None,
            "owner": newest["owner"] if newest is not None else None,
            "since": newest["at"] if newest is not None else None,
            "reason": newest["reason"] if newest is not None else None,
            "takeovers": shown,
            "has_more": at >= 0 and not is_deleted,
            "end_offset": end_offset,
            "next_offset": next_offset,
            "lag": max(0, end_offset - next_offset),
            "projector": cursor.owner if cursor is not None else None,
        }

    # --- Claims ------------------------------------------------------------------------------------------------------

    async def _read_claims(self, caller: Caller, newest: Sequence[Place], takeovers: int) -> None:
        """Read what is missing of the newest Claims: first the newest of each partition, then those before."""
        async with self._reads.slot(caller):
            await self._follow_claims(newest, takeovers)

    async def _follow_claims(self, places: Sequence[Place], takeovers: int) -> None:
        left = READS_MAX
        for _ in range(takeovers):
            before: list[Place] = []
            for place in places:
                topic, partition, offset = place
                if offset < 0:
                    continue
                if place not in self._claims:
                    if left <= 0:
                        return
                    left -= 1
                    self._remember(place, await self._read_claim(place))
                claim = self._claims[place]
                if claim is not None:
                    before.append((topic, partition, claim.previous_term))
            places = before

    def _remember(self, place: Place, claim: _ReadClaim | None) -> None:
        self._claims[place] = claim
        if len(self._claims) > CACHED_CLAIMS_MAX:
            self._claims.popitem(last=False)

    async def _read_claim(self, place: Place) -> _ReadClaim | None:
        """Return the Claim at a place; None when its record is deleted. Raises Transient."""
        topic, partition, offset = place
        first = await self._ranges.beginning_offset(topic, partition)
        if offset < first:
            return None
        claim: Claim | None = None
        at_ms, previous_term = 0, -1
        async with await self._ranges.read(topic, partition, max(first, offset - 1), offset + 1) as chunks:
            async for chunk in chunks:
                for record in chunk:
                    try:
                        decoded = self._codec.decode(record.value or b"")
                    except Undecodable:
                        continue
                    if decoded.envelope is None:
                        continue
                    is_before = record.offset < offset
                    if is_before and isinstance(decoded.record, Claim):
                        previous_term = record.offset
                    else:
                        previous_term = max(previous_term, decoded.envelope.term)
                    if not is_before and isinstance(decoded.record, Claim):
                        claim, at_ms = decoded.record, decoded.envelope.at_ms
        if claim is None:
            return None
        return _ReadClaim(
            takeover={
                "term": offset,
                "owner": claim.owner,
                "reason": claim.reason,
                "liveness_address": claim.lifeline or None,
                "at": format_rfc3339(at_ms),
            },
            previous_term=min(previous_term, offset - 1),
        )
