"""JSON of the answers that only HTTP has. Those of runs and of the log: services/application/queries/json_types.py.

An endpoint's return type names its class (`JsonResponse[Cancelled]`); mypy checks the literals, and openapi.py derives
the schemas. Times are RFC 3339, money is in millionths of `currency`.

Before: the endpoints. After: openapi.py.
"""

from collections.abc import Mapping
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from loomlog.services.application.queries.json_types import (
    EventRecord,
    Interrupt,
    JsonObject,
    LeftOut,
    Resident,
    ResidentState,
    Run,
    SessionSummary,
    StateFile,
    TranscriptFrame,
)


class Error(TypedDict):
    """A refusal. Further keys belong to the code."""

    code: str
    error: str


# --- runs ------------------------------------------------------------------------------------------------------------


class RunList(TypedDict):
    """A page of runs; `next` is the cursor of the following page."""

    runs: list[Run]
    next: str | None


class WaitingCounts(TypedDict):
    """Numbers of live runs by what they wait for; a run may be in several. `pause_requested`: paused or about to be."""

    awaiting_input: int
    interrupted: int
    pause_requested: int
    quarantined: int


class RunCountsView(TypedDict):
    """Numbers of runs by status. Without `is_exact` there are more than `counted_max` runs: the numbers of ended ones
    are those among the newest `counted_max`, so "at least". `is_live_exact` says the same of the live runs alone.
    """

    running: int
    completed: int
    failed: int
    cancelled: int
    waiting: WaitingCounts
    is_exact: bool
    is_live_exact: bool
    counted_max: int


class AgentList(TypedDict):
    """A page of a user's runs; `next` is the cursor of the following page."""

    agents: list[Run]
    next: str | None


class Transcript(TypedDict):
    """A page of the stored frames of a session."""

    session: SessionSummary
    events: list[TranscriptFrame]
    next: str | None


class InputAcknowledged(TypedDict):
    """The text is in the log."""

    run_id: str
    delivered: Literal[True]


class CallResolved(TypedDict):
    """`repeated`: the call had been resolved so before."""

    run_id: str
    call: str
    repeated: bool


class Cancelled(TypedDict):
    """The end of a run; `cascaded` has the handles of its descendants, which end with it."""

    cancelled: bool
    agent_id: str
    run_id: str
    cascaded: list[str]
    status: str
    reason: str


class Pausing(TypedDict):
    """The run pauses before its next model call."""

    run_id: str
    agent_id: str
    pausing: Literal[True]


class Resumed(TypedDict):
    """The pause of the run itself is lifted."""

    run_id: str
    agent_id: str
    resumed: Literal[True]


class Quarantined(TypedDict):
    """The run is parked until it is released."""

    run_id: str
    agent_id: str
    quarantined: Literal[True]


class Released(TypedDict):
    """The run is folded again and continues."""

    run_id: str
    agent_id: str
    released: Literal[True]


class Compacted(TypedDict):
    """`applied`: to the live run, as a marker for the session's next run, or not at all."""

    run_id: str
    compacted: bool
    before_tokens: int
    after_tokens: int
    applied: Literal["live", "marker", "noop"]


class SessionCopied(TypedDict):
    """A new session with the conversation of another."""

    new_session_id: str
    seed_run_id: str
    events_copied: int
    compacted: bool


class TurnCancelled(TypedDict):
    """`parked`: the run waits for input."""

    run_id: str
    stopped: Literal[True]
    parked: bool


class InterruptResolved(TypedDict):
    """The question is closed."""

    interrupt_id: str
    status: str
    resolved_at: str


class InterruptList(TypedDict):
    """A page of questions; `total` counts all pages."""

    interrupts: list[Interrupt]
    total: int
    next: str | None


class SpawnResult(TypedDict):
    """Result of one run of a batch."""

    agent_id: str | None
    run_id: str | None
    session_id: str | None
    status: str
    stop_reason: str | None
    final_text: str
    usage: JsonObject | None
    error: str | None
    error_code: str | None
    limits: list[JsonObject]
    parent_context: JsonObject | None
    position: str | None


