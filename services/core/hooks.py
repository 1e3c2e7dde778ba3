"""Hooks: external programs called before and after tool calls. Registrations, and the effect of their answers.

A hook is named by (tenant, owner, name); registering the name again replaces it and keeps its place in the order. Hooks
of the empty tenant are the operator's and receive the calls of every tenant.

    pre    in the order of registration, each receives the input as the one before left it. The first that denies ends
           the call; hosts added before that do not count.
    post   in reverse order, also after a denial; each receives the result as the one before left it.

Pure, like everything in services/core. Before: loomlog.schemas.generated.stream_records. After:
services/stream/global_tables/hooks.py keeps a table for a process; services/runtime/tools/hooks.py calls the hooks of a
tool call.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import field

from loomlog.schemas.generated.stream_records import HookRegistered, HookRemoved
from loomlog.schemas.records import Value, replace

PRE, POST = "pre", "post"
ANSWER_FIELDS = {PRE: ("deny", "input", "allow_hosts"), POST: ("result",)}
"""Fields of an answer by phase."""
PHASES = (PRE, POST)
FAIL_OPEN, FAIL_CLOSED = "open", "closed"
FAIL_MODES = (FAIL_OPEN, FAIL_CLOSED)
DENIED, REWROTE_INPUT, WIDENED_HOSTS = "denied", "rewrote_input", "widened_hosts"
REWROTE_RESULT, UNAVAILABLE = "rewrote_result", "unavailable"
"""Effects of a hook on a call (HookAct.act)."""
WILDCARD = "*"
EVERY_TENANT = ""
TIMEOUT_MS_DEFAULT = 5_000
TIMEOUT_MS_MAX = 60_000
HOOKS_PER_TENANT_MAX = 100
"""Maximum hooks of a tenant; a call runs them one after the other, so more would only be slow."""
NAMES_MAX = 256
"""Maximum agents or tools in one registration."""
HOSTS_ADDED_MAX = 64
"""Maximum hosts one answer may add; they are stored in one append with the result."""
DENIAL_CHARACTERS_MAX = 16_000
"""Maximum characters of the text that a model reads instead of a result."""

HookKey = tuple[str, str, str]
DEFAULT_DENIAL_TEXT = "denied by a hook"
"""Text that the model reads when a denial has none."""


class InvalidHook(Exception):
    """An invalid hook registration; the text has the reason."""


class InvalidHookAnswer(Exception):
    """An invalid answer of a hook; the text has what was expected."""


class HookTable(Value, frozen=True, kw_only=True):
    """The registered hooks, in their order."""

    entries: Mapping[HookKey, HookRegistered] = field(default_factory=dict)

    def apply(self, change: HookRegistered | HookRemoved) -> "HookTable":
        """Return the table after one record. Raises InvalidHook."""
        if isinstance(change, HookRemoved):
            kept = {key: hook for key, hook in self.entries.items() if hook.hook_id != change.hook_id}
            return self if len(kept) == len(self.entries) else HookTable(entries=kept)
        if change.phase not in PHASES or change.fail_mode not in FAIL_MODES:
            raise InvalidHook(f"{change.hook_id}: phase {change.phase[:20]!r}, fail_mode {change.fail_mode[:20]!r}")
        # A dict keeps the place of a key whose value is replaced.
        return HookTable(entries={**self.entries, (change.tenant, change.owner, change.name): change})

    def find(self, hook_id: str) -> HookRegistered | None:
        return next((hook for hook in self.entries.values() if hook.hook_id == hook_id), None)

    def hooks_for_tenant(self, tenant: str) -> tuple[HookRegistered, ...]:
        """Return the hooks that were registered for exactly that tenant."""
        return tuple(hook for hook in self.entries.values() if hook.tenant == tenant)

    def hooks_for_call(self, tenant: str, agent: str, tool: str, phase: str) -> tuple[HookRegistered, ...]:
        """Return the hooks for a call, in the order in which they are called."""
        matching = tuple(
            hook
            for hook in self.entries.values()
            if hook.phase == phase
            and hook.tenant in (EVERY_TENANT, tenant)
            and (not hook.agents or agent in hook.agents)
            and (not hook.tools or any(_matches(pattern, tool) for pattern in hook.tools))
        )
        return matching if phase == PRE else matching[::-1]


def _matches(pattern: str, tool: str) -> bool:
    return tool.startswith(pattern[:-1]) if pattern.endswith(WILDCARD) else tool == pattern


def timeout_s(hook: HookRegistered) -> float:
    """Return the timeout for a hook's answer."""
    return (hook.timeout_ms or TIMEOUT_MS_DEFAULT) / 1000


