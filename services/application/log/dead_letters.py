"""Dead letters, records that could not be handled: a list, one in full, replay and acknowledgement.

A replayed command is handled like any other: if it had been handled after all, it has no second effect, because
commands are deduplicated by their ids. An original of an events topic is never replayed: only the owner of a partition
writes there, and the failure is repaired in the code or by restoring the topic. Each replay is a later record of its
own (DeadLetterReplayed), so nothing is replayed twice by mistake; it has the token of its request, so a repeated
request gets the first answer. What cannot be decoded here would only become a dead letter again, so it is not replayed
until a newer version can read it; a letter of which nothing more is needed is acknowledged by a record of its own
(DeadLetterAcknowledged). A letter is open until it is replayed or acknowledged.

Before: services/application/operations/log_handlers.py, services/cli/log/dead_letters.py. After: records.py,
connectors/kafka.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from loomlog.connectors.errors import UnknownOutcome
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import LogAppender, LogRanges, LogRecord, ProducerRecord
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.schemas.codec import Codec, Undecodable, UnknownSchema
from loomlog.schemas.generated.stream_records import DeadLetter, DeadLetterAcknowledged, DeadLetterReplayed
from loomlog.schemas.position import Position
from loomlog.services.application import limits
from loomlog.services.application.log.json_types import (
    DeadLetterDetail,
    DeadLetterList,
    DeadLetterOriginal,
    DeadLetterReplay,
    DeadLetterSummary,
)
from loomlog.services.application.log.records import hide_secrets, read_range, to_json_value
from loomlog.services.application.queries.log_pages import LogReadQueue, answered_within
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused

TOPIC = "loom.dead-letter"
PARTITION = 0
MAX_RECORDS = 10_000
"""Records scanned for a list; an installation with more dead letters has another problem."""
LETTERS_DEFAULT = 50
LETTERS_MAX = 200
"""Maximum letters of a page: each may have a megabyte, and is in memory while its page is made."""
REPLAY_WAIT_S = 10.0
"""Time limit of a replay, which appends twice, and of an acknowledgement."""
Note = DeadLetterReplayed | DeadLetterAcknowledged
"""A later record about a letter."""


class DeadLetterKind(StrEnum):
    """Reason why a record became a dead letter (DeadLetter.kind)."""

    UNDECODABLE = "undecodable"
    UNKNOWN_SCHEMA = "unknown_schema"
    REFUSED = "refused"
    FOLD_BUG = "fold_bug"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterEntry:
    """A dead letter and its position. `replays` are the records of its replays, in log order; `acknowledgement` is the
    first one.
    """

    offset: int
    letter: DeadLetter
    replays: tuple[DeadLetterReplayed, ...] = ()
    acknowledgement: DeadLetterAcknowledged | None = None

    @property
    def replay_positions(self) -> tuple[str, ...]:
        """Return the positions where its original was appended again."""
        return tuple(map(_replay_position, self.replays))

    @property
    def missing_value_reason(self) -> str:
        """Return why the original is not in the dead letter, and where it is; empty when it is in it."""
        if self.letter.value is not None:
            return ""
        return (
            f"Letter {self.offset} holds no bytes: the original is too large, was a tombstone, or says in clear what "
            f"is encrypted here. It is at {self.origin} as long as its topic keeps it."
        )

    @property
    def origin(self) -> str:
        return str(Position(topic=self.letter.topic, partition=self.letter.partition, offset=self.letter.offset))

    def replay_of(self, request_token: str) -> DeadLetterReplayed | None:
        """Return the replay that a request caused; None when it has caused none."""
        return next((one for one in self.replays if request_token and one.request_token == request_token), None)


class DeadLetters:
    """The use cases for administrators. Everything raises Refused(log_unavailable)."""

    def __init__(
        self,
        ranges: LogRanges,
        appender: LogAppender,
        codec: Codec,
        reads: LogReadQueue,
        *,
        clock_ms: Callable[[], int],
        request_token: Callable[[], str],
    ) -> None:
        """`request_token`: source of tokens that a repeated request draws again."""
        self._ranges, self._appender, self._codec, self._reads = ranges, appender, codec, reads
        self._clock_ms, self._request_token = clock_ms, request_token
        self._replay_lock = asyncio.Lock()

    async def list(
        self, caller: Caller, *, kind: str = "", before: int | None = None, limit: int = LETTERS_DEFAULT
    ) -> DeadLetterList:
        """Return dead letters, the newest first: those below the offset `before`, or all."""
        async with self._reads.slot(caller):
            entries = await read_dead_letters(self._ranges, self._codec, kind=kind, before=before, limit=limit + 1)
        shown = entries[-limit:]
        has_more = len(entries) > limit
        return {
            "letters": [dead_letter_json(entry, self._codec) for entry in reversed(shown)],
            "next": str(shown[0].offset) if has_more else None,
        }

    async def get(self, caller: Caller, offset: int) -> DeadLetterDetail:
        """Return one dead letter. Raises Refused(not_found) too."""
        async with self._reads.slot(caller):
            entry = await read_dead_letter(self._ranges, self._codec, offset)
        return dead_letter_detail(entry, self._codec)

    async def replay(self, caller: Caller, offset: int, *, allow_repeat: bool = False) -> DeadLetterReplay:
        """Append the original to its commands topic again. Raises Refused: not_found, command_refused too."""
        token = self._request_token()
        async with answered_within(REPLAY_WAIT_S), self._replay_lock:
            async with self._reads.slot(caller):
                entry = await read_dead_letter(self._ranges, self._codec, offset)
            if earlier := entry.replay_of(token):
                return {"offset": offset, "position": _replay_position(earlier), "repeated": True}
            position = await replay_letter(
                self._appender, self._codec, entry, token=token, allow_repeat=allow_repeat, at_ms=self._clock_ms()
            )
        return {"offset": offset, "position": position, "repeated": False}

    async def acknowledge(self, caller: Caller, offset: int, *, reason: str = "") -> DeadLetterSummary:
        """Note that nothing more is needed of a letter; one that is acknowledged stays so. Raises
        Refused(not_found) too.
        """
        token = self._request_token()
        async with answered_within(REPLAY_WAIT_S), self._replay_lock:
            async with self._reads.slot(caller):
                entry = await read_dead_letter(self._ranges, self._codec, offset)
            acknowledged = await acknowledge_letter(
                self._appender,
                self._codec,
                entry,
                by=caller.subject,
                reason=reason,
                token=token,
                at_ms=self._clock_ms(),
            )
        return dead_letter_json(acknowledged, self._codec)


async def read_dead_letters(
    ranges: LogRanges, codec: Codec, *, kind: str = "", before: int | None = None, limit: int = MAX_RECORDS
) -> list[DeadLetterEntry]:
    """Return the newest dead letters among the last MAX_RECORDS records of the topic, in log order."""
    end = await ranges.end_offset(TOPIC, PARTITION)
    start = max(await ranges.beginning_offset(TOPIC, PARTITION), end - MAX_RECORDS)
    below = end if before is None else before
    letters: deque[tuple[int, DeadLetter]] = deque(maxlen=limit)
    notes: list[Note] = []
    async with await ranges.read(TOPIC, PARTITION, start, end) as chunks:
        async for chunk in chunks:
            for record in chunk:
                read = _decode(record, codec)
                if isinstance(read, Note):
                    notes.append(read)
                elif isinstance(read, DeadLetter) and kind in ("", read.kind) and record.offset < below:
                    letters.append((record.offset, read))
            await asyncio.sleep(0)
    return _entries(letters, notes)


async def read_dead_letter(ranges: LogRanges, codec: Codec, offset: int) -> DeadLetterEntry:
    """Return one dead letter with the later records about it. Raises Refused(not_found)."""
    end = await ranges.end_offset(TOPIC, PARTITION)
    if not await ranges.beginning_offset(TOPIC, PARTITION) <= offset < end:
        raise Refused("not_found", f"There is no dead letter {offset}. The list of them shows what there is.")
    first = await read_range(ranges, TOPIC, PARTITION, offset, offset + 1)
    letter = _decode(first[0], codec) if first else None
    if not isinstance(letter, DeadLetter):
        place = Position(topic=TOPIC, partition=PARTITION, offset=offset)
        raise Refused("not_found", f"The record at {place} is no dead letter.")
    notes: list[Note] = []
    async with await ranges.read(TOPIC, PARTITION, offset + 1, min(end, offset + MAX_RECORDS)) as chunks:
        async for chunk in chunks:
            notes += [read for record in chunk if isinstance(read := _decode(record, codec), Note)]
            await asyncio.sleep(0)
    return _entries([(offset, letter)], notes)[0]


class OpenLetters:
    """How many dead letters are open: the topic is read once, then only what is new."""

    def __init__(self, ranges: LogRanges, codec: Codec) -> None:
        self._ranges, self._codec = ranges, codec
        self._open: set[int] = set()
        self._read_to = 0

    async def count(self) -> int:
        """Return how many of the newest MAX_RECORDS records are open letters. Errors are the connector's."""
        first = await self._ranges.beginning_offset(TOPIC, PARTITION)
        end = await self._ranges.end_offset(TOPIC, PARTITION)
        oldest = max(first, end - MAX_RECORDS)
        start = max(self._read_to, oldest)
        if start < end:
            async with await self._ranges.read(TOPIC, PARTITION, start, end) as chunks:
                async for chunk in chunks:
                    for record in chunk:
                        read = _decode(record, self._codec)
                        if isinstance(read, DeadLetter):
                            self._open.add(record.offset)
                        elif isinstance(read, Note):
                            self._open.discard(read.letter_offset)
                    await asyncio.sleep(0)
        self._read_to = end
        self._open = {offset for offset in self._open if offset >= oldest}
        return len(self._open)