class Batch(TypedDict):
    """Results in the order of the request; `spawned` counts the runs that were started."""

    results: list[SpawnResult]
    spawned: int


class ResidentList(TypedDict):
    """A page of resident sub-agents."""

    residents: list[Resident]
    next: str | None


class ResidentClosed(TypedDict):
    """The resident sub-agent has ended."""

    child_run_id: str
    state: str
    closed: Literal[True]


class ResidentTurnCancelled(TypedDict):
    """The turn of the resident sub-agent is cancelled."""

    child_run_id: str
    state: ResidentState
    cancelled: Literal[True]


class BulkResult(TypedDict):
    """Outcome for one run."""

    run_id: str
    outcome: str
    position: str | None
    code: str | None
    error: str | None


class BulkAction(TypedDict):
    """A bulk action: a preview (`dry_run`) has matched, more and runs, the action itself results and next."""

    action: str
    where: str
    dry_run: bool
    matched: NotRequired[int]
    more: NotRequired[bool]
    runs: NotRequired[list[Run]]
    results: NotRequired[list[BulkResult]]
    next: NotRequired[str | None]


# --- the log ---------------------------------------------------------------------------------------------------------


class EventList(TypedDict):
    """A page of records. `resume`: the cursor of what is written after this page, of a list of one run or partition."""

    events: list[EventRecord]
    next: str | None
    resume: str | None


class ImportedRun(TypedDict):
    """`imported` false: the run was here before."""

    run_id: str
    imported: bool


class Imported(TypedDict):
    """The imported run, and all runs of its file."""

    run_id: str
    imported: bool
    runs: list[ImportedRun]


# --- hooks, pauses, limits -------------------------------------------------------------------------------------------


class HookCreated(TypedDict):
    """`signing_secret` is shown once, to the caller that registers the hook first."""

    id: str
    signing_secret: str | None


class Hook(TypedDict):
    """A registered hook."""

    id: str
    tenant_id: str
    owner: str
    name: str
    phase: str
    agents: tuple[str, ...]
    tools: tuple[str, ...]
    callback_url: str
    fail_mode: str
    timeout_ms: int
    registered_at: str


class HookList(TypedDict):
    """Registered hooks."""

    hooks: list[Hook]


class HookRemoved(TypedDict):
    """The id of the hook."""

    deleted: str


class PauseApplied(TypedDict):
    """State of the installation after a pause; `warnings` names runs that have not stopped yet."""

    state: str
    duration_ms: int
    force_cancelled_count: int
    paused_runs_count: int
    warnings: list[str]


class PauseLifted(TypedDict):
    """State of the installation after a pause was lifted."""

    state: str
    resumed_runs_count: int


class PauseEntry(TypedDict):
    """A pause wider than a run."""

    scope: str
    tenant: str | None
    agent: str | None
    reason: str | None
    by: str
    at: str


class PauseState(TypedDict):
    """Pauses in force."""

    state: str
    paused_runs_count: int
    pauses: list[PauseEntry]


class Limit(TypedDict):
    """A budget limit with what is used and reserved of it in this month."""

    tenant_id: str
    scope: str
    scope_id: str
    soft_limit: int | None
    hard_limit: int | None
    used: int
    reserved: int
    strict: bool
    soft_limit_micros: int | None
    hard_limit_micros: int | None
    used_micros: int
    reserved_micros: int
    currency: str | None
    updated_at: str
    updated_by: str


class LimitList(TypedDict):
    """Budget limits."""

    limits: list[Limit]


class Aggregate(TypedDict):
    """An aggregate as far as it can be folded; `quarantine` says why nothing is decided in it, `position` is that of
    its last event.
    """

    aggregate: str
    seq: int
    quarantine: str | None
    state: dict[str, Any] | None
    position: str


class AggregateRepaired(TypedDict):
    """The event that restates an aggregate."""

    aggregate: str
    position: str


UsageReport = TypedDict(
    "UsageReport",
    {"group_by": list[str], "from": str | None, "to": str | None, "rows": list[dict[str, Any]]},
)
"""Tokens and cost by group."""


