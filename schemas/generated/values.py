"""Records of the namespace loom.values."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from msgspec import field

from loomlog.schemas.records import Record


class AccessToken(Record, frozen=True, kw_only=True):
    """A token that gives access. Its text is nowhere: only what is computed from it under the pepper."""

    SCHEMA: ClassVar[str] = "loom.values.AccessToken"

    def_id: str
    """Id of the token."""
    name: str
    """Name of the token, as its tenant knows it."""
    tenant: str
    """Tenant that its holder belongs to."""
    subject: str
    """Subject of its holder."""
    hashed: str
    """HMAC-SHA256 of the text under the pepper, hexadecimal."""
    user: str = ''
    """Registered user whose token it is; empty for a token of no user."""
    scopes: tuple[str, ...] = ()
    """Scopes of access; of a token of a user those that follow from the access mode."""
    suffix: str = ''
    """First characters of the text behind its prefix, so that people can tell tokens apart."""
    expires_at_ms: int = 0
    """When it ends by itself, UTC milliseconds; 0: never."""
    is_imported: bool = False
    """Whether the operator has chosen its text."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "def_id": self.def_id,
            "name": self.name,
            "tenant": self.tenant,
            "subject": self.subject,
            "user": self.user,
            "scopes": self.scopes,
            "hashed": self.hashed,
            "suffix": self.suffix,
            "expires_at_ms": self.expires_at_ms,
            "is_imported": self.is_imported,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            def_id=value["def_id"],
            name=value["name"],
            tenant=value["tenant"],
            subject=value["subject"],
            user=value["user"],
            scopes=tuple(value["scopes"]),
            hashed=value["hashed"],
            suffix=value["suffix"],
            expires_at_ms=value["expires_at_ms"],
            is_imported=value["is_imported"],
        )


class CoreBlock(Record, frozen=True, kw_only=True):
    """An entry of memory that is always in the prompt of an agent."""

    SCHEMA: ClassVar[str] = "loom.values.CoreBlock"

    label: str
    """Name in the prompt; its key is core/<label>."""
    scope: str = 'agent'
    """Scope of memory it lies in: agent, user or tenant."""
    limit_bytes: int = 0
    """Most bytes of its value; 0 = the bound of every value."""
    read_only: bool = False
    """Whether the agent may not change it."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "scope": self.scope,
            "limit_bytes": self.limit_bytes,
            "read_only": self.read_only,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            label=value["label"],
            scope=value["scope"],
            limit_bytes=value["limit_bytes"],
            read_only=value["read_only"],
        )


class AgentGrants(Record, frozen=True, kw_only=True):
    """What an agent may use and author besides its tools and volumes."""

    SCHEMA: ClassVar[str] = "loom.values.AgentGrants"

    skills: tuple[str, ...] = ()
    """Patterns of the skills it may use; empty = all."""
    agent_def_scopes: tuple[str, ...] = ()
    """Agent definitions it may author."""
    evaluation_scopes: tuple[str, ...] = ()
    """Runs it may judge."""
    volume_def_scopes: tuple[str, ...] = ()
    """Volumes it may author."""
    schedule_def_scopes: tuple[str, ...] = ()
    """Schedules it may author."""
    a2a_agent_def_scopes: tuple[str, ...] = ()
    """Remote agents it may author."""
    a2a_server_card_def_scopes: tuple[str, ...] = ()
    """Server cards it may author."""
    memory_scopes: tuple[str, ...] = ()
    """Scopes of memory it may use."""
    sql_scopes: tuple[str, ...] = ()
    """Scopes of SQL memory it may use."""
    history_scope: tuple[str, ...] = ()
    """Histories it may read."""
    channels_publish: tuple[str, ...] = ()
    """Patterns of the channels it may publish to."""
    channels_subscribe: tuple[str, ...] = ()
    """Patterns of the channels it may read."""
    memory_quota_bytes: int = 0
    """Bytes of memory it may keep; 0 = the operator's bound."""
    sql_quota_bytes: int = 0
    """Bytes of a database it may use; 0 = the operator's bound."""
    memory_backend: str = ''
    """Where its memory lies: a name of memory_backends; empty = here."""
    memory_consolidation: bool = False
    """Whether it may move the watermark of its consolidation targets and archive facts."""
    core_blocks: tuple[CoreBlock, ...] = ()
    """Entries of memory that are always in its prompt."""
    inherit_core_blocks: bool = False
    """Whether the core blocks of its parent's user and tenant are in its prompt too."""
    memory_inject_max_tokens: int = 1024
    """Tokens of memory that are put into its prompt, 4 characters each."""
    memory_protocol: bool = False
    """Whether the rules for using memory and its index are in its prompt."""
    memory_index_max_bytes: int = 24576
    """Bytes of the index of memory in its prompt."""
    memory_roots: str = ''
    """When the roots of memory are in its prompt: lazy, force or suppress; empty = lazy."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "skills": self.skills,
            "agent_def_scopes": self.agent_def_scopes,
            "evaluation_scopes": self.evaluation_scopes,
            "volume_def_scopes": self.volume_def_scopes,
            "schedule_def_scopes": self.schedule_def_scopes,
            "a2a_agent_def_scopes": self.a2a_agent_def_scopes,
            "a2a_server_card_def_scopes": self.a2a_server_card_def_scopes,
            "memory_scopes": self.memory_scopes,
            "sql_scopes": self.sql_scopes,
            "history_scope": self.history_scope,
            "channels_publish": self.channels_publish,
            "channels_subscribe": self.channels_subscribe,
            "memory_quota_bytes": self.memory_quota_bytes,
            "sql_quota_bytes": self.sql_quota_bytes,
            "memory_backend": self.memory_backend,
            "memory_consolidation": self.memory_consolidation,
            "core_blocks": [item.to_avro() for item in self.core_blocks],
            "inherit_core_blocks": self.inherit_core_blocks,
            "memory_inject_max_tokens": self.memory_inject_max_tokens,
            "memory_protocol": self.memory_protocol,
            "memory_index_max_bytes": self.memory_index_max_bytes,
            "memory_roots": self.memory_roots,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            skills=tuple(value["skills"]),
            agent_def_scopes=tuple(value["agent_def_scopes"]),
            evaluation_scopes=tuple(value["evaluation_scopes"]),
            volume_def_scopes=tuple(value["volume_def_scopes"]),
            schedule_def_scopes=tuple(value["schedule_def_scopes"]),
            a2a_agent_def_scopes=tuple(value["a2a_agent_def_scopes"]),
            a2a_server_card_def_scopes=tuple(value["a2a_server_card_def_scopes"]),
            memory_scopes=tuple(value["memory_scopes"]),
            sql_scopes=tuple(value["sql_scopes"]),
            history_scope=tuple(value["history_scope"]),
            channels_publish=tuple(value["channels_publish"]),
            channels_subscribe=tuple(value["channels_subscribe"]),
            memory_quota_bytes=value["memory_quota_bytes"],
            sql_quota_bytes=value["sql_quota_bytes"],
            memory_backend=value["memory_backend"],
            memory_consolidation=value["memory_consolidation"],
            core_blocks=tuple(CoreBlock.from_avro(item) for item in value["core_blocks"]),
            inherit_core_blocks=value["inherit_core_blocks"],
            memory_inject_max_tokens=value["memory_inject_max_tokens"],
            memory_protocol=value["memory_protocol"],
            memory_index_max_bytes=value["memory_index_max_bytes"],
            memory_roots=value["memory_roots"],
        )


class BlobRef(Record, frozen=True, kw_only=True):
    """Payload kept in the content-addressed blob store because it is over the inline limit."""

    SCHEMA: ClassVar[str] = "loom.values.BlobRef"

    sha256: str
    """Hex SHA-256 of the bytes, also the name in the store."""
    size_bytes: int
    """Size of the bytes."""
    media_type: str = 'text/plain'
    """Media type, for text always UTF-8."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "sha256": self.sha256,
            "size_bytes": self.size_bytes,
            "media_type": self.media_type,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            sha256=value["sha256"],
            size_bytes=value["size_bytes"],
            media_type=value["media_type"],
        )