def _decode(record: LogRecord, codec: Codec) -> object:
    try:
        return codec.decode(record.value or b"").record
    except Undecodable:
        return None  # only this project writes here; the records of the topic show it


def _entries(letters: Iterable[tuple[int, DeadLetter]], notes: Iterable[Note]) -> list[DeadLetterEntry]:
    by_letter: dict[int, list[Note]] = {}
    for one in notes:
        by_letter.setdefault(one.letter_offset, []).append(one)
    return [_entry(offset, letter, by_letter.get(offset, [])) for offset, letter in letters]


def _entry(offset: int, letter: DeadLetter, notes: Sequence[Note]) -> DeadLetterEntry:
    return DeadLetterEntry(
        offset=offset,
        letter=letter,
        replays=tuple(one for one in notes if isinstance(one, DeadLetterReplayed)),
        acknowledgement=next((one for one in notes if isinstance(one, DeadLetterAcknowledged)), None),
    )


async def replay_letter(
    appender: LogAppender, codec: Codec, entry: DeadLetterEntry, *, token: str = "", allow_repeat: bool, at_ms: int
) -> str:
    """Append the original to the partition of its key, and a record of that; return its new position.

    Raises Refused: command_refused when it must not or cannot be replayed, log_unavailable when it is not known
    whether it was.
    """
    original = original_record(entry, codec, allow_repeat=allow_repeat)
    topic = entry.letter.topic
    count = await appender.partitions(topic)
    partition = partition_of(original.key or b"", count) if count else 0
    try:
        offset = await appender.append(topic, partition, [original])
    except UnknownOutcome as error:
        raise Refused(
            "log_unavailable",
            f"Whether the original reached {topic} is not known ({error}). Look at the end of its partition; replaying "
            "it once more does no harm.",
        ) from error
    position = str(Position(topic=topic, partition=partition, offset=offset))
    note = DeadLetterReplayed(
        letter_offset=entry.offset, topic=topic, partition=partition, offset=offset, at_ms=at_ms, request_token=token
    )
    try:
        await appender.append(TOPIC, PARTITION, [ProducerRecord(key=entry.origin.encode(), value=codec.encode(note))])
    except UnknownOutcome as error:
        raise Refused(
            "log_unavailable",
            f"The original is at {position} now, but whether that was noted is not known ({error}).",
        ) from error
    return position


