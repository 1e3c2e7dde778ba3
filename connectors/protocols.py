"""The seams to the outside: what a model, a tool, a blob store and a log look like to loomlog.

One to three methods each. The drivers live beside this file, each with an in-memory twin that ships with the product
and is used by tests and by people who embed loomlog. All of them raise connectors.errors.Transient or Permanent and
nothing else of their own.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, Protocol, runtime_checkable

from msgspec import field

from loomlog.schemas.conversation import Message
from loomlog.schemas.generated.values import BlobRef, Compaction, Sampling, Spawn, ToolCall, Usage
from loomlog.schemas.records import Secretive, Value

# --- models ----------------------------------------------------------------------------------------------------------


class SystemBlock(Value, frozen=True, kw_only=True):
    """A piece of the system prompt; `cacheable` allows the provider to cache up to here."""

    text: str
    cacheable: bool = False


class ToolSpec(Value, frozen=True, kw_only=True):
    """A tool as the model sees it. `input_schema` is a JSON Schema object."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


class ScriptRun(Value, frozen=True, kw_only=True):
    """What a provider is told of the run when it takes that as values (capability metadata_via_input)."""

    run_id: str
    agent: str
    user_id: str
    turn: int
    """Of the model call, from 1."""
    started_at_ms: int
    time_left_ms: int | None = None
    """Until the run's time is over; None leaves the bound to the provider."""
    body: str = ""
    """The agent's script."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    payload_metadata: Mapping[str, str] = field(default_factory=dict)
    """Not trusted: it came with a trigger's body."""


class ModelRequest(Secretive, frozen=True, kw_only=True):
    """One model turn. `call_id` names one attempt of one turn of one run; ids that a driver makes up follow from it."""

    SECRETS: ClassVar[frozenset[str]] = frozenset({"api_key"})

    call_id: str
    model: str
    idempotency_key: str = ""
    """The same for every attempt that asks again for a lost answer, another after an answered failure: a provider that
    honours it then gives the lost answer once more, and never a failure that was to be retried. Empty = call_id."""
    system: Sequence[SystemBlock] = ()
    messages: Sequence[Message] = ()
    tools: Sequence[ToolSpec] = ()
    max_tokens: int = 0
    """0 leaves the bound to the driver."""
    effort: str = ""
    """low, medium, high or empty."""
    sampling: Sampling | None = None
    script: ScriptRun | None = None
    """Set for providers that take the run as values."""
    api_key: str = ""
    """The key to send instead of the driver's own; empty = that one."""

    @property
    def effective_idempotency_key(self) -> str:
        """What drivers send as the idempotency key."""
        return self.idempotency_key or self.call_id


class TextDelta(Value, frozen=True, kw_only=True):
    """The next characters of the answer; `thinking` marks reasoning."""

    text: str
    thinking: bool = False


class Reply(Value, frozen=True, kw_only=True):
    """The whole turn; always the last item of a stream.

    `stop_reason` is end_turn, tool_use, max_tokens or stop_sequence. Tool call ids are unique in the answer; a driver
    makes them up when the provider gives none. `text` equals the text deltas joined.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    stop_reason: str
    usage: Usage
    reasoning: str = ""
    reasoning_signature: str = ""
    model: str = ""
    """The model that answered, when the provider names it more exactly than it was asked."""
    max_context_tokens: int = 0
    """The window this model has just now, where it differs from the provider's capabilities; 0 = it does not."""


ModelItem = TextDelta | Reply


class Capabilities(Value, frozen=True, kw_only=True):
    """What a provider can do (runtime parity 2.2); max_context_tokens 0 = unknown.

    What one model of it can do is a question for loomlog.connectors.models.model_capabilities, which needs no driver.
    """

    native_prompt_cache: bool = False
    parallel_tool_calls: bool = True
    streaming: bool = True
    max_context_tokens: int = 0
    supports_thinking: bool = False
    supports_vision: bool = False
    supports_effort: bool = False
    unbounded_iterations: bool = False
    """A turn is a step of a program, not an answer of a model: the bound of turns does not apply."""
    metadata_via_input: bool = False
    """It reads the run's metadata from its input."""


