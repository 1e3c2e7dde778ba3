"""The topics of the installation and their records, page by page, for operators.

A page reads one partition, from an offset, from a time, or the last records of it. Its work is bounded by SCANNED_MAX
records, VALUE_BYTES_MAX bytes of the records it shows and SCAN_S seconds; it then ends early, with a cursor. Contents
are decrypted as in the audit view, and content of erased subjects stays erased.

Not chosen: pages over all partitions. Offsets of different partitions have no order, and a page would scan all of them.

Before: services/application/operations/log_handlers.py. After: records.py, services/application/queries/log_window.py.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from loomlog.redpanda.topics import ExistingTopic, Topic
from loomlog.schemas.codec import Codec
from loomlog.services.application.content import ContentAccess
from loomlog.services.application.log.access import LogAccess
from loomlog.services.application.log.json_types import LogPage, LogPartition, LogTopic, LogTopicList
from loomlog.services.application.log.records import RecordClassifier, RecordView, has_terms, record_json
from loomlog.services.application.queries.log_pages import LogCursor, LogReadQueue, foreign_cursor
from loomlog.services.application.queries.log_window import LogWindow
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused

RECORDS_DEFAULT = 50
RECORDS_MAX = 500
"""Maximum records of a page."""
TAIL_MAX = 100_000
"""Maximum distance from the end at which a page may begin."""
SCANNED_MAX = 20_000
"""Maximum records read for a page; most of them are passed over by a filter."""
VALUE_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of records after which a page ends: a record may have a megabyte, and its JSON is larger."""
SCAN_S = 2.0
"""Seconds of reading after which a page ends."""
UNLIMITED = "-1"
"""Setting of a retention that deletes nothing."""
COMPACT = "compact"
KINDS = {"deltas": "previews", "dead-letter": "dead_letters", "runs": "totals"}
"""Kinds of topics that are not named like the last part of their name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordQuery:
    """Records of a partition: from `from_offset` or `from_ms` on, or the last `tail`; without any, the newest."""

    topic: str
    partition: int
    from_offset: int | None = None
    from_ms: int | None = None
    tail: int | None = None
    type: str = ""
    """Short or full name of the record."""
    run_id: str = ""
    """Id of a run, or full id of an aggregate."""
    limit: int = RECORDS_DEFAULT
    cursor: str = ""


class LogBrowser:
    """Reads topics for administrators. Everything raises Refused(log_unavailable)."""

    def __init__(
        self, access: LogAccess, codec: Codec, content: ContentAccess, reads: LogReadQueue, *, prefix: str
    ) -> None:
        self._access, self._codec, self._content, self._reads = access, codec, content, reads
        self._topics = {topic.name: topic for topic in access.required_topics}
        self._prefix = prefix

    async def topics(self, caller: Caller) -> LogTopicList:
        """Return all topics with their partitions and settings. Raises Refused(backpressure) too."""
        async with self._reads.slot(caller):
            existing = await self._access.existing_topics(list(self._topics))
            places = [(topic.name, number) for topic in existing.values() for number in range(topic.partitions)]
            offsets = await self._access.ranges.boundary_offsets(places)
        listed = []
        for topic in self._topics.values():
            count = existing[topic.name].partitions if topic.name in existing else 0
            partitions = [_partition_json(number, *offsets[topic.name, number]) for number in range(count)]
            listed.append(topic_json(topic, existing.get(topic.name), partitions))
        return {"topics": listed}

    async def records(self, caller: Caller, query: RecordQuery) -> LogPage:
        """Return a page of records. Raises Refused: not_found, bad_request, backpressure too."""
        topic = self._full_name(query.topic)
        async with self._reads.slot(caller):
            await self._check_partition(topic, query.partition)
            window = LogWindow(self._access.ranges, self._codec, topic)
            beginning, end = (await self._access.ranges.boundary_offsets([(topic, query.partition)]))[
                topic, query.partition
            ]
            start, term = await self._start(query, window, beginning, end)
            views, scanned, cursor = await self._scan(query, window, LogCursor(query.partition, start, term), end)
        shown = [replace(view, payload=await self._content.decrypt(dict(view.payload), view.tenant)) for view in views]
        return {
            "topic": topic,
            "partition": query.partition,
            "beginning_offset": beginning,
            "end_offset": end,
            "records": [record_json(view) for view in shown],
            "scanned": scanned,
            "next": cursor.encode() if cursor.offset < end else None,
            "next_offset": cursor.offset,
        }

    def _full_name(self, name: str) -> str:
        """Return a topic's name, which may lack the prefix. Raises Refused(not_found)."""
        for full in (name, f"{self._prefix}.{name}"):
            if full in self._topics:
                return full
        raise Refused("not_found", f"there is no topic {name[:140]}; GET /v1/_log/topics lists them")

    async def _check_partition(self, topic: str, partition: int) -> None:
        count = await self._access.count_partitions(topic)
        if partition >= count:
            has = f"it has partitions 0 to {count - 1}" if count else "the broker does not have this topic"
            raise Refused("not_found", f"there is no partition {partition} of {topic}: {has}")

    async def _start(self, query: RecordQuery, window: LogWindow, beginning: int, end: int) -> tuple[int, int]:
        """Return the offset to begin at and the term in force there."""
        if query.cursor:
            at = LogCursor.parse(query.cursor)
            if at.partition != query.partition:
                raise foreign_cursor()
            return max(beginning, min(at.offset, end)), at.term
        if query.from_ms is not None:
            start = await self._access.ranges.offset_at(window.topic, query.partition, query.from_ms)
        elif query.from_offset is not None:
            start = query.from_offset
        else:
            start = end - (query.limit if query.tail is None else query.tail)
        start = max(beginning, min(start, end))
        is_searched = has_terms(window.topic) and start < end
        return start, await window.term_before(query.partition, start) if is_searched else -1

    async def _scan(
        self, query: RecordQuery, window: LogWindow, start: LogCursor, end: int
    ) -> tuple[list[RecordView], int, LogCursor]:
        """Return the matching records, the count of records read, and where the following page begins."""
        classifier = RecordClassifier(window.topic, term=start.term, next_offset=start.offset, codec=self._codec)
        needle = query.run_id.encode()
        type_name = query.type.rpartition(".")[2]
        deadline = asyncio.get_running_loop().time() + SCAN_S
        views: list[RecordView] = []
        scanned = size_bytes = 0
        async with aclosing(window.records(start.partition, start.offset, end)) as records:
            async for record in records:
                scanned += 1
                # An id is in the bytes of its records as it is; to decode the others would cost most of the scan.
                if needle and needle not in (record.value or b""):
                    classifier.pass_over(record)
                else:
                    view = classifier.classify(record)
                    if (not needle or view.run_id == query.run_id) and (not type_name or view.type == type_name):
                        views.append(view)
                        size_bytes += view.size_bytes
                is_full = len(views) >= query.limit or size_bytes >= VALUE_BYTES_MAX
                if is_full or scanned >= SCANNED_MAX or asyncio.get_running_loop().time() >= deadline:
                    return views, scanned, LogCursor(start.partition, record.offset + 1, classifier.term)
        return views, scanned, LogCursor(start.partition, end, classifier.term)