async def acknowledge_letter(
    appender: LogAppender,
    codec: Codec,
    entry: DeadLetterEntry,
    *,
    by: str,
    reason: str = "",
    token: str = "",
    at_ms: int,
) -> DeadLetterEntry:
    """Append a record of the acknowledgement and return the letter with it; one that is there already stays."""
    if entry.acknowledgement is not None:
        return entry
    note = DeadLetterAcknowledged(
        letter_offset=entry.offset,
        at_ms=at_ms,
        by=by,
        reason=reason[: limits.REASON_CHARACTERS_MAX],
        request_token=token,
    )
    try:
        await appender.append(TOPIC, PARTITION, [ProducerRecord(key=entry.origin.encode(), value=codec.encode(note))])
    except UnknownOutcome as error:
        raise Refused(
            "log_unavailable",
            f"Whether the acknowledgement of letter {entry.offset} was noted is not known ({error}). Repeat it: that "
            "does no harm.",
        ) from error
    return replace(entry, acknowledgement=note)


def replay_refusal(entry: DeadLetterEntry, codec: Codec) -> str:
    """Return why the original cannot be put back, ever or by this version; empty when it can."""
    letter = entry.letter
    if not letter.topic.endswith(".commands"):
        return (
            f"Letter {entry.offset} is of {letter.topic}: only its owner writes there, so nothing can be put back. "
            "Repair the code that could not read it, then rebuild the projections or release the run."
        )
    if letter.value is None:
        return entry.missing_value_reason
    try:
        codec.decode(letter.value)
    except UnknownSchema as error:
        return (
            f"Letter {entry.offset} cannot be read by this version ({error}), so it would become a dead letter again. "
            "Upgrade, then replay it."
        )
    except Undecodable as error:
        return (
            f"Letter {entry.offset} is no record that can be read ({error}), so it would become a dead letter again. "
            "Find who writes such bytes, then acknowledge it."
        )
    return ""