# --- state files -----------------------------------------------------------------------------------------------------


class StateFileList(TypedDict):
    """Stored state files, newest first."""

    entries: list[StateFile]


class StateSection(TypedDict):
    """A section of a state."""

    version: int
    entries: list[JsonObject]


class State(TypedDict):
    """The content of a state file."""

    format: str
    schema_version: int
    created_at: str
    label: str
    tenant: NotRequired[str]
    sections: Mapping[str, StateSection]
    counts: JsonObject
    sha256: str


class StateFileContent(StateFile):
    """A stored state file with its content."""

    json_content: State


class Restored(TypedDict):
    """Counts of a restore; `runs_skipped` and `aggregates_skipped` were here before and are unchanged."""

    dry_run: bool
    runs_restored: int
    runs_continued: int
    runs_skipped: int
    runs_failed: int
    runs_sealed: int
    events_restored: int
    pauses_restored: int
    limits_restored: int
    blobs_restored: int
    aggregates_restored: int
    aggregates_skipped: int
    aggregates_failed: int
    aggregate_events_restored: int
    memory_restored: int
    """Keys of memory that were brought back."""
    left_out: list[LeftOut]
    """What the file does not have."""
    warnings: list[str]
    positions: list[str]


# --- the process and its models --------------------------------------------------------------------------------------


class Health(TypedDict):
    """This process."""

    ok: Literal[True]
    version: str
    commit: str
    built: str
    uptime_seconds: float
    metrics_enabled: bool
    replica_id: str
    replicas: list[str]


class Readiness(TypedDict):
    """`missing` names the dependencies that do not answer."""

    ready: bool
    missing: list[str]
    code: NotRequired[Literal["not_ready"]]
    error: NotRequired[str]


class Capabilities(TypedDict):
    """Capabilities of this installation."""

    mcp_allow_dynamic_stdio: bool
    http_host_allowlist_configured: bool


class Me(TypedDict):
    """The caller, by its token."""

    tenant_id: str
    subject: str
    name: str
    scopes: list[str]
    is_admin: bool
    is_isolated: bool
    legacy: bool
    open_mode: bool
    capabilities: Capabilities


class LoginConfig(TypedDict):
    """What the sign-in page needs before anybody is signed in."""

    login_origins: list[str]
    open_mode: bool
    version: str


class ProviderModels(TypedDict):
    """Models that a provider lists at this moment."""

    provider: str
    models: list[str]


class ActiveRuns(TypedDict):
    """Runs that are active, and starts that wait; `queued` null: not known to this process."""

    active: int
    queued: int | None


class Concurrency(TypedDict):
    """Open runs, by user and by provider: those at work and those that are parked."""

    active: int
    at_work: int
    """Open runs that a call is due or under way for."""
    queued: int | None
    per_user: Mapping[str, Any]
    providers: Mapping[str, Any]


class ModelChoiceStatus(TypedDict):
    """A model of a cascade."""

    provider: str
    model: str
    primary: bool
    available: bool
    selected: bool
    stalled: bool
    rate_limited: bool
    reachable: bool


class TierCascade(TypedDict):
    """The models of a tier, in the order in which they are tried."""

    tier: str
    cascade: list[ModelChoiceStatus]


class UserTier(TypedDict):
    """A plan of users and its tiers."""

    name: str
    tiers: list[TierCascade]


class ProviderStatus(TypedDict):
    """A provider, without its key. `available`: this process can call it; `reachable`: it answers."""

    provider: str
    driver: str
    dialect: str
    available: bool
    reachable: bool
    max_concurrent: int
    why_not: NotRequired[str | None]


class RoutingTable(TypedDict):
    """Models by plan and tier."""

    admin: bool
    providers: list[ProviderStatus]
    user_tiers: list[UserTier]
    operator_key_restricted: bool
    search: list[JsonObject]


class Routing(RoutingTable):
    """Models by plan and tier, at a time."""

    generated_at: str


class ModelStatus(TypedDict):
    """What calls and probes have shown of a model."""

    listed: bool
    stalled: bool
    rate_limited: bool
    rate_limited_until: str | None
    reason: str | None