class ApprovalPolicy(Record, frozen=True, kw_only=True):
    """Rules for the tool calls of a run, pinned by hash."""

    SCHEMA: ClassVar[str] = "loom.values.ApprovalPolicy"

    source: str
    """file, tenant or agent."""
    sha256: str
    """Hash of the canonical text, hex."""
    version: int = 0
    """Number of the tenant's version; 0 for the other sources."""
    text: str = ''
    """The rules as canonical JSON; empty when they are in the blob store."""
    text_blob: BlobRef | None = None
    """The rules when they are long."""
    is_inherited: bool = False
    """A run above this one in its tree has it too."""
    agents: tuple[str, ...] = ()
    """Agents that the run works for, the nearest first; rules for them hold as well."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "version": self.version,
            "sha256": self.sha256,
            "text": self.text,
            "text_blob": None if self.text_blob is None else self.text_blob.to_avro(),
            "is_inherited": self.is_inherited,
            "agents": self.agents,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            source=value["source"],
            version=value["version"],
            sha256=value["sha256"],
            text=value["text"],
            text_blob=None if value["text_blob"] is None else BlobRef.from_avro(value["text_blob"]),
            is_inherited=value["is_inherited"],
            agents=tuple(value["agents"]),
        )


class Compaction(Record, frozen=True, kw_only=True):
    """Parameters of compaction; null and empty are not set. Defaults: services/core/run/compacting.py."""

    SCHEMA: ClassVar[str] = "loom.values.Compaction"

    enabled: bool | None = None
    """Compact by itself when the context fills up."""
    target_percentage: int | None = None
    """Size of a summary in percent of what it stands for, 10 to 50."""
    keep_last_n: int | None = None
    """Messages at the end that stay as they are."""
    keep_first: bool | None = None
    """The first user text stays as it is."""
    autocompact_at_pct: int | None = None
    """Percent of the context window at which it compacts by itself, 50 to 95."""
    provider: str = ''
    """Provider of the summary call; empty: that of the run."""
    model: str = ''
    """Model of the summary call; empty: that of the run."""
    memory_flush: bool | None = None
    """Give what is left out to the memory first."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "enabled": self.enabled,
            "target_percentage": self.target_percentage,
            "keep_last_n": self.keep_last_n,
            "keep_first": self.keep_first,
            "autocompact_at_pct": self.autocompact_at_pct,
            "provider": self.provider,
            "model": self.model,
            "memory_flush": self.memory_flush,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            enabled=value["enabled"],
            target_percentage=value["target_percentage"],
            keep_last_n=value["keep_last_n"],
            keep_first=value["keep_first"],
            autocompact_at_pct=value["autocompact_at_pct"],
            provider=value["provider"],
            model=value["model"],
            memory_flush=value["memory_flush"],
        )


class DefinitionPin(Record, frozen=True, kw_only=True):
    """The version of a definition that a run keeps to."""

    SCHEMA: ClassVar[str] = "loom.values.DefinitionPin"

    def_id: str
    """Id of the version."""
    version: int
    """Number of the version in its line."""
    content_sha256: str
    """Hash of the version's content: sha256: and hex."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "def_id": self.def_id,
            "version": self.version,
            "content_sha256": self.content_sha256,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            def_id=value["def_id"],
            version=value["version"],
            content_sha256=value["content_sha256"],
        )


class InterruptionTerms(Record, frozen=True, kw_only=True):
    """Whether a run may ask people, what, how many questions may wait, and how long."""

    SCHEMA: ClassVar[str] = "loom.values.InterruptionTerms"

    enabled: bool = False
    """It may ask and notify."""
    kinds: tuple[str, ...] = ()
    """Kinds of question it may ask; empty: question."""
    max_pending: int = 10
    """Questions of the run that may wait at once."""
    default_timeout_ms: int = 3600000
    """How long a question waits that names no time, milliseconds."""
    max_timeout_ms: int = 86400000
    """Longest wait a question may ask for, milliseconds."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "enabled": self.enabled,
            "kinds": self.kinds,
            "max_pending": self.max_pending,
            "default_timeout_ms": self.default_timeout_ms,
            "max_timeout_ms": self.max_timeout_ms,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            enabled=value["enabled"],
            kinds=tuple(value["kinds"]),
            max_pending=value["max_pending"],
            default_timeout_ms=value["default_timeout_ms"],
            max_timeout_ms=value["max_timeout_ms"],
        )


class ModelChoice(Record, frozen=True, kw_only=True):
    """A model a run may go to."""

    SCHEMA: ClassVar[str] = "loom.values.ModelChoice"

    provider: str
    """Provider id."""
    model: str
    """Model name at the provider."""
    effort: str = ''
    """low, medium, high or empty."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "provider": self.provider,
            "model": self.model,
            "effort": self.effort,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            provider=value["provider"],
            model=value["model"],
            effort=value["effort"],
        )


class Sampling(Record, frozen=True, kw_only=True):
    """Sampling parameters; null means the provider's default, and a driver drops what its provider lacks."""

    SCHEMA: ClassVar[str] = "loom.values.Sampling"

    temperature: float | None = None
    """0 to 2."""
    top_p: float | None = None
    """0 to 1."""
    top_k: int | None = None
    """At least 1."""
    frequency_penalty: float | None = None
    """-2 to 2."""
    presence_penalty: float | None = None
    """-2 to 2."""
    seed: int | None = None
    """Any integer."""
    stop: tuple[str, ...] = ()
    """At most 8 stop strings."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "frequency_penalty": self.frequency_penalty,
            "presence_penalty": self.presence_penalty,
            "seed": self.seed,
            "stop": self.stop,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            temperature=value["temperature"],
            top_p=value["top_p"],
            top_k=value["top_k"],
            frequency_penalty=value["frequency_penalty"],
            presence_penalty=value["presence_penalty"],
            seed=value["seed"],
            stop=tuple(value["stop"]),
        )


class VolumeGrant(Record, frozen=True, kw_only=True):
    """A volume an agent may use; its path is a matter of the process that runs the tool."""

    SCHEMA: ClassVar[str] = "loom.values.VolumeGrant"

    name: str
    """Name of the volume in the configuration."""
    mode: str
    """ro or rw."""
    is_default: bool = False
    """Used when a tool call names none."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "mode": self.mode,
            "is_default": self.is_default,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            name=value["name"],
            mode=value["mode"],
            is_default=value["is_default"],
        )


