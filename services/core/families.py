"""The words of the kit: what a kind of aggregate declares, and what everything else takes from the declaration.

A *family* is one kind of aggregate: pure rules and a declaration, in one folder (services/families/<name>). The generic
loop (services/stream) folds, decides and appends; the shells (api, cli, runtime, projector, auditor) read the registry
(services/families/registry.py). docs/FAMILIES.md adds one step by step.

    Rules           initial, decide, evolve and a version
    Command, Query  what can be recorded and asked; those that are offered become operations (entity_operations.py)
    Reads           where reads are answered
    Send            a command to another aggregate, derived from an event: the outbox
    Item            a fact of an aggregate's history that is a row by itself

Runs are a family of their own kind, with calls and children (services/stream/family.py).

Before: a folder under services/families. After: services/stream/family.py wraps it for the loop.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeVar

from msgspec import field as struct_field

from loomlog.schemas.generated.values import CommandEnvelope, Envelope
from loomlog.schemas.records import Value
from loomlog.services.core.access.scopes import TENANT
from loomlog.services.core.endpoints import Endpoint
from loomlog.services.core.event_types import EventType
from loomlog.services.core.operations import AnyOperation, Tool

StateT = TypeVar("StateT")
CommandT = TypeVar("CommandT")
EventT = TypeVar("EventT")

NAME_BYTES_MAX = 512
"""Longest id of an aggregate within its tenant: it is the key of every record and of its row."""
STATE_BYTES_MAX = 600_000
"""Largest encoded state: it must fit one record as a snapshot, and one row that is read in a millisecond."""
ENTITY_SET = "entity"
"""Topic set of families whose events are kept for ever: loom.entity.{commands,events,checkpoints}."""
CHANNEL_SET = "channel"
"""Topic set of families whose old events are deleted (decision 42): loom.channel.{commands,events,checkpoints}."""
TOPIC_SETS = (ENTITY_SET, CHANNEL_SET)
INSTALLATION = "installation"
"""Id of the one aggregate of a family that belongs to no tenant."""


class At(Value, frozen=True):
    """When and for whom a command is decided. `at_ms` is UTC milliseconds by the owner's clock."""

    at_ms: int
    caller: str = ""
    """Subject of the principal or name of the service that sent the command; empty for a timer."""
    command_id: str = ""


class TimerFired(Value, frozen=True):
    """The time that `next_timer_ms` named has come."""


TIMER_FIRED = TimerFired()


def never(state: Any) -> bool:
    """`is_over` of a family whose aggregates never end."""
    return False


def no_timer(state: Any) -> int:
    """`next_timer_ms` of a family without timers."""
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules(Generic[StateT, CommandT, EventT]):
    """The pure rules of a family."""

    state: Any
    """Type of the state, or a union: what the codec decodes."""
    initial: Callable[[str], StateT]
    """State of an aggregate without events, by its full id."""
    decide: Callable[[StateT, CommandT, At], Sequence[EventT]]
    """Events that follow a command; none when nothing changes. May be given TIMER_FIRED too, if there are timers."""
    evolve: Callable[[StateT, EventT, int], StateT]
    """State after an event that was decided at that time (UTC milliseconds)."""
    version: int
    """Version of the fold: raise it whenever the same events fold to another state."""
    is_over: Callable[[StateT], bool] = never
    """Whether nothing can happen in the aggregate any more."""
    next_timer_ms: Callable[[StateT], int] = no_timer
    """When TIMER_FIRED is to be decided, UTC milliseconds; 0: never."""


class Reads(Enum):
    """Where reads of a family are answered."""

    INDEXED = "indexed"
    """From its rows in Postgres; aggregates rest there when nothing happens in them."""
    REPLICATED = "replicated"
    """From memory: every process folds the whole family, which is therefore small."""


class StateFiles(Enum):
    """How a state file has a family, and a restore brings it back (decision 60)."""

    EVENTS = "events"
    """Each aggregate with all its events; a restore imports those that are not here."""
    SECTION = "section"
    """In a section of its own form, such as `pauses`, which a restore compares with what is here."""
    LEFT_OUT = "left out"
    """Not at all: export and restore say how many aggregates that are."""


class Erasure(Enum):
    """What becomes of a family's content when its subject is erased."""

    KEYS = "keys"
    """It is encrypted with keys of `content_subject`, and unreadable without them."""
    NOTHING = "nothing"
    """No command of it has content."""