class ProviderAvailability(ProviderStatus):
    """A provider with its models. `excluded`: this process cannot call it."""

    excluded: bool
    models: Mapping[str, ModelStatus]
    last_check: str | None
    last_error: str | None


class AvailabilityMatrix(TypedDict):
    """Providers and their models."""

    providers: Mapping[str, ProviderAvailability]


class Resolver(AvailabilityMatrix):
    """Providers and their models, at a time."""

    generated_at: str


class ModelAlias(TypedDict):
    """A name of a model in the configuration."""

    name: str
    provider: str
    model: str | None
    model_pattern: str | None
    effort: str | None


class AliasTarget(TypedDict):
    """The model, or the pattern of models, that a name means."""

    provider: str
    model: str


class ModelAliasList(TypedDict):
    """Names of models in the configuration: by name, and as a list with all that is known of each."""

    aliases: Mapping[str, AliasTarget]
    models: list[ModelAlias]


class RunnableAgent(TypedDict):
    """An agent that may be run. `available` is whether one of its models is usable for the operator's keys."""

    name: str
    source: str
    description: str
    provider: str | None
    model: str | None
    tools: list[str]
    volumes: list[str]
    available: bool
    unavailable_reason: str | None


class RunnableAgents(TypedDict):
    """The agents that may be run."""

    agents: list[RunnableAgent]


class AgentDefinitionView(RunnableAgent):
    """An agent with the keys of its definition that differ from their defaults."""

    definition: dict[str, Any]


class LibraryEntry(TypedDict):
    """A definition of the files, its versions, or both."""

    name: str
    source: str
    in_static: bool
    in_substrate: bool
    version_count: int
    live_version_count: int
    active_def_id: str | None
    active_retired: bool
    latest_version: int
    last_updated: str | None
    static_definition: dict[str, Any] | None


class Library(TypedDict):
    """Definitions of a kind."""

    entries: list[LibraryEntry]


class PresetSummary(TypedDict):
    """A configuration layer that comes with the program."""

    name: str
    kind: str
    description: str


class PresetList(TypedDict):
    """Configuration layers that come with the program."""

    units: list[PresetSummary]


class PresetContent(PresetSummary):
    """A configuration layer with its YAML."""

    content: str


# --- erasure ---------------------------------------------------------------------------------------------------------


class CoveredContent(TypedDict):
    """Encrypted content, by kind."""

    counts: Mapping[str, int]
    total: int


class UncoveredContent(CoveredContent):
    """Content in clear, by kind, and the runs that have it."""

    runs: int


class ErasureRecord(TypedDict):
    """An erasure as the log has it."""

    erasure_id: str
    at: str
    by: str
    reason: str
    position: str


class SubjectKey(TypedDict):
    """A key of a subject. Content under an erased key cannot be read by anyone."""

    key_id: str
    made_at: str | None
    erased: bool
    erasure: ErasureRecord | None


class ErasureExamination(TypedDict):
    """What was examined of a subject."""

    tenant: str
    subject: str
    known: bool
    residue: Mapping[str, int]
    tier3_residue: Mapping[str, int]
    errors: list[str]
    notes: list[str]


class SubjectReport(ErasureExamination):
    """What an installation holds of a subject."""

    encrypted: bool
    tier1_covered: CoveredContent
    tier2_uncovered: UncoveredContent
    keys: list[SubjectKey]
    erasures: list[ErasureRecord]


class SubjectList(TypedDict):
    """Subjects of a tenant."""

    tenant: str
    subjects: list[str]


class ErasureResult(ErasureExamination):
    """An erasure, or with `dry_run` what it would do. With anything in `incomplete` it is to be repeated."""

    dry_run: bool
    deleted: Mapping[str, int]
    retained: Mapping[str, str]
    erasure_id: NotRequired[str]
    cancelled_runs: NotRequired[list[str]]
    tier2_uncovered: NotRequired[UncoveredContent]
    incomplete: NotRequired[list[str]]


class KeysRewrapped(TypedDict):
    """Count of keys that were encrypted with the new installation key."""

    wrapped: int
