"""The operations on the log: topics, partitions, records, events, dead letters and signed checkpoints. Pure.

Before: services/application/operations/__init__.py. After: log_handlers.py carries them out.
"""

from functools import partial
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from loomlog.services.application import limits
from loomlog.services.application.answers.runs import EventList
from loomlog.services.application.log.audits import CHECKPOINTS_MAX
from loomlog.services.application.log.browser import RECORDS_DEFAULT, RECORDS_MAX, TAIL_MAX
from loomlog.services.application.log.dead_letters import LETTERS_DEFAULT, LETTERS_MAX, DeadLetterKind
from loomlog.services.application.log.json_types import (
    CheckpointList,
    DeadLetterDetail,
    DeadLetterList,
    DeadLetterReplay,
    DeadLetterSummary,
    LogPage,
    LogTopicList,
)
from loomlog.services.application.operations.fields import CURSOR_CHARACTERS_MAX, PROCESS_TAG, Cursor, http
from loomlog.services.application.queries.json_types import EventRecord
from loomlog.services.application.queries.partitions import TAKEOVERS_DEFAULT, TAKEOVERS_MAX, PartitionList
from loomlog.services.core.access.rules import own_data, requires
from loomlog.services.core.access.scopes import ADMIN, RUNS_READ
from loomlog.services.core.operations import PRINTABLE, AnyOperation, Effect, Input, NoInput, Operation, Tag

TAG = Tag(name="Log", description="Records of the log.")
DEAD_LETTER_TAG = Tag(name="Dead letters", description="Records that could not be handled, and their replay.")
AUDIT_TAG = Tag(name="Audit", description="Verification of the log against its signed checkpoints.")
OFFSET_DIGITS_MAX = 18
OFFSET_MAX = 10**OFFSET_DIGITS_MAX - 1
PARTITION_MAX = 100_000
Text = Annotated[str, Meta(max_length=256, pattern=PRINTABLE)]
DEAD_LETTER = "/v1/_dead_letters/{offset}"
RANGE = {"since": "from", "until": "to"}
"""The routes call the ends of a range `from` and `to`."""
UNAVAILABLE = "log_unavailable"

# --- fields ----------------------------------------------------------------------------------------------------------

Topic = Annotated[str, Meta(description="Name of the topic.")]
Partition = Annotated[int, Meta(ge=0, le=OFFSET_MAX, description="Number of the partition.")]
Offset = Annotated[int, Meta(ge=0, le=OFFSET_MAX, description="Offset of the record.")]
Type = Annotated[Text, Meta(description="Only this type, for example RunStarted.")]


class LogListPartitions(Input, frozen=True, kw_only=True):
    takeovers: Annotated[
        int, Meta(ge=1, le=TAKEOVERS_MAX, description="Most take-overs of a partition, newest first.")
    ] = TAKEOVERS_DEFAULT


class LogListRecords(Input, frozen=True, kw_only=True):
    topic: Topic
    partition: Partition
    since: Annotated[
        Text, Meta(description="Offset of the first record, or its time (RFC 3339); the newest when absent.")
    ] = ""
    tail: (
        Annotated[int, Meta(ge=1, le=TAIL_MAX, description="Instead of `from`: begin so many offsets before the end.")]
        | UnsetType
    ) = UNSET
    type: Type = ""
    run_id: Annotated[
        str,
        Meta(
            max_length=CURSOR_CHARACTERS_MAX,
            pattern=PRINTABLE,
            description="Only this run, or this aggregate (family:tenant/name).",
        ),
    ] = ""
    limit: Annotated[int, Meta(ge=1, le=RECORDS_MAX, description="Most entries of one answer.")] = RECORDS_DEFAULT
    cursor: Cursor = ""


class LogListEvents(Input, frozen=True, kw_only=True):
    run_id: Annotated[Text, Meta(description="Events of this run.")] = ""
    type: Type = ""
    partition: Annotated[int, Meta(ge=0, le=PARTITION_MAX, description="Number of the partition.")] | UnsetType = UNSET
    since: Annotated[Text, Meta(description="Offset (with partition) or time (RFC 3339), included.")] = ""
    until: Annotated[Text, Meta(description="Offset (with partition) or time (RFC 3339), not included.")] = ""
    limit: Annotated[int, Meta(ge=1, le=limits.EVENTS_MAX, description="Most entries of one answer.")] = (
        limits.EVENTS_DEFAULT
    )
    cursor: Cursor = ""


class LogGetEvent(Input, frozen=True, kw_only=True):
    topic: Topic
    partition: Partition
    offset: Offset


class DeadLettersList(Input, frozen=True, kw_only=True):
    kind: Annotated[DeadLetterKind, Meta(description="Only this kind.")] | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=LETTERS_MAX, description="Most entries of one answer.")] = LETTERS_DEFAULT
    cursor: Annotated[int, Meta(ge=0, le=OFFSET_MAX, description="`next` of an earlier answer.")] | UnsetType = UNSET


class DeadLetterNamed(Input, frozen=True, kw_only=True):
    offset: Offset


class DeadLetterReplayInput(Input, frozen=True, kw_only=True):
    offset: Offset
    again: Annotated[bool | None, Meta(description="true: also if it was replayed before.")] = None