class AgentDefinition(Record, frozen=True, kw_only=True):
    """The definition a run is pinned to, resolved: no tier, alias or pattern is left in it."""

    SCHEMA: ClassVar[str] = "loom.values.AgentDefinition"

    name: str
    """Agent name."""
    provider: str
    """Provider id."""
    model: str
    """Model name at the provider."""
    sha256: str = ''
    """Hash of the resolved definition, hex."""
    effort: str = ''
    """low, medium, high or empty."""
    system_prompt: str = ''
    """System prompt."""
    tools: tuple[str, ...] = ()
    """Tools the run may use, after narrowing by the caller."""
    max_tokens: int = 0
    """Bound of one answer; 0 leaves it to the driver."""
    max_iterations: int = 0
    """Bound of model turns; 0 means the default of services/core/run/limits.py."""
    unbounded_iterations: bool = False
    """No bound but the hard backstop."""
    retry_attempts: int = 0
    """Retries of a failed model call on the same provider, 0 to 5."""
    sampling: Sampling | None = None
    """Sampling parameters of the definition."""
    volumes: tuple[VolumeGrant, ...] = ()
    """Volumes the run may use."""
    unknown_outcome: str = 'tell'
    """What follows when it is unknown whether an unsafe tool call had its effect: tell the model, ask the
    operator, or fail the run.
    """
    run_timeout_s: int = 0
    """Seconds of work after which a run fails; 0 = no bound."""
    candidates: tuple[ModelChoice, ...] = ()
    """Everything the run may go to, best first, the model it starts with among them; empty for a pinned model."""
    fallback_on_error: bool = False
    """Whether the run goes to another candidate when a model call has failed for good."""
    max_fallback_attempts: int = 0
    """How often it may do so in all; 0 = 3."""
    rate_limit_cooldown_ms: int = 0
    """How long a model that was rate limited is passed over; 0 = 30 s."""
    pin_after_success: bool = False
    """After a turn has succeeded the run stays where it is."""
    max_concurrent_children: int = 4
    """Children of one call that work at the same time; 0 = 4."""
    compaction: Compaction | None = None
    """When and how the conversation is compacted."""
    interruption: InterruptionTerms | None = None
    """Whether and how the run may ask people; null = it may not."""
    code_body: str = ''
    """The script of a code agent; empty for agents that ask a model, and when it is in the blob store."""
    code_blob: BlobRef | None = None
    """The script when it is long."""
    pin: DefinitionPin | None = None
    """The version it comes from; null for an agent from a file."""
    system_prompt_blob: BlobRef | None = None
    """The system prompt when it is long; system_prompt is empty then."""
    grants: AgentGrants | None = None
    """What it may use and author besides tools and volumes; null: all skills, nothing else."""
    approvals: tuple[ApprovalPolicy, ...] = ()
    """Rules for its tool calls, in the order of trust."""
    output_schema: str = ''
    """JSON Schema of the final answer, as JSON text; empty: the answer is any text, or the schema is in the blob
    store.
    """
    output_schema_blob: BlobRef | None = None
    """The schema when it is long."""
    output_schema_sha256: str = ''
    """Hash of the schema with its keys in order, hex; empty: the answer is any text."""
    output_retries: int = 0
    """How often the model may correct an answer that does not meet the schema."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "sha256": self.sha256,
            "provider": self.provider,
            "model": self.model,
            "effort": self.effort,
            "system_prompt": self.system_prompt,
            "tools": self.tools,
            "max_tokens": self.max_tokens,
            "max_iterations": self.max_iterations,
            "unbounded_iterations": self.unbounded_iterations,
            "retry_attempts": self.retry_attempts,
            "sampling": None if self.sampling is None else self.sampling.to_avro(),
            "volumes": [item.to_avro() for item in self.volumes],
            "unknown_outcome": self.unknown_outcome,
            "run_timeout_s": self.run_timeout_s,
            "candidates": [item.to_avro() for item in self.candidates],
            "fallback_on_error": self.fallback_on_error,
            "max_fallback_attempts": self.max_fallback_attempts,
            "rate_limit_cooldown_ms": self.rate_limit_cooldown_ms,
            "pin_after_success": self.pin_after_success,
            "max_concurrent_children": self.max_concurrent_children,
            "compaction": None if self.compaction is None else self.compaction.to_avro(),
            "interruption": None if self.interruption is None else self.interruption.to_avro(),
            "code_body": self.code_body,
            "code_blob": None if self.code_blob is None else self.code_blob.to_avro(),
            "pin": None if self.pin is None else self.pin.to_avro(),
            "system_prompt_blob": None if self.system_prompt_blob is None else self.system_prompt_blob.to_avro(),
            "grants": None if self.grants is None else self.grants.to_avro(),
            "approvals": [item.to_avro() for item in self.approvals],
            "output_schema": self.output_schema,
            "output_schema_blob": None if self.output_schema_blob is None else self.output_schema_blob.to_avro(),
            "output_schema_sha256": self.output_schema_sha256,
            "output_retries": self.output_retries,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            name=value["name"],
            sha256=value["sha256"],
            provider=value["provider"],
            model=value["model"],
            effort=value["effort"],
            system_prompt=value["system_prompt"],
            tools=tuple(value["tools"]),
            max_tokens=value["max_tokens"],
            max_iterations=value["max_iterations"],
            unbounded_iterations=value["unbounded_iterations"],
            retry_attempts=value["retry_attempts"],
            sampling=None if value["sampling"] is None else Sampling.from_avro(value["sampling"]),
            volumes=tuple(VolumeGrant.from_avro(item) for item in value["volumes"]),
            unknown_outcome=value["unknown_outcome"],
            run_timeout_s=value["run_timeout_s"],
            candidates=tuple(ModelChoice.from_avro(item) for item in value["candidates"]),
            fallback_on_error=value["fallback_on_error"],
            max_fallback_attempts=value["max_fallback_attempts"],
            rate_limit_cooldown_ms=value["rate_limit_cooldown_ms"],
            pin_after_success=value["pin_after_success"],
            max_concurrent_children=value["max_concurrent_children"],
            compaction=None if value["compaction"] is None else Compaction.from_avro(value["compaction"]),
            interruption=None if value["interruption"] is None else InterruptionTerms.from_avro(value["interruption"]),
            code_body=value["code_body"],
            code_blob=None if value["code_blob"] is None else BlobRef.from_avro(value["code_blob"]),
            pin=None if value["pin"] is None else DefinitionPin.from_avro(value["pin"]),
            system_prompt_blob=None if value["system_prompt_blob"] is None else BlobRef.from_avro(value["system_prompt_blob"]),
            grants=None if value["grants"] is None else AgentGrants.from_avro(value["grants"]),
            approvals=tuple(ApprovalPolicy.from_avro(item) for item in value["approvals"]),
            output_schema=value["output_schema"],
            output_schema_blob=None if value["output_schema_blob"] is None else BlobRef.from_avro(value["output_schema_blob"]),
            output_schema_sha256=value["output_schema_sha256"],
            output_retries=value["output_retries"],
        )


class ApprovalVote(Record, frozen=True, kw_only=True):
    """What one person says about a call that needs approval."""

    SCHEMA: ClassVar[str] = "loom.values.ApprovalVote"
    CONTENT: ClassVar[Mapping[str, str]] = {"reason": "text"}

    by: str
    """Subject of that person."""
    is_approved: bool
    """False: denied."""
    at_ms: int
    """When, UTC milliseconds."""
    reason: str = ''
    """Why."""
    surface: str = ''
    """Where they said it, such as http or mcp."""
    command_id: str = ''
    """Command that carried it, so that the same one sent again is recognised."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "by": self.by,
            "is_approved": self.is_approved,
            "reason": self.reason,
            "surface": self.surface,
            "at_ms": self.at_ms,
            "command_id": self.command_id,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            by=value["by"],
            is_approved=value["is_approved"],
            reason=value["reason"],
            surface=value["surface"],
            at_ms=value["at_ms"],
            command_id=value["command_id"],
        )


class ApproverGroup(Record, frozen=True, kw_only=True):
    """People who may approve a call, and how many of them must."""

    SCHEMA: ClassVar[str] = "loom.values.ApproverGroup"

    within_ms: int
    """How long they are waited for."""
    subjects: tuple[str, ...] = ()
    """Subjects that may."""
    scopes: tuple[str, ...] = ()
    """Scopes of access of which one is enough."""
    approvals: int = 1
    """Different people who must approve."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "subjects": self.subjects,
            "scopes": self.scopes,
            "approvals": self.approvals,
            "within_ms": self.within_ms,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            subjects=tuple(value["subjects"]),
            scopes=tuple(value["scopes"]),
            approvals=value["approvals"],
            within_ms=value["within_ms"],
        )


class CallRef(Record, frozen=True, kw_only=True):
    """A tool call of a run."""

    SCHEMA: ClassVar[str] = "loom.values.CallRef"

    run_id: str
    """The run."""
    turn: int
    """Its turn."""
    index: int
    """Place in that turn."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "turn": self.turn,
            "index": self.index,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            run_id=value["run_id"],
            turn=value["turn"],
            index=value["index"],
        )