class Audit(Enum):
    """What the auditor's signatures prove of a family's events."""

    WHOLE = "whole"
    """Every event since the first one."""
    WHILE_KEPT = "while kept"
    """Those that the retention of their topic has not deleted."""


class Rebuild(Enum):
    """What a family's rows are made from when their form changes."""

    EVENTS = "events"
    """All events, from the first one."""
    ROWS = "rows"
    """The rows before, because old events are deleted: the family reads the states of its earlier versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """How a family takes part in what is done with all of them. Nothing has a default: each family says it."""

    state_files: StateFiles
    erasure: Erasure
    audit: Audit
    rebuild: Rebuild


WHOLE_HISTORY = Lifecycle(
    state_files=StateFiles.EVENTS, erasure=Erasure.KEYS, audit=Audit.WHOLE, rebuild=Rebuild.EVENTS
)
"""Lifecycle of a family with content whose events are kept for ever."""


def last_fields(events: Sequence[Any]) -> Mapping[str, Any]:
    """Reply with the fields of the last event."""
    return {name: getattr(events[-1], name) for name in events[-1].__struct_fields__} if events else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Generic[CommandT]):
    """A command of a family. Its operation takes the fields of the record but its envelope."""

    record: type[CommandT]
    verb: str
    """One word, lower case: the name of the operation in every transport."""
    summary: str
    """A sentence that says what it does."""
    aggregate: Callable[[CommandT], str]
    """Id, within the tenant, of the aggregate that it is for; 1 to NAME_BYTES_MAX bytes, printable."""
    scope: str
    """Scope of access that a caller needs (services/core/access/scopes.py)."""
    reply: Callable[[Sequence[Any]], Mapping[str, Any]] = last_fields
    """The answer, from the events of the decision alone, so that a repeated command gets the same one."""
    in_tool: bool = True
    """Whether agents may give it."""
    in_transports: bool = True
    """Whether HTTP and the command line offer it; False for one with an adapter of its own, or for an inner one."""


def inner_commands(aggregate: Callable[[Any], str]) -> Callable[[type[Any], str, str], Command[Any]]:
    """Return a maker of commands that no transport offers; it takes record, verb and summary.

    `aggregate` names the aggregate that a command is for.
    """

    def inner_command(record: type[Any], verb: str, summary: str) -> Command[Any]:
        return Command(
            record=record,
            verb=verb,
            summary=summary,
            aggregate=aggregate,
            scope=TENANT,
            in_tool=False,
            in_transports=False,
        )

    return inner_command


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(Generic[StateT]):
    """A question about one aggregate: GET /v1/_<family>/<verb>?id=..., besides `ls` and `show`, which all have."""

    verb: str
    summary: str
    scope: str
    answer: Callable[[StateT, Mapping[str, str]], Mapping[str, Any]]
    """From the state, and the further parameters by name."""
    parameters: Sequence[str] = ()
    in_tool: bool = True


def caller_of(command: Any) -> str:
    """`content_subject` of a family whose content is that of the caller."""
    return str(command.envelope.subject)


class Send(Value, frozen=True, kw_only=True):
    """A command to an aggregate of another partition, perhaps of another family.

    The envelope of `command` is filled in by the outbox: command id `<aggregate>:<seq>:<number>`, the tenant of the
    aggregate, the time of the event.
    """

    to: str
    """Name of the family; or of a receiver in the process that owns the aggregate, for what is no record."""
    command: Any
    credentials_env: Mapping[str, str] = struct_field(default_factory=dict)
    """Credentials of a run that is started: name -> environment variable with the value, or $cred:<name> of a stored
    one, which the sender puts beside the log before the command is sent.
    """


FROM_OUTBOX = CommandEnvelope(command_id="")
"""Envelope of the command of a Send, which the outbox replaces."""


def no_sends(state: Any, event: Any) -> Sequence[Send]:
    """`sends` of a family without an outbox."""
    return ()


class Item(Value, frozen=True, kw_only=True):
    """A fact of an aggregate's history that is found by itself, such as a version: a row of `entity_items`.

    Texts but the document can be printed; keys have at most NAME_BYTES_MAX bytes, an id has ITEM_ID_BYTES_MAX.
    """

    kind: str
    """A word of the family, such as `version`: lower-case letters and _."""
    id: str
    """Unique within family, tenant and kind, over all aggregates. The same id again replaces the row."""
    key_a: str = ""
    """What the row is looked up by, such as the run that was judged; empty: it is not."""
    key_b: str = ""
    number: float | None = None
    """What rows are summed up by, such as a score; finite."""
    document: str = ""
    """JSON text of at most STATE_BYTES_MAX bytes; empty: the row is removed."""
    kept_ms: int = 0
    """How long the row is kept after its event; 0: until an event removes it."""


ITEMS_MAX = 200
"""Most items of one event: they are written in one statement, below projections/engine/writer.py::COPY_FROM_ROWS."""
ITEM_ID_BYTES_MAX = 2_100
"""Longest id of an item. An entry of Postgres' index has 2,704 bytes, with those of family, tenant and kind."""
ITEM_KIND = re.compile(r"[a-z][a-z_]{0,39}\Z")


