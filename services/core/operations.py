"""An operation: what people, programs and agents do, declared once and served by every transport.

    Operation     name, records of input and answer, access, effect, and where it is served
    Http          a route of it: POST /v1/_channels/{channel:path}/publish
    ToolOperation the `op` of a tool of agents
    OperationCaller, Call, Answer     what its handler gets and returns, whichever transport asked

A declaration is pure data: api, runtime, command line and documents read it without what carries it out. A handler is
found by the operation's name in the services of its family, opened once in each process.

    transport -> dispatch: access, input, tenant, ids of commands -> handler -> answer or refusal -> transport

Input is a msgspec record whose fields say their bounds and have a sentence each. Unknown fields are refused. Answers
are records too; a field that is absent is UNSET.

Before: api.py of each family declares. After: services/application/dispatch.py for requests,
services/runtime/tools/operation_tools.py for calls of agents.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct
from msgspec import field as struct_field

from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.rules import Access
from loomlog.services.core.access.scopes import ADMIN, TENANT
from loomlog.services.core.error_codes import STATUS_BY_CODE
from loomlog.services.core.refusals import Refused

PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f]*$"
"""Pattern of texts that can be printed."""
PRINTABLE_WITH_TABS = r"^[^\x00-\x08\x0a-\x1f\x7f-\x9f]*$"
ADMINISTRATIVE = frozenset({ADMIN, TENANT})
"""Scopes whose holders act for others."""
InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")


class Effect(Enum):
    """What a repeated operation does."""

    READ = "read"
    """Nothing."""
    WRITE = "write"
    """What the first one did, once: it carries the same command id."""
    WAIT = "wait"
    """As a write, and it may wait for a long time first."""


class Input(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields that an operation takes."""


class Output(Struct, frozen=True, kw_only=True):
    """The fields of an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields(Generic[InputT]):
    """The fields of an operation whose input is no Input, such as a command of the log (command_fields.py)."""

    schema: Mapping[str, Any]
    """JSON schema of an object, its parts written out."""
    parse: Callable[[Any], InputT]
    """Returns the input with these fields, of JSON. Raises ValueError with a sentence that names the field."""
    model: type[InputT] | None = None
    """The class that the schema is made from; documents name it. None: there is none."""


class NoInput(Input, frozen=True, kw_only=True):
    """An operation without fields."""


class NoOutput(Output, frozen=True, kw_only=True):
    """An answer that says only that it is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """A group of operations in documents."""

    name: str
    description: str