class MeterAmount(Record, frozen=True, kw_only=True):
    """What a call adds to a total that rules read."""

    SCHEMA: ClassVar[str] = "loom.values.MeterAmount"

    meter: str
    """Key of the total."""
    amount: int
    """Calls, or millionths of a sum."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "meter": self.meter,
            "amount": self.amount,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            meter=value["meter"],
            amount=value["amount"],
        )


class CallVerdict(Record, frozen=True, kw_only=True):
    """What the rules of a run say about one of its calls."""

    SCHEMA: ClassVar[str] = "loom.values.CallVerdict"
    CONTENT: ClassVar[Mapping[str, str]] = {"question": "text"}

    index: int
    """Place of the call in its turn, from 0."""
    outcome: str
    """allow, deny or ask."""
    source: str = ''
    """Source of the policy that decides: file, tenant or agent; empty: no rule matches."""
    policy_sha256: str = ''
    """Hash of that policy, hex."""
    rule: str = ''
    """Name of the rule."""
    reason: str = ''
    """Why, as the rule says it."""
    is_undecided: bool = False
    """A condition could not be decided, and counts against the call."""
    groups: tuple[ApproverGroup, ...] = ()
    """Of ask: who is asked, and who when their time is over."""
    not_requester: bool = False
    """Of ask: whether the requester may not approve."""
    amounts: tuple[MeterAmount, ...] = ()
    """What the call adds to totals once it is allowed."""
    question: str = ''
    """Of ask: what approvers are asked."""
    notify_url: str = ''
    """Of ask: address that is told; empty: none."""
    notify_secret_env: str = ''
    """Environment variable with the secret that signs it; empty: it is not signed."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "index": self.index,
            "outcome": self.outcome,
            "source": self.source,
            "policy_sha256": self.policy_sha256,
            "rule": self.rule,
            "reason": self.reason,
            "is_undecided": self.is_undecided,
            "groups": [item.to_avro() for item in self.groups],
            "not_requester": self.not_requester,
            "amounts": [item.to_avro() for item in self.amounts],
            "question": self.question,
            "notify_url": self.notify_url,
            "notify_secret_env": self.notify_secret_env,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            index=value["index"],
            outcome=value["outcome"],
            source=value["source"],
            policy_sha256=value["policy_sha256"],
            rule=value["rule"],
            reason=value["reason"],
            is_undecided=value["is_undecided"],
            groups=tuple(ApproverGroup.from_avro(item) for item in value["groups"]),
            not_requester=value["not_requester"],
            amounts=tuple(MeterAmount.from_avro(item) for item in value["amounts"]),
            question=value["question"],
            notify_url=value["notify_url"],
            notify_secret_env=value["notify_secret_env"],
        )


class ChannelUse(Record, frozen=True, kw_only=True):
    """A message that a tool call published or returned."""

    SCHEMA: ClassVar[str] = "loom.values.ChannelUse"
    CONTENT: ClassVar[Mapping[str, str]] = {"preview": "text"}

    kind: str
    """publish or delivery."""
    channel: str
    """Name of the channel."""
    scope: str
    """Its scope."""
    message_id: str
    """The message."""
    scope_id: str = ''
    """User or agent of the scope."""
    payload_bytes: int = 0
    """Bytes of its value as JSON."""
    dropped_oldest: int = 0
    """Messages that it has pushed out."""
    cursor: str = ''
    """Cursor behind it; of a delivery."""
    preview: str = ''
    """Beginning of its value as JSON, at most 200 characters; user content."""
    attempt: int = 1
    """How often it was given to its reader, this time included; of a delivery."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "channel": self.channel,
            "scope": self.scope,
            "scope_id": self.scope_id,
            "message_id": self.message_id,
            "payload_bytes": self.payload_bytes,
            "dropped_oldest": self.dropped_oldest,
            "cursor": self.cursor,
            "preview": self.preview,
            "attempt": self.attempt,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            kind=value["kind"],
            channel=value["channel"],
            scope=value["scope"],
            scope_id=value["scope_id"],
            message_id=value["message_id"],
            payload_bytes=value["payload_bytes"],
            dropped_oldest=value["dropped_oldest"],
            cursor=value["cursor"],
            preview=value["preview"],
            attempt=value["attempt"],
        )


class CommandEnvelope(Record, frozen=True, kw_only=True):
    """What every command begins with."""

    SCHEMA: ClassVar[str] = "loom.values.CommandEnvelope"

    command_id: str
    """Unique id chosen by the sender; the same id again yields no second event."""
    tenant: str = 'default'
    """Tenant on whose behalf the command is given."""
    subject: str = ''
    """Who gives it: subject of the principal or name of the service."""
    issued_at_ms: int = 0
    """When the sender made it, UTC milliseconds. 0 makes the owner look the run up in the index."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "command_id": self.command_id,
            "tenant": self.tenant,
            "subject": self.subject,
            "issued_at_ms": self.issued_at_ms,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            command_id=value["command_id"],
            tenant=value["tenant"],
            subject=value["subject"],
            issued_at_ms=value["issued_at_ms"],
        )


class ContentBlock(Record, frozen=True, kw_only=True):
    """One piece of a segment of the request."""

    SCHEMA: ClassVar[str] = "loom.values.ContentBlock"
    CONTENT: ClassVar[Mapping[str, str]] = {"text": "text", "data": "text"}

    type: str
    """trusted-text, untrusted-block or image."""
    text: str = ''
    """Text of a text block."""
    kind: str = ''
    """Provenance label of an untrusted block, for example web_content."""
    cacheable: bool = False
    """The sender allows the provider to cache up to here."""
    media_type: str = ''
    """Image only: image/png, image/jpeg, image/gif or image/webp."""
    data: str = ''
    """Image only: base64."""
    blob: BlobRef | None = None
    """The text or the base64 data when it is over the inline limit."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "type": self.type,
            "text": self.text,
            "kind": self.kind,
            "cacheable": self.cacheable,
            "media_type": self.media_type,
            "data": self.data,
            "blob": None if self.blob is None else self.blob.to_avro(),
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            type=value["type"],
            text=value["text"],
            kind=value["kind"],
            cacheable=value["cacheable"],
            media_type=value["media_type"],
            data=value["data"],
            blob=None if value["blob"] is None else BlobRef.from_avro(value["blob"]),
        )


class CredentialUse(Record, frozen=True, kw_only=True):
    """Uses of a stored credential by one agent and user for one purpose."""

    SCHEMA: ClassVar[str] = "loom.values.CredentialUse"

    scope: str
    """tenant, user or agent: whose credential it is."""
    name: str
    """Name of the credential."""
    version: int
    """Version that was used last."""
    purpose: str
    """What for, such as `tool mcp__crm__find`, `model anthropic`, `schedule nightly`."""
    scope_id: str = ''
    """Subject of the user or name of the agent; empty for the tenant."""
    agent: str = ''
    """Agent for which it was used."""
    user: str = ''
    """User for whom it was used."""
    run_id: str = ''
    """The last run with it: the root of its tree; empty for none."""
    count: int = 1
    """Number of uses."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "scope": self.scope,
            "scope_id": self.scope_id,
            "name": self.name,
            "version": self.version,
            "purpose": self.purpose,
            "agent": self.agent,
            "user": self.user,
            "run_id": self.run_id,
            "count": self.count,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            scope=value["scope"],
            scope_id=value["scope_id"],
            name=value["name"],
            version=value["version"],
            purpose=value["purpose"],
            agent=value["agent"],
            user=value["user"],
            run_id=value["run_id"],
            count=value["count"],
        )


