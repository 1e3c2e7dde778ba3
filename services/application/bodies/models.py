"""Request bodies as pydantic models: types are checked here, meaning in services/application/runs/requests.py.

These models are also the OpenAPI document of the bodies, so a limit that a caller should know is written in both places
from one constant. An unknown field is refused: a misspelt `session_id` would otherwise silently start another session.
A null is equivalent to a missing field, and so is an empty id.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, TypeAdapter

from loomlog.connectors.definitions.triggers import HOOKS_MAX
from loomlog.schemas.generated.values import Compaction, ContentBlock, Sampling, Segment
from loomlog.services.application import limits
from loomlog.services.application.runs.forks import INTEGER_FIELDS, ForkRequest
from loomlog.services.application.runs.requests import BEARER_TOKEN, CREDENTIAL_NAME, RunRequest
from loomlog.services.core.run.limits import (
    AUTO_PCT,
    KEEP_LAST_MAX,
    OUTPUT_RETRIES_DEFAULT,
    OUTPUT_RETRIES_MAX,
    TARGET_PCT,
)
from loomlog.services.core.spending_limits import AMOUNT_MAX

STRICT_CONFIG = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{0,128}$")]
AgentName = Annotated[str, Field(max_length=128, pattern=r"^[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*$")]
BEARER_PATTERN = BEARER_TOKEN.pattern.replace(r"\Z", "$")
CREDENTIALS_DESCRIPTION = (
    "Secrets by name for the servers a run talks to: sealed outside the log until it ends. "
    "One that is named like the api_key_env of a provider is the key of the run's calls to it. "
    f"Names match {CREDENTIAL_NAME.pattern[:-2]}."
)
Name = Annotated[str, Field(min_length=1, max_length=limits.NAME_BYTES_MAX)]


@dataclass(frozen=True, slots=True)
class DescribedBy:
    """Annotates an object that the use case checks, which names what is wrong in it: the document has this type."""

    type: Any

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return handler(TypeAdapter(self.type).core_schema)


class Body(BaseModel):
    """Common base of all bodies."""

    model_config = STRICT_CONFIG


class BlockBody(Body):
    """A block of a segment."""

    type: Literal["trusted-text", "untrusted-block", "image"]
    text: str | None = Field(None, description="Text of a text block.")
    kind: str | None = Field(None, description="Provenance label of an untrusted block, for example web_content.")
    cacheable: bool | None = Field(None, description="A provider may cache the prompt up to here.")
    media_type: str | None = Field(None, description="Images: image/png, image/jpeg, image/gif or image/webp.")
    data: str | None = Field(None, description="Images: base64.")


class SegmentBody(Body):
    """A part of the request with one role. Images belong in role user."""

    role: Literal["system", "user"]
    content: list[BlockBody] = Field(max_length=limits.BLOCKS_MAX)


class SamplingBody(Body):
    """Sampling parameters; they override those of the agent field by field."""

    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=1, le=2**31 - 1)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    seed: int | None = Field(None, ge=-(2**63), le=2**63 - 1)
    stop: list[Name] | None = Field(None, max_length=limits.STOP_STRINGS_MAX)


class CompactionBody(Body):
    """When and how a summary replaces the conversation; overrides the agent's options field by field."""

    enabled: bool | None = Field(None, description="Compact automatically when the context fills up.")
    target_percentage: int | None = Field(
        None, ge=TARGET_PCT[0], le=TARGET_PCT[1], description="Size of a summary, in percent of the text it replaces."
    )
    keep_last_n: int | None = Field(None, ge=0, le=KEEP_LAST_MAX, description="Newest messages that are kept.")
    keep_first: bool | None = Field(None, description="Keep the first user text.")
    autocompact_at_pct: int | None = Field(
        None, ge=AUTO_PCT[0], le=AUTO_PCT[1], description="Fill of the context window at which it is compacted."
    )
    model: str | None = Field(None, max_length=limits.NAME_BYTES_MAX, description="Another model of the provider.")
    memory_flush: bool | None = Field(None, description="Keep the dialogue that is left out in memory.")


