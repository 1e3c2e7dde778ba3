"""Records of the namespace loom.values."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import ClassVar

from msgspec import field

from loomlog.schemas.records import Record


class AccessToken(Record, frozen=True, kw_only=True):
    """A token that gives access. Its text is nowhere: only what is computed from it under the pepper."""

    SCHEMA: ClassVar[str] = "loom.values.AccessToken"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "def_id", "name", "tenant", "subject", "user", "scopes", "hashed", "suffix", "expires_at_ms", "is_imported",
    )

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


class BlobRef(Record, frozen=True, kw_only=True):
    """Payload kept in the content-addressed blob store because it is over the inline limit."""

    SCHEMA: ClassVar[str] = "loom.values.BlobRef"

    sha256: str
    """Hex SHA-256 of the bytes, also the name in the store."""
    size_bytes: int
    """Size of the bytes."""
    media_type: str = 'text/plain'
    """Media type, for text always UTF-8."""


class ApprovalPolicy(Record, frozen=True, kw_only=True):
    """Rules for the tool calls of a run, pinned by hash."""

    SCHEMA: ClassVar[str] = "loom.values.ApprovalPolicy"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "source", "version", "sha256", "text", "text_blob", "is_inherited", "agents", "reads_tree_cost",
    )

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
    reads_tree_cost: bool = False
    """Its rules read what the tree has cost, so each run that has it reports its cost to the root."""


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


class DefinitionPin(Record, frozen=True, kw_only=True):
    """The version of a definition that a run keeps to."""

    SCHEMA: ClassVar[str] = "loom.values.DefinitionPin"

    def_id: str
    """Id of the version."""
    version: int
    """Number of the version in its line."""
    content_sha256: str
    """Hash of the version's content: sha256: and hex."""


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


class ModelChoice(Record, frozen=True, kw_only=True):
    """A model a run may go to."""

    SCHEMA: ClassVar[str] = "loom.values.ModelChoice"

    provider: str
    """Provider id."""
    model: str
    """Model name at the provider."""
    effort: str = ''
    """low, medium, high or empty."""


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


class VolumeGrant(Record, frozen=True, kw_only=True):
    """A volume an agent may use; its path is a matter of the process that runs the tool."""

    SCHEMA: ClassVar[str] = "loom.values.VolumeGrant"

    name: str
    """Name of the volume in the configuration."""
    mode: str
    """ro or rw."""
    is_default: bool = False
    """Used when a tool call names none."""


class AgentDefinition(Record, frozen=True, kw_only=True):
    """The definition a run is pinned to, resolved: no tier, alias or pattern is left in it."""

    SCHEMA: ClassVar[str] = "loom.values.AgentDefinition"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "name", "sha256", "provider", "model", "effort", "system_prompt", "tools", "max_tokens", "max_iterations",
        "unbounded_iterations", "retry_attempts", "sampling", "volumes", "unknown_outcome", "run_timeout_s",
        "candidates", "fallback_on_error", "max_fallback_attempts", "rate_limit_cooldown_ms", "pin_after_success",
        "max_concurrent_children", "compaction", "interruption", "code_body", "code_blob", "pin", "system_prompt_blob",
        "grants", "approvals", "output_schema", "output_schema_blob", "output_schema_sha256", "output_retries",
    )

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


class ApprovalVote(Record, frozen=True, kw_only=True):
    """What one person says about a call that needs approval."""

    SCHEMA: ClassVar[str] = "loom.values.ApprovalVote"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "by", "is_approved", "reason", "surface", "at_ms", "command_id",
    )
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


class ApproverGroup(Record, frozen=True, kw_only=True):
    """People who may approve a call, and how many of them must."""

    SCHEMA: ClassVar[str] = "loom.values.ApproverGroup"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "subjects", "scopes", "approvals", "within_ms",
    )

    within_ms: int
    """How long they are waited for."""
    subjects: tuple[str, ...] = ()
    """Subjects that may."""
    scopes: tuple[str, ...] = ()
    """Scopes of access of which one is enough."""
    approvals: int = 1
    """Different people who must approve."""


class CallRef(Record, frozen=True, kw_only=True):
    """A tool call of a run."""

    SCHEMA: ClassVar[str] = "loom.values.CallRef"

    run_id: str
    """The run."""
    turn: int
    """Its turn."""
    index: int
    """Place in that turn."""


class MeterAmount(Record, frozen=True, kw_only=True):
    """What a call adds to a total that rules read."""

    SCHEMA: ClassVar[str] = "loom.values.MeterAmount"

    meter: str
    """Key of the total."""
    amount: int
    """Calls, or millionths of a sum."""