class DefinitionChange(Record, frozen=True, kw_only=True):
    """One definition of a batch; the content is already merged."""

    SCHEMA: ClassVar[str] = "loom.values.DefinitionChange"
    CONTENT: ClassVar[Mapping[str, str]] = {"content": "text"}

    kind: str
    """Kind of definition: agent, skill, team, ..."""
    name: str
    """Name of the definition within its tenant and kind."""
    content: str = ''
    """The definition as canonical JSON; empty when it lies in content_blob."""
    content_blob: BlobRef | None = None
    """Where a long definition lies."""
    content_sha256: str = ''
    """Content hash, 'sha256:' and 64 hex digits."""
    tools: tuple[str, ...] | None = None
    """Tools that the content grants; null for kinds without tools."""
    root_tools: tuple[str, ...] | None = None
    """Tools of the root of the lineage; null: any."""
    parent_def_id: str = ''
    """Version that it was made from; empty for a first one."""
    base_content: str = ''
    """What the configuration files say, if it is made from that; canonical JSON."""
    base_blob: BlobRef | None = None
    """Where that lies when it is long."""
    base_sha256: str = ''
    """Content hash of that."""
    expect_active: str | None = None
    """Refuse unless this is the id of the active version, empty for none; null: whatever it is."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "content": self.content,
            "content_blob": None if self.content_blob is None else self.content_blob.to_avro(),
            "content_sha256": self.content_sha256,
            "tools": None if self.tools is None else list(self.tools),
            "root_tools": None if self.root_tools is None else list(self.root_tools),
            "parent_def_id": self.parent_def_id,
            "base_content": self.base_content,
            "base_blob": None if self.base_blob is None else self.base_blob.to_avro(),
            "base_sha256": self.base_sha256,
            "expect_active": self.expect_active,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            kind=value["kind"],
            name=value["name"],
            content=value["content"],
            content_blob=None if value["content_blob"] is None else BlobRef.from_avro(value["content_blob"]),
            content_sha256=value["content_sha256"],
            tools=None if value["tools"] is None else tuple(value["tools"]),
            root_tools=None if value["root_tools"] is None else tuple(value["root_tools"]),
            parent_def_id=value["parent_def_id"],
            base_content=value["base_content"],
            base_blob=None if value["base_blob"] is None else BlobRef.from_avro(value["base_blob"]),
            base_sha256=value["base_sha256"],
            expect_active=value["expect_active"],
        )


class DefinitionOverrides(Record, frozen=True, kw_only=True):
    """What a fork changes of a definition; null leaves a field as it is."""

    SCHEMA: ClassVar[str] = "loom.values.DefinitionOverrides"
    CONTENT: ClassVar[Mapping[str, str]] = {"system_prompt": "text"}

    provider: str | None = None
    """Provider id."""
    model: str | None = None
    """Model name at the provider."""
    effort: str | None = None
    """low, medium, high or empty."""
    system_prompt: str | None = None
    """System prompt."""
    tools: tuple[str, ...] | None = None
    """Narrows the tools; never adds one."""
    max_tokens: int | None = None
    """Bound of one answer; 0 leaves it to the driver."""
    max_iterations: int | None = None
    """Bound of model turns; 0 means the default."""
    retry_attempts: int | None = None
    """Retries of a failed model call, 0 to 5."""
    sampling: Sampling | None = None
    """Overrides the definition's field by field."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "provider": self.provider,
            "model": self.model,
            "effort": self.effort,
            "system_prompt": self.system_prompt,
            "tools": None if self.tools is None else list(self.tools),
            "max_tokens": self.max_tokens,
            "max_iterations": self.max_iterations,
            "retry_attempts": self.retry_attempts,
            "sampling": None if self.sampling is None else self.sampling.to_avro(),
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            provider=value["provider"],
            model=value["model"],
            effort=value["effort"],
            system_prompt=value["system_prompt"],
            tools=None if value["tools"] is None else tuple(value["tools"]),
            max_tokens=value["max_tokens"],
            max_iterations=value["max_iterations"],
            retry_attempts=value["retry_attempts"],
            sampling=None if value["sampling"] is None else Sampling.from_avro(value["sampling"]),
        )


class Envelope(Record, frozen=True, kw_only=True):
    """What every event begins with: term first and seq second, so that a reader peeks two varints and decodes the
    rest only when it needs it.
    """

    SCHEMA: ClassVar[str] = "loom.values.Envelope"

    term: int
    """Offset of the Claim under which the writer appended; a record whose term is not the partition's current term
    is stale. In a Claim: the term its writer saw last, -1 for none.
    """
    seq: int
    """Position in the aggregate, dense from 1. 0 in records that belong to a partition, not to an aggregate."""
    aggregate: str
    """Id of the aggregate, for the run family the run id. Empty in partition records."""
    tenant: str
    """Tenant that owns the aggregate."""
    at_ms: int
    """Time the decision was made, UTC milliseconds; it came in with the command."""
    prev: bytes
    """First 16 bytes of the SHA-256 of the aggregate's previous record as stored (value bytes); zeros at seq 1."""
    cause_id: str = ''
    """Id of the command that caused the event; empty when an effect of the aggregate itself caused it."""
    cause_offset: int = -1
    """Offset of that command in the commands partition of the same number; -1 when none."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "term": self.term,
            "seq": self.seq,
            "aggregate": self.aggregate,
            "tenant": self.tenant,
            "at_ms": self.at_ms,
            "cause_id": self.cause_id,
            "cause_offset": self.cause_offset,
            "prev": self.prev,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            term=value["term"],
            seq=value["seq"],
            aggregate=value["aggregate"],
            tenant=value["tenant"],
            at_ms=value["at_ms"],
            cause_id=value["cause_id"],
            cause_offset=value["cause_offset"],
            prev=value["prev"],
        )


class ForkPoint(Record, frozen=True, kw_only=True):
    """Where a fork leaves its origin: a place in the same partition, so that a reader can load the shared prefix
    from the log alone.
    """

    SCHEMA: ClassVar[str] = "loom.values.ForkPoint"

    run_id: str
    """The origin."""
    first_offset: int
    """Offset of its first event."""
    last_offset: int
    """Offset of the last event that is shared."""
    seq: int
    """Seq of that event in the origin."""
    digest: str
    """First 16 bytes of the SHA-256 of that event's record value, hex; by the hash chain it stands for the whole
    prefix.
    """

    def to_avro(self) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "seq": self.seq,
            "digest": self.digest,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            run_id=value["run_id"],
            first_offset=value["first_offset"],
            last_offset=value["last_offset"],
            seq=value["seq"],
            digest=value["digest"],
        )


class HookAct(Record, frozen=True, kw_only=True):
    """What one hook did about one tool call."""

    SCHEMA: ClassVar[str] = "loom.values.HookAct"
    CONTENT: ClassVar[Mapping[str, str]] = {"input": "text"}

    hook_id: str
    """Id of the registration."""
    owner: str
    """Who registered it."""
    name: str
    """Its name under that owner."""
    phase: str
    """pre or post."""
    act: str
    """denied, rewrote_input, widened_hosts, rewrote_result, or unavailable: it gave no usable answer."""
    input: str = ''
    """JSON text the tool was given; only with the last rewrote_input of a call."""
    url: str = ''
    """Where the call goes, as far as its input says; with widened_hosts."""
    hosts_added: tuple[str, ...] = ()
    """Hosts this one call may reach besides the run's; a leading dot takes in subdomains."""
    reason: str = ''
    """Why it is unavailable."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "hook_id": self.hook_id,
            "owner": self.owner,
            "name": self.name,
            "phase": self.phase,
            "act": self.act,
            "input": self.input,
            "url": self.url,
            "hosts_added": self.hosts_added,
            "reason": self.reason,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            hook_id=value["hook_id"],
            owner=value["owner"],
            name=value["name"],
            phase=value["phase"],
            act=value["act"],
            input=value["input"],
            url=value["url"],
            hosts_added=tuple(value["hosts_added"]),
            reason=value["reason"],
        )


class ImportOrigin(Record, frozen=True, kw_only=True):
    """Where an imported run happened. Its events are repeated here under this log's own terms and hash chain."""

    SCHEMA: ClassVar[str] = "loom.values.ImportOrigin"

    topic: str
    """Events topic it lies in there."""
    partition: int
    """Partition there."""
    first_offset: int
    """Offset of its first event there."""
    tenant: str
    """Tenant it belonged to there."""
    events: int
    """How many of its events were imported; the seqs are the same as there."""
    tail_digest: str
    """First 16 bytes of the SHA-256 of the last of these records there, hex; by the hash chain it stands for all
    of them.
    """
    bundle_sha256: str
    """Hash of the content of the bundle it came in, hex."""
    restored: bool = False
    """It came in a state file that an administrator restored, and was a run of that installation: what it says of
    its definition and its user holds here too. Of others both are only told.
    """

    def to_avro(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "first_offset": self.first_offset,
            "tenant": self.tenant,
            "events": self.events,
            "tail_digest": self.tail_digest,
            "bundle_sha256": self.bundle_sha256,
            "restored": self.restored,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            topic=value["topic"],
            partition=value["partition"],
            first_offset=value["first_offset"],
            tenant=value["tenant"],
            events=value["events"],
            tail_digest=value["tail_digest"],
            bundle_sha256=value["bundle_sha256"],
            restored=value["restored"],
        )