class Routed:
    """What has a `route`: method and path, such as `GET /v1/_me`."""

    __slots__ = ()
    route: str

    @property
    def method(self) -> str:
        return self.route.partition(" ")[0]

    @property
    def path(self) -> str:
        return self.route.partition(" ")[2]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Http(Routed):
    """A route of an operation. Path parameters have the names of input fields; those of GET and DELETE are in the
    query, others in the body.
    """

    route: str
    """Method and path, such as `POST /v1/_channels/{channel:path}/publish`."""
    id: str = ""
    """Id in the OpenAPI document; empty: the name of the operation with _ for dots."""
    summary: str = ""
    """Empty: that of the operation."""
    access: Access | None = None
    """None: that of the operation."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Input fields that the path, the query or the body calls otherwise, with that name."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Fields that the route sets."""
    without: Sequence[str] = ()
    """Fields that the route does not take."""
    op: str = ""
    """Value of the body's field `op`, on a route that several operations share; empty: the route is its own. Such a
    route is described by the first of its operations.
    """
    query: Sequence[str] = ()
    """Fields of the query, of a route whose other fields are in the body."""
    whole_body: str = ""
    """The field that is the whole body; empty: the body is an object of fields."""
    body_optional: bool = False
    body_bytes_max: int = 1024 * 1024
    """Largest body; 0: as large as the process takes (LOOMLOG_MAX_REQUEST_BYTES)."""
    parts_escaped: bool = False
    """Whether slashes within path parameters are escaped, so that they end at the next plain one."""
    takes_tenant: bool = True
    """Whether administrators may name a tenant in the query."""
    codes: Mapping[str, str] = field(default_factory=dict)
    """Codes that refuse a body or a field of this route, for the general ones such as bad_request."""
    status: int = 200
    """204: an answer without a body."""
    alternative_status: int = 0
    """Status of some answers; 0: there is none."""
    takes_alternative: Callable[[Mapping[str, Any]], bool] | None = None
    """Whether a request with these fields of the input is answered with the alternative status."""
    body_name: str = ""
    """Name of the body's schema in the OpenAPI document; empty: that of the input record."""
    output: type[Any] | None = None
    """Record of the answer of this route, which `answer` makes; None: that of the operation."""
    answer: Callable[[Any], Any] | None = None
    headers: Callable[[Any], Mapping[str, str]] | None = None
    """Headers that follow from the answer of the handler."""
    example: Mapping[str, Any] | None = None
    """A body, for the OpenAPI document."""
    refusal_statuses: Sequence[int] = ()
    """Statuses of refusals beyond those that every operation of its form has."""
    recognises_key: bool = False
    """Whether the owner of what the path names refuses another body under a used Idempotency-Key by itself."""
    opens_with_public_config: bool = False
    """Whether it answers requests without a token too where LOOMLOG_PUBLIC_CONFIG is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOperation:
    """An operation of a tool of agents: `{"op": <op>, ...fields}`."""

    tool: str
    op: str
    without: Sequence[str] = ()
    """Fields that an agent cannot give."""
    answer: Callable[[Any], Any] | None = None
    """What the model sees of the answer; None: all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpTool:
    """A tool of the MCP server: this operation, or one of its `op`."""

    tool: str
    op: str = ""
    """Empty: the tool is this operation alone."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Input fields that the tool calls otherwise, with that name."""
    without: Sequence[str] = ()
    """Fields that the tool does not take."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Fields that the tool sets."""
    answer: Callable[[Any], Any] | None = None
    """What the client gets of the answer; None: all of it."""
    is_default: bool = False
    """Whether it is meant by a call that names no `op`."""
    has_own_tenant: bool = False
    """Whether the field `tenant` is the caller's own unless the call names another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool of agents, of the operations that name it."""

    name: str
    description: str
    usage_hint: str = ""
    is_ordered: bool = True
    """Calls of one turn are made one after the other."""
    unknown_op_code: str = "invalid_request"
    """Code of the refusal of another `op`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operation(Generic[InputT, OutputT]):
    """The declaration. Its name is its identity: two with one name are equal."""

    name: str
    """`<family>.<verb>`, unique: id in logs, metrics, MCP and gRPC."""
    summary: str
    """A sentence that says what it does."""
    input: type[InputT] | Fields[InputT]
    output: type[OutputT]
    access: Access
    effect: Effect
    tag: Tag | None = None
    http: Sequence[Http] = ()
    tool: ToolOperation | None = None
    mcp: Sequence[McpTool] = ()
    """Tools of the MCP server, besides the one that has the name of `tool` in lower case."""
    invalid_code: str = "bad_request"
    """Code of the refusal of a field."""
    field_codes: Mapping[str, str] = field(default_factory=dict)
    """Codes of the refusals of some fields."""
    spans_tenants: bool = False
    """Administrators who name no tenant ask about all of them: `tenant` of their call is empty."""
    missing_code: str = ""
    """Code for a field that is needed and absent or null; empty: invalid_code."""
    missing_codes: Mapping[str, str] = field(default_factory=dict)
    """Codes for some fields that are missing or null."""
    unknown_code: str = ""
    """Code for a field that there is not; empty: invalid_code."""
    unavailable_code: str = ""
    """Code when log, rows or keys do not answer; empty: `<family>_unavailable`, where there is such a code."""
    pending_code: str = "command_pending"
    """Code when nothing has answered, and a write may still be carried out."""
    is_act: bool | None = None
    """Whether the audit has it as an act of its caller; None: if it changes something, and its access is that of
    operators or administrators.
    """
    secret_fields: Sequence[str] = ()
    """Fields that the record of an act does not have."""
    refused: Callable[[Refused], Refused] | None = None
    """Returns a refusal of it, its input's included, as requests see it; None: as it is."""

    @property
    def family(self) -> str:
        return self.name.partition(".")[0]

    @property
    def records_act(self) -> bool:
        """Whether requests for it are acts (services/families/act/recording.py)."""
        if self.is_act is not None:
            return self.is_act
        return self.effect is not Effect.READ and not ADMINISTRATIVE.isdisjoint(self.access.scopes)

    @property
    def code_when_unavailable(self) -> str:
        """Code of the refusal when what the operation needs does not answer."""
        code = self.unavailable_code or f"{self.family}_unavailable"
        return code if code in STATUS_BY_CODE else "outside_unavailable"

    @property
    def codes(self) -> tuple[str, ...]:
        """Codes of the refusals that follow from the declaration (error_codes.py); a handler has further ones."""
        codes = {"bad_request", self.invalid_code, self.code_when_unavailable}
        codes |= {code for http in self.http for code in http.codes.values()} | set(self.field_codes.values())
        codes |= {code for code in (self.missing_code, self.unknown_code, *self.missing_codes.values()) if code}
        if self.http:
            codes |= {"unauthorized", "insufficient_scope"}
        if self.effect is not Effect.READ:
            codes |= {self.pending_code} | ({"idempotency_key_reused"} if self.http else set())
        return tuple(sorted(codes))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Operation) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