def topic_json(topic: Topic, existing: ExistingTopic | None, partitions: Sequence[LogPartition]) -> LogTopic:
    """Return a topic with the settings that the broker has; those of topics.yaml when it does not have the topic."""
    settings = topic.settings if existing is None else existing.settings
    last = topic.name.rpartition(".")[2]
    return {
        "name": topic.name,
        "kind": KINDS.get(last, last),
        "about": topic.about,
        "has_terms": has_terms(topic.name),
        "is_compacted": COMPACT in settings.get("cleanup.policy", ""),
        "retention_ms": _retention(settings, "retention.ms"),
        "retention_bytes": _retention(settings, "retention.bytes"),
        "replicas": 0 if existing is None else existing.replicas,
        "offsets": sum(one["offsets"] for one in partitions),
        "partitions": list(partitions),
    }


def _partition_json(number: int, beginning: int, end: int) -> LogPartition:
    return {"partition": number, "beginning_offset": beginning, "next_offset": end, "offsets": end - beginning}


def _retention(settings: Mapping[str, str], name: str) -> int | None:
    """Return a limit after which records are deleted; None when there is none, as in a topic that is compacted only."""
    if "delete" not in settings.get("cleanup.policy", ""):
        return None
    value = settings.get(name, UNLIMITED)
    return None if value == UNLIMITED else int(value)