class InterruptionRequest(Record, frozen=True, kw_only=True):
    """What a call of the tool Interruption asks for, read off its arguments."""

    SCHEMA: ClassVar[str] = "loom.values.InterruptionRequest"
    CONTENT: ClassVar[Mapping[str, str]] = {"problem": "text", "question": "text", "options": "text", "context": "text"}

    index: int
    """Place of the call in its turn, from 0."""
    op: str = ''
    """ask, notify or cancel; empty when the arguments make no sense."""
    problem: str = ''
    """What is wrong with the arguments; empty when nothing is."""
    kind: str = 'question'
    """Of a question."""
    question: str = ''
    """What is asked, or told."""
    options: tuple[str, ...] = ()
    """The answers to choose from; empty: any."""
    context: str = ''
    """What the person should know."""
    priority: str = 'normal'
    """low, normal or high."""
    timeout_ms: int = 0
    """How long the question may wait; 0 = the default."""
    interrupt_id: str = ''
    """Of cancel: the question."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "index": self.index,
            "op": self.op,
            "problem": self.problem,
            "kind": self.kind,
            "question": self.question,
            "options": self.options,
            "context": self.context,
            "priority": self.priority,
            "timeout_ms": self.timeout_ms,
            "interrupt_id": self.interrupt_id,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            index=value["index"],
            op=value["op"],
            problem=value["problem"],
            kind=value["kind"],
            question=value["question"],
            options=tuple(value["options"]),
            context=value["context"],
            priority=value["priority"],
            timeout_ms=value["timeout_ms"],
            interrupt_id=value["interrupt_id"],
        )


class QueueRef(Record, frozen=True, kw_only=True):
    """A queue: the messages of a channel in one scope."""

    SCHEMA: ClassVar[str] = "loom.values.QueueRef"

    tenant: str
    """Tenant of the queue; empty for the scope global."""
    channel: str
    """Name of the channel."""
    scope: str
    """global, tenant, user or agent."""
    scope_id: str = ''
    """User or name of the agent; empty for global and tenant."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "tenant": self.tenant,
            "channel": self.channel,
            "scope": self.scope,
            "scope_id": self.scope_id,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            tenant=value["tenant"],
            channel=value["channel"],
            scope=value["scope"],
            scope_id=value["scope_id"],
        )


class LeaseRef(Record, frozen=True, kw_only=True):
    """Messages of a queue that a tool call returned; the queue is told that they were taken."""

    SCHEMA: ClassVar[str] = "loom.values.LeaseRef"

    queue: QueueRef
    """The queue."""
    lease_id: str
    """The lease."""
    taken: int
    """How many of its messages the call returned, from the first on."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "queue": self.queue.to_avro(),
            "lease_id": self.lease_id,
            "taken": self.taken,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            queue=QueueRef.from_avro(value["queue"]),
            lease_id=value["lease_id"],
            taken=value["taken"],
        )


class LimitNotice(Record, frozen=True, kw_only=True):
    """A limit that was reached, as it is reported."""

    SCHEMA: ClassVar[str] = "loom.values.LimitNotice"

    scope: str
    """Whose limit: operator, tenant or user."""
    scope_id: str
    """The tenant or the user; empty for operator."""
    severity: str
    """soft: told and no more; hard: nothing more is spent."""
    window: str = 'month'
    """What is counted together: month, a UTC calendar month."""
    unit: str = 'tokens'
    """What is counted: tokens, or micros (millionths of the currency)."""
    used: int = 0
    """So much is used, in units; 0 when it is not for the reader of the record."""
    limit: int = 0
    """The limit in units; 0 when it is not for the reader of the record."""
    message: str = ''
    """A sentence for people."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "scope": self.scope,
            "scope_id": self.scope_id,
            "severity": self.severity,
            "window": self.window,
            "unit": self.unit,
            "used": self.used,
            "limit": self.limit,
            "message": self.message,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            scope=value["scope"],
            scope_id=value["scope_id"],
            severity=value["severity"],
            window=value["window"],
            unit=value["unit"],
            used=value["used"],
            limit=value["limit"],
            message=value["message"],
        )


class MemoryBanked(Record, frozen=True, kw_only=True):
    """What a compaction left out and memory keeps for the consolidator; or why it does not."""

    SCHEMA: ClassVar[str] = "loom.values.MemoryBanked"

    pending_id: str = ''
    """Id of the pending entry; empty when there is none."""
    messages: int = 0
    """Messages in it."""
    error: str = ''
    """Why nothing is kept; empty when all went well."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "pending_id": self.pending_id,
            "messages": self.messages,
            "error": self.error,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            pending_id=value["pending_id"],
            messages=value["messages"],
            error=value["error"],
        )


class MemoryContext(Record, frozen=True, kw_only=True):
    """Memory in the system prompt of a run, as it was when the run started."""

    SCHEMA: ClassVar[str] = "loom.values.MemoryContext"
    CONTENT: ClassVar[Mapping[str, str]] = {"text": "text"}

    text: str
    """The text; empty when it is in the blob store."""
    text_blob: BlobRef | None = None
    """The text, when it is long."""
    replaces_prompt: bool = False
    """Whether the text is the definition's prompt with its placeholders filled; otherwise it follows that prompt."""
    positions: tuple[str, ...] = ()
    """Position tokens of the changes that were read, the newest of each partition."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "text_blob": None if self.text_blob is None else self.text_blob.to_avro(),
            "replaces_prompt": self.replaces_prompt,
            "positions": self.positions,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            text=value["text"],
            text_blob=None if value["text_blob"] is None else BlobRef.from_avro(value["text_blob"]),
            replaces_prompt=value["replaces_prompt"],
            positions=tuple(value["positions"]),
        )


class MemorySource(Record, frozen=True, kw_only=True):
    """Who changed a memory, and from where."""

    SCHEMA: ClassVar[str] = "loom.values.MemorySource"

    origin: str
    """agent_explicit, operator, consolidator, compaction, service or configuration; the server decides it."""
    run_id: str = ''
    """Run whose call it was; empty outside of runs."""
    session_id: str = ''
    """Session of the run."""
    turn: int = 0
    """Turn of the call."""
    call: int = 0
    """Number of the call in its turn."""
    agent: str = ''
    """Name of the run's agent."""
    user_id: str = ''
    """User of the run."""
    principal: str = ''
    """Subject of the principal, outside of runs."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "origin": self.origin,
            "run_id": self.run_id,
            "session_id": self.session_id,
            "turn": self.turn,
            "call": self.call,
            "agent": self.agent,
            "user_id": self.user_id,
            "principal": self.principal,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            origin=value["origin"],
            run_id=value["run_id"],
            session_id=value["session_id"],
            turn=value["turn"],
            call=value["call"],
            agent=value["agent"],
            user_id=value["user_id"],
            principal=value["principal"],
        )


class MemorySpan(Record, frozen=True, kw_only=True):
    """Where in a conversation a fact comes from."""

    SCHEMA: ClassVar[str] = "loom.values.MemorySpan"

    run_id: str
    """Run whose events have the text."""
    seq: int
    """Number of the event in the run."""
    start: int = 0
    """First character of the text, from 0."""
    end: int = 0
    """Character after the last one."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "seq": self.seq,
            "start": self.start,
            "end": self.end,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            run_id=value["run_id"],
            seq=value["seq"],
            start=value["start"],
            end=value["end"],
        )


class OutputCheck(Record, frozen=True, kw_only=True):
    """A final answer against the output schema of its run: a record, or what is wrong with it."""

    SCHEMA: ClassVar[str] = "loom.values.OutputCheck"
    CONTENT: ClassVar[Mapping[str, str]] = {"result": "text", "path": "text", "problem": "text", "error": "text"}

    result: str = ''
    """The record as JSON text; empty if the answer does not meet the schema."""
    path: str = ''
    """Where the first problem is, as a JSON path that begins with $."""
    problem: str = ''
    """What the model is told about an answer that does not meet the schema."""
    error: str = ''
    """What a person is told about it."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "result": self.result,
            "path": self.path,
            "problem": self.problem,
            "error": self.error,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            result=value["result"],
            path=value["path"],
            problem=value["problem"],
            error=value["error"],
        )


class ParentCall(Record, frozen=True, kw_only=True):
    """The tool call that a run was started by."""

    SCHEMA: ClassVar[str] = "loom.values.ParentCall"

    run_id: str
    """The parent."""
    agent_id: str
    """Handle of the parent."""
    root_run_id: str
    """The run the whole tree began with."""
    turn: int
    """Turn of the call."""
    index: int
    """Place of the call in its turn, from 0."""
    number: int
    """Place of the child in the call, from 0."""
    depth: int
    """1 for a child of a run of its own."""
    is_resident: bool = False
    """It parks after each answer, for further ones."""
    idle_ttl_s: int = 0
    """Seconds parked after which a resident child is closed; 0 = never."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "agent_id": self.agent_id,
            "root_run_id": self.root_run_id,
            "turn": self.turn,
            "index": self.index,
            "number": self.number,
            "depth": self.depth,
            "is_resident": self.is_resident,
            "idle_ttl_s": self.idle_ttl_s,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            run_id=value["run_id"],
            agent_id=value["agent_id"],
            root_run_id=value["root_run_id"],
            turn=value["turn"],
            index=value["index"],
            number=value["number"],
            depth=value["depth"],
            is_resident=value["is_resident"],
            idle_ttl_s=value["idle_ttl_s"],
        )


