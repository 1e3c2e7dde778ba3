"""JSON of the answers about hooks, pauses, budget limits, repairs and libraries of definitions.

Before: handlers and endpoints. After: services/api/openapi.py.
"""

from typing import Any

from typing_extensions import TypedDict

from loomlog.services.application.queries.json_types import UsageRow


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


class LimitRemoved(TypedDict):
    """Whether the account had limits."""

    removed: bool


class FoldedAggregate(TypedDict):
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
    {"group_by": list[str], "from": str | None, "to": str | None, "rows": list[UsageRow]},
)
"""Tokens and cost by group."""


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
