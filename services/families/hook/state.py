"""The hooks of an installation: its state, what an event makes of it, and which hooks a call has.

A hook is named by (tenant, owner, name); registering the name again replaces it and keeps its place in the order. Hooks
of the empty tenant are the operator's and receive the calls of every tenant.

    pre    in the order of registration, each receives the input as the one before left it. The first that denies ends
           the call; hosts added before that do not count.
    post   in reverse order, also after a denial; each receives the result as the one before left it.

Before: decide.py has an event, or a checkpoint a state. After: runner.py asks for every call.
"""

from collections.abc import Iterable
from typing import assert_never

from loomlog.schemas.client_names import all_names
from loomlog.schemas.generated.hook_events import HookRegistered, HookRemoved
from loomlog.schemas.records import Value, copy_as
from loomlog.services.families.hook import limits

PRE, POST = "pre", "post"
PHASES = (PRE, POST)
FAIL_OPEN, FAIL_CLOSED = "open", "closed"
FAIL_MODES = (FAIL_OPEN, FAIL_CLOSED)
WILDCARD = "*"
EVERY_TENANT = ""

HookEvent = HookRegistered | HookRemoved


class Hook(Value, frozen=True, kw_only=True):
    """A registered hook; the fields are those of HookRegistered."""

    hook_id: str
    tenant: str
    owner: str
    name: str
    phase: str
    agents: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    callback_url: str
    fail_mode: str = FAIL_OPEN
    timeout_ms: int = 0
    by: str = ""
    at_ms: int = 0
    """When it was registered, UTC milliseconds."""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.tenant, self.owner, self.name


class HookTable(Value, frozen=True, kw_only=True):
    """The registered hooks, in their order."""

    entries: tuple[Hook, ...] = ()

    def find(self, hook_id: str) -> Hook | None:
        return next((hook for hook in self.entries if hook.hook_id == hook_id), None)

    def hooks_for_call(self, tenant: str, agent: str, tool: str, phase: str) -> tuple[Hook, ...]:
        """Return the hooks for a call, in the order in which they are called."""
        matching = tuple(
            hook
            for hook in self.entries
            if hook.phase == phase
            and hook.tenant in (EVERY_TENANT, tenant)
            and (not hook.agents or agent in hook.agents)
            and (not hook.tools or any(_matches(pattern, name) for pattern in hook.tools for name in all_names(tool)))
        )
        return matching if phase == PRE else matching[::-1]


def evolve(table: HookTable, event: HookEvent, at_ms: int) -> HookTable:
    """Return the hooks after an event."""
    match event:
        case HookRegistered():
            return with_hook(table, hook_of(event, event.by, at_ms))
        case HookRemoved(hook_id=hook_id):
            return HookTable(entries=tuple(hook for hook in table.entries if hook.hook_id != hook_id))
        case _:
            assert_never(event)


def hook_of(event: HookRegistered, by: str, at_ms: int) -> Hook:
    """Return the hook that a registration makes."""
    return copy_as(Hook, event, by=by, at_ms=at_ms)


def with_hook(table: HookTable, hook: Hook) -> HookTable:
    """Return the table with the hook in the place of the one of its name, or at the end."""
    if any(entry.key == hook.key for entry in table.entries):
        return HookTable(entries=tuple(hook if entry.key == hook.key else entry for entry in table.entries))
    return HookTable(entries=(*table.entries, hook))


def _matches(pattern: str, tool: str) -> bool:
    return tool.startswith(pattern[:-1]) if pattern.endswith(WILDCARD) else tool == pattern


def timeout_s(hook: Hook) -> float:
    """Return the timeout for a hook's answer."""
    return (hook.timeout_ms or limits.TIMEOUT_MS_DEFAULT) / 1000


def may_add_hosts(hook: Hook, permitted_owners: Iterable[str]) -> bool:
    """Whether the operator permits this hook to add hosts.

    `permitted_owners` has `tenant:owner`, or `owner` for the operator's own hooks. A bare owner means hooks of the
    empty tenant only: otherwise any tenant could use a permitted name.
    """
    text = f"{hook.tenant}:{hook.owner}" if hook.tenant else hook.owner
    return text in permitted_owners
