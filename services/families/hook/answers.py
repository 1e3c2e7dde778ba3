"""Answers of hooks: what they may say, what that changes, and what the model reads instead of a call or a result.

Before: connectors/http/signed_callbacks.py brings an answer. After: runner.py applies it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from loomlog.schemas.records import Value, replace
from loomlog.services.families.hook.state import POST, PRE, Hook
from loomlog.services.families.ports.tool_hooks import HookedResult

ANSWER_FIELDS = {PRE: ("deny", "input", "allow_hosts"), POST: ("result",)}
"""Fields of an answer by phase."""
DENIED, REWROTE_INPUT, WIDENED_HOSTS = "denied", "rewrote_input", "widened_hosts"
REWROTE_RESULT, UNAVAILABLE = "rewrote_result", "unavailable"
"""Effects of a hook on a call (HookAct.act)."""
HOSTS_ADDED_MAX = 64
"""Maximum hosts one answer may add; they are stored in one append with the result."""
DENIAL_CHARACTERS_MAX = 16_000
"""Maximum characters of the text that a model reads instead of a result."""
DEFAULT_DENIAL_TEXT = "denied by a hook"
"""Text that the model reads when a denial has none."""


class InvalidHookAnswer(Exception):
    """An invalid answer of a hook; the text has what was expected."""


class Denial(Value, frozen=True, kw_only=True):
    """A denial, with the text that the model reads instead of a result."""

    text: str
    is_error: bool


class PreAnswer(Value, frozen=True, kw_only=True):
    """Changes requested by a pre hook; None and empty leave things unchanged."""

    input: Mapping[str, Any] | None = None
    denial: Denial | None = None
    allow_hosts: tuple[str, ...] = ()


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


def unavailable_text(hook: Hook) -> str:
    """Return the text that replaces a result when a required hook was unavailable."""
    named = f"hook {hook.owner}/{hook.name} unavailable"
    return f"tool_call denied: {named}" if hook.phase == PRE else f"tool_result withheld: {named}"


def escalation_text(hook: Hook, declared: str, actual: str) -> str:
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