class MessageBody(Body):
    """A further run of a session."""

    agent: AgentName | None = Field(None, description="Another agent than the session's.")
    session_id: Id | None = Field(None, description="Ignored: the session is that of the path.")
    tenant_id: str | None = Field(None, description="Ignored: the tenant is that of the token.")
    user_id: Id | None = Field(None, description="Ignored: the user is that of the session.")
    segments: list[SegmentBody] | None = Field(
        None, max_length=limits.SEGMENTS_MAX, description="The parts of the request, each with its role."
    )
    prompt: str | None = Field(None, description="Short for one trusted user text.")
    tools: list[Name] | None = Field(
        None,
        max_length=limits.NAMES_MAX,
        description="Narrows the agent's tools; names that it does not have are no error and give nothing.",
    )
    allowed_hosts: list[Name] | None = Field(
        None,
        max_length=limits.NAMES_MAX,
        description="null: the operator's list; []: no host; a list: the intersection.",
    )
    web_search_filter: Literal["drop", "keep"] | None = Field(
        None, description="Whether search results outside allowed_hosts are left out."
    )
    agent_id: Id | None = Field(None, description="Handle of your choice; 409 agent_id_in_use while it is live.")
    user_tier: str | None = Field(None, max_length=limits.NAME_BYTES_MAX, description="Plan of the user.")
    user_bearer: str | None = Field(
        None,
        pattern=BEARER_PATTERN,
        description="The credential `default`; for the servers a run talks to, never logged.",
    )
    user_credentials: dict[str, str] | None = Field(None, description=CREDENTIALS_DESCRIPTION)
    parent_context: dict[str, str | None] | None = Field(
        None, description=f"Opaque lineage, values of at most {limits.PARENT_CONTEXT_VALUE_BYTES} bytes."
    )
    metadata: dict[str, Any] | None = Field(None, description="Non-secret data the model may see.")
    run_timeout_seconds: int | None = Field(
        None,
        ge=0,
        le=limits.RUN_TIMEOUT_MAX_S,
        description="Seconds of work after which the run fails, time paused or parked not counted; 0: the agent's.",
    )
    interactive: bool | None = Field(None, description="Park at the end of a turn instead of completing.")
    sampling: SamplingBody | None = Field(None, description="Sampling parameters that differ from the agent's.")
    compaction: CompactionBody | None = Field(None, description="Options of compaction that differ from the agent's.")
    output_schema: dict[str, Any] | None = Field(
        None,
        description="JSON Schema of the final answer, at most 64 KiB, an object at its top: the run ends with a record "
        "that meets it, or fails with output_invalid. Instead of the agent's.",
    )
    output_retries: int | None = Field(
        None,
        ge=0,
        le=OUTPUT_RETRIES_MAX,
        description=f"How often the model may correct an answer that does not meet the schema; as the agent's if "
        f"absent, which is {OUTPUT_RETRIES_DEFAULT} by default.",
    )
    idempotency_key: str | None = Field(
        None,
        min_length=1,
        max_length=limits.IDEMPOTENCY_KEY_MAX,
        description="As the header Idempotency-Key, which wins.",
    )


class EndHookBody(Body):
    """What happens when a run has ended. {{run.final_text}}, {{run.result}}, {{run.id}} and {{run.status}} in texts are
    replaced.
    """

    kind: Literal["channel.publish", "memory.set", "http", "mcp.call"] = Field(
        description="mcp.call needs substrate:tenant."
    )
    on: Literal["completed", "failed", "cancelled", "any"] | None = Field(
        None, description="After which ends; completed if absent."
    )
    channel: Name | None = Field(None, description="channel.publish: a declared channel.")
    scope: Literal["agent", "user", "tenant", "global"] | None = Field(
        None, description="memory.set: whose memory; global is the tenant's. All but user need substrate:tenant."
    )
    key: str | None = Field(None, description="memory.set: the key.")
    server: Name | None = Field(None, description="mcp.call: name of the MCP server.")
    tool: str | None = Field(None, description="mcp.call: name that the server gives the tool.")
    args: dict[str, Any] | None = Field(None, description="mcp.call: its arguments.")
    url: str | None = Field(None, description="http: where the request is sent, signed, and retried for a day.")
    secret_env: str | None = Field(
        None,
        description="http: variable with the secret that signs; the block secrets gives it to tenants and hosts.",
    )
    payload: Any = Field(None, description="Any JSON of at most 64 KiB; of http by default status and final_text.")