class Provenance(Record, frozen=True, kw_only=True):
    """What a fact is and where it was learnt."""

    SCHEMA: ClassVar[str] = "loom.values.Provenance"

    fact_class: str = ''
    """Class of the fact: preference, fact, decision, identity, constraint or another word of the writer."""
    origin: str = ''
    """Origin of what it was learnt from: that of the pending entry, or of the writer."""
    source_session_id: str = ''
    """Session in which it was learnt."""
    source_run_id: str = ''
    """Run in which it was learnt."""
    pending_id: str = ''
    """Pending entry that it was made of."""
    spans: tuple[MemorySpan, ...] = ()
    """The passages it was learnt from."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "fact_class": self.fact_class,
            "origin": self.origin,
            "source_session_id": self.source_session_id,
            "source_run_id": self.source_run_id,
            "pending_id": self.pending_id,
            "spans": [item.to_avro() for item in self.spans],
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            fact_class=value["fact_class"],
            origin=value["origin"],
            source_session_id=value["source_session_id"],
            source_run_id=value["source_run_id"],
            pending_id=value["pending_id"],
            spans=tuple(MemorySpan.from_avro(item) for item in value["spans"]),
        )


class SkillPin(Record, frozen=True, kw_only=True):
    """The version of a skill that a run keeps to since its first use."""

    SCHEMA: ClassVar[str] = "loom.values.SkillPin"

    name: str
    """Name of the skill."""
    def_id: str
    """Id of the version; empty for a skill from a file."""
    version: int
    """Number of the version in its line; 0 for a skill from a file."""
    content_sha256: str
    """Hash of the version's content: sha256: and hex."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "def_id": self.def_id,
            "version": self.version,
            "content_sha256": self.content_sha256,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            name=value["name"],
            def_id=value["def_id"],
            version=value["version"],
            content_sha256=value["content_sha256"],
        )


class ResultDetails(Record, frozen=True, kw_only=True):
    """What a tool call means for its run besides its result. Few calls have any, so the others pay one byte."""

    SCHEMA: ClassVar[str] = "loom.values.ResultDetails"

    asks_compaction: bool = False
    """The run asked for a compaction with this call; it comes before the next turn."""
    positions: tuple[str, ...] = ()
    """Positions of what the call wrote to other aggregates: later reads of the run wait for them."""
    skill_pin: SkillPin | None = None
    """The version of the skill that the call used."""
    channels: tuple[ChannelUse, ...] = ()
    """Messages that the call published or returned."""
    leases: tuple[LeaseRef, ...] = ()
    """What the call took from queues."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "asks_compaction": self.asks_compaction,
            "positions": self.positions,
            "skill_pin": None if self.skill_pin is None else self.skill_pin.to_avro(),
            "channels": [item.to_avro() for item in self.channels],
            "leases": [item.to_avro() for item in self.leases],
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            asks_compaction=value["asks_compaction"],
            positions=tuple(value["positions"]),
            skill_pin=None if value["skill_pin"] is None else SkillPin.from_avro(value["skill_pin"]),
            channels=tuple(ChannelUse.from_avro(item) for item in value["channels"]),
            leases=tuple(LeaseRef.from_avro(item) for item in value["leases"]),
        )


class RunOptions(Record, frozen=True, kw_only=True):
    """Options of a run, carried unchanged from its command to RunStarted and to its state."""

    SCHEMA: ClassVar[str] = "loom.values.RunOptions"
    CONTENT: ClassVar[Mapping[str, str]] = {
        "metadata": "text",
        "parent_context": "text",
        "payload_metadata": "untrusted",
        "on_complete": "hook",
    }

    user_tier: str = ''
    """Routing plan of the user."""
    allowed_hosts: tuple[str, ...] | None = None
    """Three states: null leaves the operator's list, [] denies all, a list intersects."""
    web_search_filter: str = ''
    """drop or keep: search results outside allowed_hosts; empty without allowed_hosts."""
    interactive: bool = False
    """Park at the end of a turn instead of completing."""
    run_timeout_s: int = 0
    """Seconds of work after which the run fails, time paused or parked not counted. In a command 0 leaves the
    definition's; in a run 0 is no limit.
    """
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Trusted, non-secret data; values are JSON texts."""
    parent_context: Mapping[str, str] = field(default_factory=dict)
    """Opaque lineage of the caller."""
    payload_metadata: Mapping[str, str] = field(default_factory=dict)
    """Data from the body of a trigger, untrusted; values are JSON texts."""
    credentials: tuple[str, ...] = ()
    """Names of the credentials of the run, or of the root of its tree; their values are kept outside the log,
    encrypted, until that run ends.
    """
    operator_key_restricted: bool = False
    """The run and its children may not use the operator's provider keys."""
    on_complete: tuple[str, ...] = ()
    """What happens when the run has ended: JSON texts of the hooks, in order."""
    trigger: str = ''
    """Full id of the aggregate that is told of the end of the run, such as schedule:acme/nightly; empty: none."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "user_tier": self.user_tier,
            "allowed_hosts": None if self.allowed_hosts is None else list(self.allowed_hosts),
            "web_search_filter": self.web_search_filter,
            "interactive": self.interactive,
            "run_timeout_s": self.run_timeout_s,
            "metadata": self.metadata,
            "parent_context": self.parent_context,
            "payload_metadata": self.payload_metadata,
            "credentials": self.credentials,
            "operator_key_restricted": self.operator_key_restricted,
            "on_complete": self.on_complete,
            "trigger": self.trigger,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            user_tier=value["user_tier"],
            allowed_hosts=None if value["allowed_hosts"] is None else tuple(value["allowed_hosts"]),
            web_search_filter=value["web_search_filter"],
            interactive=value["interactive"],
            run_timeout_s=value["run_timeout_s"],
            metadata=value["metadata"],
            parent_context=value["parent_context"],
            payload_metadata=value["payload_metadata"],
            credentials=tuple(value["credentials"]),
            operator_key_restricted=value["operator_key_restricted"],
            on_complete=tuple(value["on_complete"]),
            trigger=value["trigger"],
        )


class RunPosition(Record, frozen=True, kw_only=True):
    """Where the events of an earlier run lie in the same partition, so that a reader can load it from the log
    alone.
    """

    SCHEMA: ClassVar[str] = "loom.values.RunPosition"

    run_id: str
    """The earlier run."""
    first_offset: int
    """Offset of its first event."""
    last_offset: int
    """Offset of its last event."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            run_id=value["run_id"],
            first_offset=value["first_offset"],
            last_offset=value["last_offset"],
        )