class TreeTotal(Record, frozen=True, kw_only=True):
    """A total over the runs of a tree, or a change of it."""

    SCHEMA: ClassVar[str] = "loom.values.TreeTotal"

    meter: str
    """Key of the total."""
    amount: int = 0
    """Calls that were allowed, or millionths of their sum."""
    pending: int = 0
    """The same of calls that wait for approval."""


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
    tree_amounts: tuple[MeterAmount, ...] = ()
    """What the call adds to totals over the tree once it is allowed."""
    tree_totals: tuple[TreeTotal, ...] = ()
    """Totals over the tree that it rests on, before the call; without a key what the tree has cost."""


class ChannelUse(Record, frozen=True, kw_only=True):
    """A message that a tool call published or returned."""

    SCHEMA: ClassVar[str] = "loom.values.ChannelUse"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "kind", "channel", "scope", "scope_id", "message_id", "payload_bytes", "dropped_oldest", "cursor", "preview",
        "attempt",
    )
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


class CredentialUse(Record, frozen=True, kw_only=True):
    """Uses of a stored credential by one agent and user for one purpose."""

    SCHEMA: ClassVar[str] = "loom.values.CredentialUse"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "scope", "scope_id", "name", "version", "purpose", "agent", "user", "run_id", "count",
    )

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


class Envelope(Record, frozen=True, kw_only=True):
    """What every event begins with: term first and seq second, so that a reader peeks two varints and decodes the
    rest only when it needs it.
    """

    SCHEMA: ClassVar[str] = "loom.values.Envelope"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "term", "seq", "aggregate", "tenant", "at_ms", "cause_id", "cause_offset", "prev",
    )

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


class LeaseRef(Record, frozen=True, kw_only=True):
    """Messages of a queue that a tool call returned; the queue is told that they were taken."""

    SCHEMA: ClassVar[str] = "loom.values.LeaseRef"

    queue: QueueRef
    """The queue."""
    lease_id: str
    """The lease."""
    taken: int
    """How many of its messages the call returned, from the first on."""


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


class MemoryBanked(Record, frozen=True, kw_only=True):
    """What a compaction left out and memory keeps for the consolidator; or why it does not."""

    SCHEMA: ClassVar[str] = "loom.values.MemoryBanked"

    pending_id: str = ''
    """Id of the pending entry; empty when there is none."""
    messages: int = 0
    """Messages in it."""
    error: str = ''
    """Why nothing is kept; empty when all went well."""


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


class Segment(Record, frozen=True, kw_only=True):
    """A part of the request with one role."""

    SCHEMA: ClassVar[str] = "loom.values.Segment"

    role: str
    """system or user."""
    content: tuple[ContentBlock, ...]
    """Blocks in order."""


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


class SurfacedMessage(Record, frozen=True, kw_only=True):
    """A delayed message that has become visible."""

    SCHEMA: ClassVar[str] = "loom.values.SurfacedMessage"

    number: int
    """Number with which it was published."""
    position: int
    """Its place among the visible messages."""
    visible_ns: int
    """Time in its cursor, nanoseconds since 1970."""


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


class ToolListPin(Record, frozen=True, kw_only=True):
    """The list of tools of an MCP server that a model was shown tools of."""

    SCHEMA: ClassVar[str] = "loom.values.ToolListPin"

    server: str
    """Name of the server, as it is part of the names of its tools."""
    digest: str
    """Hash of the list, as in ToolsListed."""


class TreeGuard(Record, frozen=True, kw_only=True):
    """What a rule expects of a total over the runs of a tree, when a call is decided about."""

    SCHEMA: ClassVar[str] = "loom.values.TreeGuard"

    meter: str = ''
    """Key of the total; empty: what the models of the tree have cost."""
    amount: int = 0
    """What the call itself adds to the total that is compared."""
    unit: int = 1
    """Parts of the total that are one unit of the bounds."""
    greater_than: float | None = None
    """Bound; null: none."""
    at_least: float | None = None
    """Bound; null: none."""
    less_than: float | None = None
    """Bound; null: none."""
    at_most: float | None = None
    """Bound; null: none."""


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


class VerdictCase(Record, frozen=True, kw_only=True):
    """What a policy says about a call if the totals of the tree are as its guards expect."""

    SCHEMA: ClassVar[str] = "loom.values.VerdictCase"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "policy", "guards", "verdict",
    )

    policy: int
    """Place of the policy among those of the run, from 0."""
    verdict: CallVerdict
    """What it says then."""
    guards: tuple[TreeGuard, ...] = ()
    """All of them must hold; none: in every other case."""


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
    TreeGuard,
    TreeTotal,
    Usage,
    VerdictCase,
    VolumeGrant,
)