def may_add_hosts(hook: HookRegistered, permitted_owners: Iterable[str]) -> bool:
    """Whether the operator permits this hook to add hosts.

    `permitted_owners` has `tenant:owner`, or `owner` for the operator's own hooks. A bare owner means hooks of the
    empty tenant only: otherwise any tenant could use a permitted name.
    """
    text = f"{hook.tenant}:{hook.owner}" if hook.tenant else hook.owner
    return text in permitted_owners


# --- answers ---------------------------------------------------------------------------------------------------------


class Denial(Value, frozen=True, kw_only=True):
    """A denial, with the text that the model reads instead of a result."""

    text: str
    is_error: bool


class PreAnswer(Value, frozen=True, kw_only=True):
    """Changes requested by a pre hook; None and empty leave things unchanged."""

    input: Mapping[str, Any] | None = None
    denial: Denial | None = None
    allow_hosts: tuple[str, ...] = ()


class HookedResult(Value, frozen=True, kw_only=True):
    """A result on its way through the post hooks."""

    text: str
    is_error: bool


NO_CHANGE = PreAnswer()


def parse_pre_answer(answer: Any) -> PreAnswer:
    """Parse a pre hook's answer from JSON; None is no change. Unknown fields are ignored.

    Raises InvalidHookAnswer.
    """
    if answer is None:
        return NO_CHANGE
    fields = _require_object(answer, "the answer")
    new_input = fields.get("input")
    hosts = fields.get("allow_hosts")
    return PreAnswer(
        input=None if new_input is None else _require_object(new_input, "input"),
        denial=_parse_denial(fields.get("deny")),
        allow_hosts=() if hosts is None else _parse_hosts(hosts),
    )


def require_decision(answer: Any, phase: str) -> None:
    """Check that an answer decides something, for a hook that fails closed: anything else could be an error page, or a
    denial in words this version does not know. Raises InvalidHookAnswer.
    """
    known = ANSWER_FIELDS[phase]
    if not isinstance(answer, dict) or not any(name in answer for name in known):
        raise InvalidHookAnswer(f"the answer has none of {', '.join(known)}; a hook without objection answers 204")


def apply_post_answer(answer: Any, result: HookedResult) -> HookedResult:
    """Apply a post hook's answer to the result. Missing fields stay unchanged. Raises InvalidHookAnswer."""
    if answer is None:
        return result
    new_result = _require_object(answer, "the answer").get("result")
    if new_result is None:
        return result
    fields = _require_object(new_result, "result")
    return replace(
        result,
        text=_require_text(fields.get("text", result.text), "result.text"),
        is_error=_require_bool(fields.get("is_error", result.is_error), "result.is_error"),
    )


def _parse_denial(value: Any) -> Denial | None:
    if value is None or value is False:
        return None
    fields = _require_object(value, "deny")
    text = _require_text(fields.get("text", ""), "deny.text")[:DENIAL_CHARACTERS_MAX]
    return Denial(
        text=text or DEFAULT_DENIAL_TEXT, is_error=_require_bool(fields.get("is_error", True), "deny.is_error")
    )


def _parse_hosts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(host, str) for host in value):
        raise InvalidHookAnswer("allow_hosts: expected a list of host names")
    if len(value) > HOSTS_ADDED_MAX:
        raise InvalidHookAnswer(f"allow_hosts: {len(value)} hosts, at most {HOSTS_ADDED_MAX}")
    return tuple(dict.fromkeys(value))


def _require_object(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidHookAnswer(f"{name}: expected a JSON object")
    return value


def _require_text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise InvalidHookAnswer(f"{name}: expected a text")
    return value


def _require_bool(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidHookAnswer(f"{name}: expected true or false")
    return value


# --- what the model reads --------------------------------------------------------------------------------------------


def unavailable_text(hook: HookRegistered) -> str:
    """Return the text that replaces a result when a required hook was unavailable."""
    named = f"hook {hook.owner}/{hook.name} unavailable"
    return f"tool_call denied: {named}" if hook.phase == PRE else f"tool_result withheld: {named}"


def escalation_text(hook: HookRegistered, declared: str, actual: str) -> str:
    """Return the text that replaces a result when a rewritten input has another effect than the logged intent."""
    return (
        f"tool_call denied: hook {hook.owner}/{hook.name} made a call with the effect class {actual} out of one with "
        f"{declared}"
    )


EFFECT_CLASSES: Sequence[str] = ("pure", "read", "idempotent", "unsafe")
"""Effect classes, the most harmless first."""


def is_stronger(actual: str, declared: str) -> bool:
    """Whether a call may have a stronger effect than its logged intent declares to a next owner."""
    return EFFECT_CLASSES.index(actual) > EFFECT_CLASSES.index(declared)