class ScheduleSpec(Record, frozen=True, kw_only=True):
    """When a schedule fires, and what happens when it cannot."""

    SCHEMA: ClassVar[str] = "loom.values.ScheduleSpec"

    times: str
    """Five fields of cron, a name such as @hourly, or @every with a duration; empty: only run-now fires it."""
    timezone: str = ''
    """IANA name of the zone of the five fields; empty: UTC."""
    jitter_ms: int = 0
    """Each instant is put off by 0 to this many milliseconds, always the same for one instant."""
    overlap: str = 'skip'
    """While a run of it works: skip, queue_one, cancel or allow."""
    catch_up_max: int = 1
    """Instants that passed unseen: 1: all become one fire; 0: none; N: the latest N in order."""
    max_fires: int = 0
    """Fires after which it is retired; 0: no limit."""
    is_enabled: bool = True
    """Whether instants fire."""
    problem: str = ''
    """Why no run can start; each fire fails with it. Empty: nothing."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "times": self.times,
            "timezone": self.timezone,
            "jitter_ms": self.jitter_ms,
            "overlap": self.overlap,
            "catch_up_max": self.catch_up_max,
            "max_fires": self.max_fires,
            "is_enabled": self.is_enabled,
            "problem": self.problem,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            times=value["times"],
            timezone=value["timezone"],
            jitter_ms=value["jitter_ms"],
            overlap=value["overlap"],
            catch_up_max=value["catch_up_max"],
            max_fires=value["max_fires"],
            is_enabled=value["is_enabled"],
            problem=value["problem"],
        )


class Segment(Record, frozen=True, kw_only=True):
    """A part of the request with one role."""

    SCHEMA: ClassVar[str] = "loom.values.Segment"

    role: str
    """system or user."""
    content: tuple[ContentBlock, ...]
    """Blocks in order."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "role": self.role,
            "content": [item.to_avro() for item in self.content],
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            role=value["role"],
            content=tuple(ContentBlock.from_avro(item) for item in value["content"]),
        )


class ScheduledRun(Record, frozen=True, kw_only=True):
    """The run that a schedule starts."""

    SCHEMA: ClassVar[str] = "loom.values.ScheduledRun"
    CONTENT: ClassVar[Mapping[str, str]] = {"metadata": "text", "on_complete": "hook"}

    agent: str
    """Name of the agent."""
    segments: tuple[Segment, ...] = ()
    """The request."""
    user_id: str = ''
    """User on whose behalf it works."""
    user_tier: str = ''
    """Routing plan of the user."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Trusted data; values are JSON texts."""
    on_complete: tuple[str, ...] = ()
    """What happens when it has ended: JSON texts of hooks, in order."""
    operator_key_restricted: bool = False
    """The run may not use the operator's provider keys."""
    credentials_env: Mapping[str, str] = field(default_factory=dict)
    """Name of a credential -> environment variable of the runtime that has its value."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "agent": self.agent,
            "segments": [item.to_avro() for item in self.segments],
            "user_id": self.user_id,
            "user_tier": self.user_tier,
            "metadata": self.metadata,
            "on_complete": self.on_complete,
            "operator_key_restricted": self.operator_key_restricted,
            "credentials_env": self.credentials_env,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            agent=value["agent"],
            segments=tuple(Segment.from_avro(item) for item in value["segments"]),
            user_id=value["user_id"],
            user_tier=value["user_tier"],
            metadata=value["metadata"],
            on_complete=tuple(value["on_complete"]),
            operator_key_restricted=value["operator_key_restricted"],
            credentials_env=value["credentials_env"],
        )


class Spawn(Record, frozen=True, kw_only=True):
    """A sub-agent that a run wants, as its model asked for it."""

    SCHEMA: ClassVar[str] = "loom.values.Spawn"
    CONTENT: ClassVar[Mapping[str, str]] = {"prompt": "text"}

    agent: str
    """Name of the agent."""
    prompt: str
    """What the child is told, as a user text."""
    def_id: str = ''
    """Version of the definition to use; empty: the present one."""
    compaction: str = ''
    """JSON object of overrides for context compaction; empty: none."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "agent": self.agent,
            "prompt": self.prompt,
            "def_id": self.def_id,
            "compaction": self.compaction,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            agent=value["agent"],
            prompt=value["prompt"],
            def_id=value["def_id"],
            compaction=value["compaction"],
        )


class SurfacedMessage(Record, frozen=True, kw_only=True):
    """A delayed message that has become visible."""

    SCHEMA: ClassVar[str] = "loom.values.SurfacedMessage"

    number: int
    """Number with which it was published."""
    position: int
    """Its place among the visible messages."""
    visible_ns: int
    """Time in its cursor, nanoseconds since 1970."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "position": self.position,
            "visible_ns": self.visible_ns,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            number=value["number"],
            position=value["position"],
            visible_ns=value["visible_ns"],
        )


class TenantQuota(Record, frozen=True, kw_only=True):
    """Bounds of what a tenant, a user or a token may use at once or in a minute; -1: no bound."""

    SCHEMA: ClassVar[str] = "loom.values.TenantQuota"

    runs_at_once: int = -1
    """Top-level runs that work at once."""
    runs_per_minute: int = -1
    """Top-level runs that start in a minute."""
    calls_per_minute: int = -1
    """Requests in a minute."""
    open_streams: int = -1
    """Event streams that are open at once."""
    users: int = -1
    """Registered users."""
    tokens: int = -1
    """Tokens that are in force."""
    blob_bytes: int = -1
    """Bytes of stored content."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "runs_at_once": self.runs_at_once,
            "runs_per_minute": self.runs_per_minute,
            "calls_per_minute": self.calls_per_minute,
            "open_streams": self.open_streams,
            "users": self.users,
            "tokens": self.tokens,
            "blob_bytes": self.blob_bytes,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            runs_at_once=value["runs_at_once"],
            runs_per_minute=value["runs_per_minute"],
            calls_per_minute=value["calls_per_minute"],
            open_streams=value["open_streams"],
            users=value["users"],
            tokens=value["tokens"],
            blob_bytes=value["blob_bytes"],
        )


class ToolCall(Record, frozen=True, kw_only=True):
    """A call the model asks for."""

    SCHEMA: ClassVar[str] = "loom.values.ToolCall"
    CONTENT: ClassVar[Mapping[str, str]] = {"input": "text"}

    id: str
    """Id that pairs the call with its result, unique in the run."""
    name: str
    """Tool name."""
    input: str
    """Arguments as the JSON text the model produced."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "input": self.input,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            id=value["id"],
            name=value["name"],
            input=value["input"],
        )


class ToolListPin(Record, frozen=True, kw_only=True):
    """The list of tools of an MCP server that a model was shown tools of."""

    SCHEMA: ClassVar[str] = "loom.values.ToolListPin"

    server: str
    """Name of the server, as it is part of the names of its tools."""
    digest: str
    """Hash of the list, as in ToolsListed."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "server": self.server,
            "digest": self.digest,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            server=value["server"],
            digest=value["digest"],
        )


class Usage(Record, frozen=True, kw_only=True):
    """Tokens of one model turn or the sum of a run."""

    SCHEMA: ClassVar[str] = "loom.values.Usage"

    input_tokens: int = 0
    """Tokens of the prompt, without cached ones."""
    output_tokens: int = 0
    """Tokens of the answer, reasoning included."""
    cache_creation_input_tokens: int = 0
    """Tokens written to the provider's cache."""
    cache_read_input_tokens: int = 0
    """Tokens read from the provider's cache."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cache_creation_input_tokens": self.cache_creation_input_tokens,
            "cache_read_input_tokens": self.cache_read_input_tokens,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            input_tokens=value["input_tokens"],
            output_tokens=value["output_tokens"],
            cache_creation_input_tokens=value["cache_creation_input_tokens"],
            cache_read_input_tokens=value["cache_read_input_tokens"],
        )


RECORDS = (
    AccessToken,
    AgentDefinition,
    AgentGrants,
    ApprovalPolicy,
    ApprovalVote,
    ApproverGroup,
    BlobRef,
    CallRef,
    CallVerdict,
    ChannelUse,
    CommandEnvelope,
    Compaction,
    ContentBlock,
    CoreBlock,
    CredentialUse,
    DefinitionChange,
    DefinitionOverrides,
    DefinitionPin,
    Envelope,
    ForkPoint,
    HookAct,
    ImportOrigin,
    InterruptionRequest,
    InterruptionTerms,
    LeaseRef,
    LimitNotice,
    MemoryBanked,
    MemoryContext,
    MemorySource,
    MemorySpan,
    MeterAmount,
    ModelChoice,
    OutputCheck,
    ParentCall,
    Provenance,
    QueueRef,
    ResultDetails,
    RunOptions,
    RunPosition,
    Sampling,
    ScheduleSpec,
    ScheduledRun,
    Segment,
    SkillPin,
    Spawn,
    SurfacedMessage,
    TenantQuota,
    ToolCall,
    ToolListPin,
    Usage,
    VolumeGrant,
)