class Model(Protocol):
    """A provider of models. One object per configured provider; it keeps its connections until `close`."""

    provider: str
    capabilities: Capabilities

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelItem]:
        """The turn as it arrives: deltas, then exactly one Reply. Raises Transient or Permanent at any point.

        Leaving the iteration closes the connection. No retry happens inside: the run decides, so that it is recorded.
        """
        ...

    async def list_models(self) -> list[str]:
        """Names the provider offers; an empty list is not an error."""
        ...

    async def probe(self) -> None:
        """Returns when the provider answers and lets us in. One cheap request within a few seconds, no tokens.

        Raises Transient when it may be back later, Permanent when it will not by itself (no key, wrong key).
        """
        ...

    async def close(self) -> None: ...


# --- tools -----------------------------------------------------------------------------------------------------------


class EffectClass(StrEnum):
    """What may be done about a call whose result is unknown after a crash."""

    PURE = "pure"
    READ = "read"
    IDEMPOTENT = "idempotent"
    UNSAFE = "unsafe"


class VolumeBinding(Value, frozen=True, kw_only=True):
    """A volume as this process sees it: a folder and what may be done there."""

    name: str
    path: str
    mode: str
    """ro or rw."""
    is_default: bool = False


class ToolContext(Secretive, frozen=True, kw_only=True):
    """Everything a tool may know about the run that calls it. Ids come from the run, never from the model."""

    SECRETS: ClassVar[frozenset[str]] = frozenset({"credentials"})

    run_id: str
    session_id: str
    agent_id: str
    agent: str
    tenant: str
    subject: str
    user_id: str
    user_tier: str
    provider: str
    model: str
    tools: tuple[str, ...]
    """The names the run may use."""
    volumes: tuple[VolumeBinding, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    """Hosts the run may reach: the operator's list, already intersected with the caller's. Empty = none."""
    hosts_source: str = "operator_default"
    """caller or operator_default."""
    idempotency_key: str = ""
    """Stable over all attempts of this call; handed to the other side where it takes one."""
    started_at_ms: int = 0
    used_tokens: int = 0
    max_tokens: int = 0
    sampling: Sampling | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    attempt: int = 1
    """Of the call; more than 1 when one before was lost with its process."""
    compaction: Compaction | None = None
    credentials: Mapping[str, str] = field(default_factory=dict)
    """Secrets that came with the run's request, by name; connectors/tools/references.py has that of the bearer.

    For the other side of a call only: never in a result, an error or a log line. What echoes one is masked before it is
    appended."""


class ToolResult(Value, frozen=True, kw_only=True):
    """What the model sees. Errors are results; only Transient/Permanent raised by mistake become one in the runtime."""

    text: str
    is_error: bool = False
    asks_compaction: bool = False
    """The run wants its conversation compacted before its next turn."""
    is_unknown: bool = False
    """Nobody can say whether the call had its effect; an error, and the run's policy for such calls decides."""


class NoEffect(Value, frozen=True, kw_only=True):
    """A lost call had no effect, and cannot have one any more: it may be made again."""

    reason: str = ""


class UnknownEffect(Value, frozen=True, kw_only=True):
    """Nobody knows whether a lost call had its effect."""

    reason: str


class ChildrenPlan(Value, frozen=True, kw_only=True):
    """What a call wants of sub-agents; the fields are those of the event ChildrenPlanned."""

    op: str
    spawns: tuple[Spawn, ...] = ()
    child_run_id: str = ""
    prompt: str = ""
    timeout_ms: int = 0
    idle_ttl_s: int = 0
    residents_max: int = 0
    """Resident children that the run may have, the wanted one included."""


class Tool(Protocol):
    """A tool. Declares its effect class for each input, because HTTP GET and HTTP POST differ."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    timeout_s: float
    """The runtime cancels a call that takes longer and tells the model."""

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass: ...

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Never blocks the event loop. Unusable arguments are an error result that says what was expected."""
        ...


@runtime_checkable
class Reconciler(Protocol):
    """A tool that can be asked what became of a call that was lost with its process. Used for unsafe calls only."""

    async def reconcile(
        self, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolResult | NoEffect | UnknownEffect:
        """What became of the calls made under `context.idempotency_key`. Has no effect of its own; may be asked again.

        A ToolResult is what the lost call would have returned. NoEffect has to be certain, because the call is then
        made again: a request that may still be on its way somewhere is UnknownEffect. Raises as `call`; it is then
        asked again, a few times. It may wait for as long as a call may take, and a little longer.
        """
        ...


@runtime_checkable
class Planner(Protocol):
    """A tool whose calls are carried out by the runtime, as runs: it only says what is wanted."""

    def plan(self, arguments: Mapping[str, Any]) -> ChildrenPlan | ToolResult:
        """Has no effect; unusable arguments are an error result that says what was expected."""
        ...


# --- blobs -----------------------------------------------------------------------------------------------------------


class Blobs(Protocol):
    """Content-addressed store for payloads over the inline limit."""

    async def put(self, data: bytes, media_type: str = "text/plain") -> BlobRef:
        """Durable when it returns. The same bytes again cost nothing and give the same reference."""
        ...

    async def get(self, ref: BlobRef) -> bytes:
        """The bytes, their hash checked. Raises Permanent(not_found) when absent, Permanent(invalid) when altered."""
        ...


# --- the log ---------------------------------------------------------------------------------------------------------


class LogRecord(Protocol):
    """A record as it was read. Structural, so that the driver's own record class is used without copying."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int:
        """Milliseconds since 1970."""
        ...

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes]]: ...


class ProducerRecord(Value, frozen=True, kw_only=True):
    """A record to append."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()


class ConsumerRecord(Value, frozen=True):
    """A record as it was read (protocol LogRecord), where no driver makes one of its own."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]


class LogTail(Protocol):
    """Reads chosen partitions of one topic without a group; the caller keeps the positions."""

    topic: str

    async def poll(self, *, timeout_s: float, max_records: int = 5_000) -> Mapping[int, Sequence[LogRecord]]:
        """What arrived, by partition in offset order; empty when nothing did within the time.

        A broker that is away shows as empty answers, not as an error; positions are kept.
        """
        ...

    def seek(self, partition: int, offset: int) -> None:
        """The next poll of that partition begins at the offset."""
        ...

    async def end_offsets(self) -> Mapping[int, int]:
        """Offset after the last record of each partition. Raises Transient when the broker does not answer."""
        ...

    async def close(self) -> None: ...


class LogAppender(Protocol):
    """Appends to partitions. One object a process; one batch in flight for each partition."""

    async def append(self, topic: str, partition: int, records: Sequence[ProducerRecord]) -> int:
        """Append as ONE batch, all or nothing; the offset of the first record once every replica has it.

        The batch must fit MAX_BATCH_BYTES. Raises UnknownOutcome when it cannot be told whether the batch is in the
        log: an error, a time-out, an offset that makes no sense. Cancelling the wait does not withdraw the batch.
        """
        ...

    async def partitions(self, topic: str) -> int:
        """How many partitions the topic has. Raises Transient when the broker does not answer."""
        ...

    async def close(self) -> None: ...


class LogRange(Protocol):
    """Chunks of a range, in offset order. Used as `async with await ranges.read(...) as chunks: async for ...`."""

    async def __aenter__(self) -> "LogRange": ...
    async def __aexit__(self, *_: object) -> None: ...
    def __aiter__(self) -> "LogRange": ...
    async def __anext__(self) -> Sequence[LogRecord]: ...


class LogRanges(Protocol):
    """Reads ranges of single partitions. Everything raises Transient when the broker does not answer."""

    async def read(self, topic: str, partition: int, start: int, end: int) -> LogRange:
        """Records from `start` up to but not including `end`; one range at a time is open."""
        ...

    async def end_offset(self, topic: str, partition: int) -> int: ...

    async def beginning_offset(self, topic: str, partition: int) -> int: ...


# --- the group -------------------------------------------------------------------------------------------------------


class MemberAssignment(Value, frozen=True, kw_only=True):
    """What one member of a group is to own, and whether it stands by for the others."""

    partitions: frozenset[int]
    is_standby: bool