def no_items(state: Any, event: Any, envelope: Envelope) -> Sequence[Item]:
    """`items` of a family whose rows are its aggregates alone."""
    return ()


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


ITEM_DOCUMENTS = json.JSONDecoder(parse_constant=_refuse_constant)


def items_problem(items: Sequence[Item]) -> str:
    """Return what is wrong with the items of an event; empty when nothing is."""
    if len(items) > ITEMS_MAX:
        return f"there are {len(items)} items: an event has at most {ITEMS_MAX}"
    return next(filter(None, map(_item_problem, items)), "")


def _item_problem(item: Item) -> str:
    if not ITEM_KIND.match(item.kind):
        return f"the kind {item.kind[:80]!r} of an item must be a word of a to z and _"
    for field_name in ("id", "key_a", "key_b"):
        text: str = getattr(item, field_name)
        bytes_max = ITEM_ID_BYTES_MAX if field_name == "id" else NAME_BYTES_MAX
        if (text or field_name == "id") and (problem := name_problem(text, bytes_max)):
            return f"the {field_name} of the {item.kind} {item.id[:80]!r} {problem}"
    if item.number is not None and not math.isfinite(item.number):
        return f"the number of the {item.kind} {item.id[:80]!r} must be finite, not {item.number}"
    if item.document:
        try:
            size = len(item.document.encode())
            ITEM_DOCUMENTS.decode(item.document)
        except (ValueError, RecursionError) as error:
            return f"the document of the {item.kind} {item.id[:80]!r} is no JSON text: {error}"
        if size > STATE_BYTES_MAX:
            return f"the document of the {item.kind} {item.id[:80]!r} has {size} bytes: at most {STATE_BYTES_MAX}"
    return ""


Refill = MutableMapping[str, Any]
"""Commands by what they bring back, such as a key."""


def no_refill(commands: Refill, event: Any, now_ms: int) -> None:
    """`refill` of a family whose aggregates stay as they are when a state file has them too."""


def as_view(state: Any) -> Any:
    """Show a state as it is; the shells turn it into JSON."""
    return state