class RunBody(MessageBody):
    """A new run; with session_id a further run of that session."""

    agent: AgentName = Field(description="Name of the agent.")
    session_id: Id | None = Field(None, description="Session to continue.")
    user_id: Id | None = Field(None, description="The end user; accepted from the shared token only.")
    on_complete: list[EndHookBody] | None = Field(
        None, max_length=HOOKS_MAX, description="What happens when the run has ended, in this order."
    )


class BatchBody(Body):
    """Many runs in one request."""

    spawns: list[RunBody] = Field(
        min_length=1, max_length=limits.BATCH_SPAWNS_MAX, description="The runs; a session_id is ignored."
    )
    mode: Literal["join", "detach"] | None = Field(
        None, description="join (default) waits for all of them; detach answers once they are started."
    )
    timeout_ms: int | None = Field(
        None, ge=1, le=limits.BATCH_WAIT_MS, description="join: cancel the runs that have not ended by then."
    )


class OverridesBody(SamplingBody):
    """Fields of the definition that a fork changes; null or absent: as in its origin."""

    provider: Name | None = None
    model: Name | None = None
    effort: Literal["", "low", "medium", "high"] | None = None
    system_prompt: str | None = None
    tools: list[Name] | None = Field(None, max_length=limits.NAMES_MAX, description="Only ever narrows.")
    max_tokens: int | None = Field(None, ge=0, le=INTEGER_FIELDS["max_tokens"])
    max_iterations: int | None = Field(None, ge=0, le=INTEGER_FIELDS["max_iterations"])
    retry_attempts: int | None = Field(None, ge=0, le=INTEGER_FIELDS["retry_attempts"])


class ForkBody(Body):
    """A new run that shares the events of another up to a given event."""

    at: int = Field(ge=1, description="Seq of the last event that is shared.")
    agent: AgentName | None = Field(None, description="Another agent, as it is configured now.")
    definition: str | None = Field(
        None, max_length=64, description="current, or the beginning of a definition's hash; as the origin when absent."
    )
    overrides: Annotated[dict[str, Any], DescribedBy(OverridesBody)] | None = Field(
        None, description="Changes of the definition, by name."
    )
    prompt: str | None = Field(None, description="User text at the fork; required after an answer of the model.")
    segments: list[SegmentBody] | None = Field(None, max_length=limits.SEGMENTS_MAX)
    agent_id: Id | None = Field(None, description="Handle of your choice; 409 agent_id_in_use while it is live.")
    interactive: bool | None = Field(None, description="Park instead of completing; as the origin when absent.")
    user_bearer: str | None = Field(None, pattern=BEARER_PATTERN, description="As for a run; the origin's is not used.")
    user_credentials: dict[str, str] | None = Field(None, description=CREDENTIALS_DESCRIPTION)
    idempotency_key: str | None = Field(
        None,
        min_length=1,
        max_length=limits.IDEMPOTENCY_KEY_MAX,
        description="As the header Idempotency-Key, which wins.",
    )


class VerifyBody(Body):
    """What to verify; everything when empty."""

    run_id: str | None = Field(
        None, max_length=limits.FILTER_CHARACTERS_MAX, description="Only this run or aggregate (family:tenant/name)."
    )
    partition: int | None = Field(None, ge=0, le=100_000, description="Only this partition of each topic.")
    since: str | None = Field(None, max_length=64, description="Only what was signed since this time (RFC 3339).")
    entities: bool | None = Field(None, description="true: only loom.entity.events.")
    channels: bool | None = Field(None, description="true: only loom.channel.events.")
    max_unsigned_s: float | None = Field(
        None, ge=0, le=31_536_000, description="A record that is not signed after so many seconds is a violation."
    )
    blobs: bool | None = Field(None, description="false: do not fetch and compare the blobs that events name.")