def original_record(entry: DeadLetterEntry, codec: Codec, *, allow_repeat: bool) -> ProducerRecord:
    """Return the original record unchanged. Raises Refused(command_refused)."""
    letter = entry.letter
    if refusal := replay_refusal(entry, codec):
        raise _not_replayed(refusal)
    if entry.replays and not allow_repeat:
        raise _not_replayed(
            f"Letter {entry.offset} was put back already, at {', '.join(entry.replay_positions)}. To do it once more, "
            'say so: --again, or "again": true.'
        )
    return ProducerRecord(
        key=letter.key, value=letter.value, headers=tuple((one.key, one.value) for one in letter.headers)
    )


def dead_letter_json(entry: DeadLetterEntry, codec: Codec) -> DeadLetterSummary:
    """Return the fields of a dead letter that a list shows."""
    letter, note = entry.letter, entry.acknowledgement
    return {
        "offset": entry.offset,
        "at": format_rfc3339(letter.at_ms),
        "kind": letter.kind,
        "service": letter.service,
        "error": letter.error,
        "from": entry.origin,
        "replayed": list(entry.replay_positions),
        "not_replayable": replay_refusal(entry, codec) or None,
        "acknowledged": (
            None if note is None else {"at": format_rfc3339(note.at_ms), "by": note.by, "reason": note.reason}
        ),
    }


def dead_letter_detail(entry: DeadLetterEntry, codec: Codec) -> DeadLetterDetail:
    """Return a dead letter in full."""
    return {**dead_letter_json(entry, codec), "original": original_json(entry, codec)}


def original_json(entry: DeadLetterEntry, codec: Codec) -> DeadLetterOriginal:
    """Return the original: its bytes, and its decoded fields if possible by now; or why it is missing."""
    letter = entry.letter
    shown: DeadLetterOriginal = {
        "key": to_json_value(letter.key or b""),
        "headers": {header.key: to_json_value(header.value) for header in letter.headers},
        "timestamp": format_rfc3339(letter.timestamp_ms),
        "value_hex": None if letter.value is None else letter.value.hex(),
        "type": None,
    }
    if letter.value is None:
        return {**shown, "unreadable": entry.missing_value_reason}
    try:
        decoded = codec.decode(letter.value)
    except Undecodable as error:
        return {**shown, "unreadable": str(error)}
    payload = to_json_value(hide_secrets(decoded.record.to_avro()))
    return {**shown, "type": type(decoded.record).__name__, "payload": payload}


def _not_replayed(reason: str) -> Refused:
    return Refused("command_refused", reason)


def _replay_position(replay: DeadLetterReplayed) -> str:
    return str(Position(topic=replay.topic, partition=replay.partition, offset=replay.offset))