AnyOperation = Operation[Any, Any]


class Origin(Enum):
    """Where an operation comes from."""

    REQUEST = "a request"
    AGENT = "a tool call of a run"
    SYSTEM = "the runtime"


class CallingRun(Protocol):
    """The run of an agent's call: what it knows of itself, never what a model says (connectors/protocols.py)."""

    @property
    def run_id(self) -> str: ...
    @property
    def root_run_id(self) -> str: ...
    @property
    def session_id(self) -> str: ...
    @property
    def agent_id(self) -> str: ...
    @property
    def agent(self) -> str: ...
    @property
    def agent_def_id(self) -> str:
        """Version of the agent's definition; empty: a configuration file has it."""
        ...

    @property
    def tool_grants(self) -> tuple[str, ...]: ...
    @property
    def allowed_hosts(self) -> tuple[str, ...]: ...
    @property
    def hosts_source(self) -> str: ...
    @property
    def user_tier(self) -> str: ...
    @property
    def grants(self) -> Mapping[str, Any]:
        """Fields of values.AgentGrants."""
        ...

    @property
    def operator_key_restricted(self) -> bool: ...


class OperationCaller(Struct, frozen=True, kw_only=True):
    """Caller of an operation: the principal of a request, or the run of an agent and the user it is for."""

    tenant: str
    """The tenant it is about: an administrator may have named another one than its own. Empty: all of them."""
    is_tenant_named: bool = False
    """Whether the request names the tenant."""
    subject: str
    """Subject of the principal."""
    origin: Origin
    name: str = ""
    """Name of the principal's token."""
    principal: Caller | None = None
    """The principal of a request; None in runs."""
    user_id: str = ""
    run: CallingRun | None = None
    """None outside of runs."""
    turn: int = 0
    call: int = 0
    """Index of the tool call in its turn."""
    is_admin: bool = False
    is_isolated: bool = False
    """Whether it is confined to its own subject."""
    is_for_isolated: bool = False
    """Whether a run acts for a user who is: what it defines is confined to that user, though its principal is not."""
    acts_for_all: bool = False
    """It has the shared token, or no token is needed: what it makes belongs to no tenant where that is possible."""
    operator_key_restricted: bool = False
    """Its runs may not use the operator's provider keys."""
    positions: tuple[str, ...] = ()
    """Position tokens of earlier writes: reads include them."""


class Change(Struct, kw_only=True):
    """What an act has changed, as its handler tells the audit: JSON, or records. None: it does not say."""

    before: Any = None
    after: Any = None
    """None: the answer."""


class Call(Struct, Generic[InputT], frozen=True, kw_only=True):
    """An operation that is asked for."""

    input: InputT
    caller: OperationCaller
    command_id: str
    """The same for every attempt of a request with a key, and of a tool call; empty for a request that only reads."""
    issued_at_ms: int
    """0 when an earlier attempt may have been made: the owner looks its command id up."""
    request_key: tuple[str, ...] = ()
    """What a request's Idempotency-Key belongs to, and the key: the same whatever body it comes with. Empty without."""
    change: Change = struct_field(default_factory=Change)

    @property
    def principal(self) -> Caller:
        """Sender of the request, of an operation that no agent has."""
        assert self.caller.principal is not None, "a run has no principal: the operation must not be a tool"
        return self.caller.principal

    def command(self, step: str = "") -> str:
        """Return the id of a command of the operation; `step` tells several apart."""
        return f"{self.command_id}.{step}" if step else self.command_id

    def envelope(self, step: str = "") -> CommandEnvelope:
        """Return the envelope of a command in the name of the user, or else of the principal."""
        return CommandEnvelope(
            command_id=self.command(step),
            tenant=self.caller.tenant,
            subject=self.caller.user_id or self.caller.subject,
            issued_at_ms=self.issued_at_ms,
        )


class Answer(Struct, Generic[OutputT], frozen=True, kw_only=True):
    """What a handler returns."""

    value: OutputT
    positions: tuple[str, ...] = ()
    """Position tokens of what was written."""


Handler = Callable[[Call[Any]], Awaitable[Answer[Any]]]
"""Carries an operation out. Raises Refused and Unavailable (refusals.py)."""
Handlers = Mapping[AnyOperation, Handler]