class LimitBody(Body):
    """Limits of an account for a calendar month in UTC; an absent value is no limit."""

    scope: Literal["operator", "tenant", "user"] = Field(description="Whose account it is.")
    tenant_id: str | None = Field(None, max_length=limits.NAME_BYTES_MAX, description="The caller's if absent.")
    scope_id: str | None = Field(None, max_length=limits.NAME_BYTES_MAX, description="The user; empty for a tenant.")
    soft_limit: int | None = Field(
        None, ge=0, le=AMOUNT_MAX, description="Tokens; reported once used, no other effect."
    )
    hard_limit: int | None = Field(None, ge=0, le=AMOUNT_MAX, description="Tokens; once they are used, no call begins.")
    soft_limit_micros: int | None = Field(None, ge=0, le=AMOUNT_MAX, description="Millionths of the currency.")
    hard_limit_micros: int | None = Field(None, ge=0, le=AMOUNT_MAX, description="The same; never exceeded.")
    strict: bool | None = Field(None, description="hard_limit is never exceeded: the worst case of a call must fit.")


def to_run_request(body: MessageBody, *, idempotency_key: str, traceparent: str) -> RunRequest:
    """Convert to the request of the command layer."""
    named = body if isinstance(body, RunBody) else None
    return RunRequest(
        agent=body.agent or "",
        prompt=body.prompt or "",
        segments=_to_segments(body.segments or ()),
        session_id=(named.session_id if named else None) or "",
        agent_id=body.agent_id or "",
        user_id=(named.user_id if named else None) or "",
        user_tier=body.user_tier or "",
        tools=None if body.tools is None else tuple(body.tools),
        allowed_hosts=None if body.allowed_hosts is None else tuple(body.allowed_hosts),
        metadata=body.metadata or {},
        parent_context=_without_nulls(body.parent_context or {}),
        interactive=bool(body.interactive),
        run_timeout_s=body.run_timeout_seconds or 0,
        sampling=None if body.sampling is None else _to_sampling(body.sampling),
        compaction=None if body.compaction is None else Compaction(**_set_fields(body.compaction)),
        output_schema=body.output_schema,
        output_retries=body.output_retries,
        on_complete=tuple(hook.model_dump(exclude_none=True) for hook in (named.on_complete if named else None) or ()),
        web_search_filter=body.web_search_filter or "",
        idempotency_key=idempotency_key or body.idempotency_key or "",
        user_bearer=body.user_bearer or "",
        user_credentials=body.user_credentials or {},
        traceparent=traceparent,
    )


def to_fork_request(body: ForkBody, *, idempotency_key: str, traceparent: str) -> ForkRequest:
    """Convert to the fork request of the command layer."""
    return ForkRequest(
        at_seq=body.at,
        agent=body.agent or "",
        definition=body.definition or "",
        overrides=body.overrides,
        prompt=body.prompt or "",
        segments=_to_segments(body.segments or ()),
        agent_id=body.agent_id or "",
        interactive=body.interactive,
        idempotency_key=idempotency_key or body.idempotency_key or "",
        user_bearer=body.user_bearer or "",
        user_credentials=body.user_credentials or {},
        traceparent=traceparent,
    )


def _to_segments(bodies: list[SegmentBody] | tuple[()]) -> tuple[Segment, ...]:
    return tuple(
        Segment(role=one.role, content=tuple(ContentBlock(**_set_fields(block)) for block in one.content))
        for one in bodies
    )


def _to_sampling(body: SamplingBody) -> Sampling:
    return Sampling(**{**_set_fields(body), "stop": tuple(body.stop or ())})


def _set_fields(body: Body) -> dict[str, Any]:
    """Return the fields that are not null; the records have the same ones, empty where they are not set."""
    return body.model_dump(exclude_none=True)


def _without_nulls(values: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}