class DeadLetterAcknowledge(Input, frozen=True, kw_only=True):
    offset: Offset
    reason: Annotated[str, Meta(max_length=limits.REASON_CHARACTERS_MAX, description="Kept in the log and shown.")] = ""


class AuditListCheckpoints(Input, frozen=True, kw_only=True):
    limit: Annotated[
        int, Meta(ge=1, le=CHECKPOINTS_MAX, description="Most checkpoints of one partition of a topic.")
    ] = 1


# --- operations ------------------------------------------------------------------------------------------------------

_read = partial(Operation, effect=Effect.READ, tag=TAG, unavailable_code=UNAVAILABLE)
_write = partial(
    Operation, effect=Effect.WRITE, tag=DEAD_LETTER_TAG, access=requires(ADMIN), unavailable_code=UNAVAILABLE
)
LIST_TOPICS = _read(
    name="log.list_topics",
    summary="List the topics of the installation: their partitions with offsets, retention and kind.",
    input=NoInput,
    output=LogTopicList,
    access=requires(ADMIN),
    http=(http(route="GET /v1/_log/topics", id="list_topics"),),
)
LIST_PARTITIONS = _read(
    name="log.list_partitions",
    summary="List the partitions of the events topics: owners, their newest take-overs, ends and cursors.",
    input=LogListPartitions,
    output=PartitionList,
    access=requires(ADMIN),
    tag=PROCESS_TAG,
    unavailable_code="projection_unavailable",
    http=(http(route="GET /v1/_partitions", id="list_partitions"),),
)
LIST_RECORDS = _read(
    name="log.list_records",
    summary="List the records of a partition, decoded, with the class that the reading rule gives each.",
    input=LogListRecords,
    output=LogPage,
    access=requires(ADMIN),
    field_codes={"partition": "not_found"},
    http=(http(route="GET /v1/_log/topics/{topic}/{partition}", id="list_records", names={"since": "from"}),),
)
LIST_EVENTS = _read(
    name="log.list_events",
    summary="List records of the log.",
    input=LogListEvents,
    output=EventList,
    access=own_data(RUNS_READ),
    http=(http(route="GET /v1/events", id="list_events", names=RANGE, refusal_statuses=(404,)),),
)
GET_EVENT = _read(
    name="log.get_event",
    summary="Get a record of the log; `stale` marks one of a fenced owner.",
    input=LogGetEvent,
    output=EventRecord,
    access=own_data(RUNS_READ),
    field_codes={"partition": "not_found", "offset": "not_found"},
    http=(http(route="GET /v1/events/{topic}/{partition}/{offset}", id="get_event"),),
)
LIST_DEAD_LETTERS = _read(
    name="dead_letter.list",
    summary="List dead letters, the newest first.",
    input=DeadLettersList,
    output=DeadLetterList,
    access=requires(ADMIN),
    tag=DEAD_LETTER_TAG,
    http=(http(route="GET /v1/_dead_letters", id="list_dead_letters"),),
)
GET_DEAD_LETTER = _read(
    name="dead_letter.get",
    summary="Get a dead letter with its original.",
    input=DeadLetterNamed,
    output=DeadLetterDetail,
    access=requires(ADMIN),
    tag=DEAD_LETTER_TAG,
    field_codes={"offset": "not_found"},
    http=(http(route=f"GET {DEAD_LETTER}", id="get_dead_letter"),),
)
REPLAY_DEAD_LETTER = _write(
    name="dead_letter.replay",
    summary="Append the original of a dead letter to its commands topic again.",
    input=DeadLetterReplayInput,
    output=DeadLetterReplay,
    field_codes={"offset": "not_found"},
    http=(
        http(
            route=f"POST {DEAD_LETTER}/replay",
            id="replay_dead_letter",
            body_optional=True,
            body_name="ReplayLetterBody",
            example={"again": True},
        ),
    ),
)
ACKNOWLEDGE_DEAD_LETTER = _write(
    name="dead_letter.acknowledge",
    summary="Note that nothing more is needed of a dead letter.",
    input=DeadLetterAcknowledge,
    output=DeadLetterSummary,
    field_codes={"offset": "not_found"},
    http=(
        http(
            route=f"POST {DEAD_LETTER}/acknowledge",
            id="acknowledge_dead_letter",
            body_optional=True,
            body_name="AcknowledgeLetterBody",
            example={"reason": "bytes of a probe that is gone"},
        ),
    ),
)
LIST_CHECKPOINTS = _read(
    name="audit.list_checkpoints",
    summary="List the newest signed checkpoints of each partition, with whether their signature is valid.",
    input=AuditListCheckpoints,
    output=CheckpointList,
    access=requires(ADMIN),
    tag=AUDIT_TAG,
    http=(http(route="GET /v1/_audit/checkpoints", id="list_checkpoints"),),
)
LOG_OPERATIONS: tuple[AnyOperation, ...] = (
    LIST_TOPICS,
    LIST_PARTITIONS,
    LIST_RECORDS,
    LIST_EVENTS,
    GET_EVENT,
    LIST_DEAD_LETTERS,
    GET_DEAD_LETTER,
    REPLAY_DEAD_LETTER,
    ACKNOWLEDGE_DEAD_LETTER,
    LIST_CHECKPOINTS,
)