def not_of_starts(tenant: str) -> Sequence[str]:
    """`of_starts` of a family that decides nothing about new runs."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Family(Generic[StateT, CommandT, EventT]):
    """The declaration of a family."""

    name: str
    """Lower case, letters only: the prefix of the ids of its aggregates, and its name in every transport."""
    summary: str
    """A sentence that says what an aggregate of it is."""
    rules: Rules[StateT, CommandT, EventT]
    lifecycle: Lifecycle
    commands: Sequence[Command[Any]] = ()
    queries: Sequence[Query[StateT]] = ()
    scope: str = ""
    """Scope of access for `ls` and `show`; empty: no transport offers them."""
    view: Callable[[StateT], Any] = as_view
    """What `ls` and `show` show of a state: a mapping, or a Value."""
    tool: str = ""
    """Name of the tool of agents; empty: none."""
    content_subject: Callable[[Any], str | None] = caller_of
    """User whose key encrypts the content of a command; None: it has no subject, and stays in clear. It is asked of
    commands with content only.

    The schemas say what is content. The handler encrypts it before it decides, so events and states hold ciphertext
    wherever they copy it; the edge decrypts every text of an answer that is a token.
    """
    reads: Reads = Reads.INDEXED
    sends: Callable[[StateT, EventT], Sequence[Send]] = no_sends
    """Commands that follow from an event, whatever the state is: after a takeover it may be a later one. The state is
    for what was never part of the event, such as a template."""
    items: Callable[[StateT, EventT, Envelope], Sequence[Item]] = no_items
    """Rows that follow from an event, given the state after it; pure. Raise `rules.version` when the same events give
    others. The envelope is that of the event: of an imported one, where it happened first."""
    operations: Sequence[AnyOperation] = ()
    """What transports and tools offer of it, in the order in which routes are matched."""
    endpoints: Sequence[Endpoint] = ()
    """What HTTP offers of it besides, in the order in which routes are matched."""
    event_types: Sequence[EventType] = ()
    """Events that clients subscribe to."""
    tools: Sequence[Tool] = ()
    """Tools of agents that are made of operations."""
    api: str = ""
    """Module with OPERATIONS and TOOLS, of a family whose operations take long to import, which the command line does
    at its start; empty: the two fields above have them.
    """
    services: str = ""
    """Module that opens its services in a process (services/families/opening.py); empty: it has none."""
    start_check: str = ""
    """Module with `find_start_problems(loaded, environ)`, which yields the places and texts of what in a configuration
    would end the start of a process (services/families/process_start.py); empty: nothing would.
    """
    kept_ms: Mapping[str, int] = field(default_factory=dict)
    """How long it keeps rows that go at some time, by what people call them."""
    topics: str = ENTITY_SET
    """Name of its topic set, one of TOPIC_SETS."""
    of_starts: Callable[[str], Sequence[str]] = not_of_starts
    """Ids of the aggregates of a replicated family that decide about new runs of a tenant: a start is decided by an
    owner that has read them as far as the process that sends it."""
    note_run_end: type[Any] | None = None
    """Command that tells an aggregate that a run which it started has ended; None: it starts none."""
    refill: Callable[[Refill, EventT, int], None] = no_refill
    """Given each event of an aggregate in a state file, in order, and the time: keeps the commands that give an
    aggregate which is here already what it lacks of the file. The restore fills in their envelopes."""


def aggregate_id(family: str, tenant: str, name: str) -> str:
    """Return the full id of an aggregate: `<family>:<tenant>/<name>`. Families with the same tenant and name share a
    partition, because the key of their records is the part after the colon.
    """
    return f"{family}:{tenant}/{name}"


def aggregate_key(full_id: str) -> bytes:
    """Return the key of the records of an aggregate of the entity topics."""
    return full_id.partition(":")[2].encode()


def name_in_tenant(full_id: str, tenant: str) -> str:
    """Return the id of an aggregate within its tenant."""
    return full_id.partition(":")[2].removeprefix(f"{tenant}/")


def name_problem(name: str, bytes_max: int = NAME_BYTES_MAX) -> str:
    """Return what is wrong with the id of an aggregate within its tenant; empty when nothing is."""
    size = len(name.encode("utf-8", "surrogatepass"))
    if not 0 < size <= bytes_max:
        return f"has {size} bytes: expected 1 to {bytes_max}"
    return "" if name.isprintable() else "has characters that cannot be printed"


def installation_family(
    *,
    name: str,
    summary: str,
    rules: Rules[Any, Any, Any],
    state_files: StateFiles,
    commands: Mapping[type[Any], tuple[str, str]],
    operations: Sequence[AnyOperation] = (),
    services: str = "",
    is_of_starts: bool = False,
) -> Family[Any, Any, Any]:
    """Return a family with one aggregate of the whole installation, which every process has in memory.

    `commands`: verb and summary of each record. `is_of_starts`: whether the aggregate decides about new runs.
    """
    command = inner_commands(lambda record: INSTALLATION)
    decisive = (installation_aggregate(name),) if is_of_starts else ()
    return Family(
        name=name,
        summary=summary,
        rules=rules,
        lifecycle=Lifecycle(
            state_files=state_files, erasure=Erasure.NOTHING, audit=Audit.WHOLE, rebuild=Rebuild.EVENTS
        ),
        of_starts=lambda tenant: decisive,
        commands=tuple(command(record, *texts) for record, texts in commands.items()),
        reads=Reads.REPLICATED,
        operations=operations,
        services=services,
    )


def installation_aggregate(family: str) -> str:
    """Return the id of the aggregate of a family that has one of the whole installation."""
    return aggregate_id(family, "", INSTALLATION)
