"""What a definition takes from a body: goal, user, metadata and credentials of a run. Pure.

A value of payload_mapping is a path ($, $.a.b, $.a[0]) or a plain text. What a path does not find is an empty text; for
metadata and credentials it is left out. Without a goal in the mapping the whole body is the goal. Texts are taken as
they are, other values as JSON.

Credentials must not reach the log: `take_credentials` returns them beside the body without them.

Before: bodies.py. After: delivery_builder.py; the dry run of an api.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from loomlog.connectors.configuration.webhook_block import WebhookBlock
from loomlog.schemas.records import Value
from loomlog.services.families.webhook import limits

CREDENTIALS, METADATA = "user_credentials.", "run_metadata."
GOAL, USER_ID = "goal", "user_id"
SEAL_PURPOSE = "webhook credentials"
"""Purpose under which an api encrypts the credentials of a body for loom.ingress, for their tenant."""
REMOVED = "[credential]"
"""What a body has in place of a credential."""
_STEP = re.compile(r"\.([A-Za-z0-9_-]+)|\[([0-9]{1,9})\]")
_MISSING = object()


class MappingInvalid(Exception):
    """The body does not fit the mapping; the text says why."""


class RunInput(Value, frozen=True, kw_only=True):
    """What a body says about its run; all of it is untrusted."""

    goal: str
    user_id: str = ""
    run_metadata: Mapping[str, str] = {}
    """Values are JSON texts."""


def run_input(block: WebhookBlock, body: Any, text: str) -> RunInput:
    """Return what a definition takes from a body; `text` is the body as it came. Raises MappingInvalid."""
    mapping = block.payload_mapping
    metadata = {
        target.removeprefix(METADATA): json.dumps(_clean(_as_text(value)), ensure_ascii=False)
        for target, expression in mapping.items()
        if target.startswith(METADATA) and (value := _evaluate(expression, body)) is not _MISSING
    }
    size = sum(len(name) + len(value.encode("utf-8", "replace")) for name, value in metadata.items())
    if size > limits.METADATA_BYTES_MAX:
        raise MappingInvalid(f"run_metadata has {size} bytes: at most {limits.METADATA_BYTES_MAX} are taken")
    goal = _as_text(_evaluate(mapping[GOAL], body)) if GOAL in mapping else text
    return RunInput(goal=_clean(goal), user_id=user_id_of(block, body), run_metadata=metadata)


def user_id_of(block: WebhookBlock, body: Any) -> str:
    """Return the user of a run; empty without one. Raises MappingInvalid."""
    if USER_ID not in block.payload_mapping:
        return ""
    user_id = _as_text(_evaluate(block.payload_mapping[USER_ID], body))
    if len(user_id) > limits.USER_ID_CHARACTERS_MAX or not user_id.isprintable():
        raise MappingInvalid(f"user_id: expected at most {limits.USER_ID_CHARACTERS_MAX} printable characters")
    return user_id


def credential_names(block: WebhookBlock, taken: Mapping[str, str]) -> list[str]:
    """Return the names of the credentials that a run would have; `taken` are those of its body."""
    return sorted({*block.user_credentials_from_env, *block.user_credentials, *taken})


def take_credentials(block: WebhookBlock, body: Any) -> tuple[Mapping[str, str], Any]:
    """Return the credentials in a body by name, and the body with REMOVED in their place. Raises MappingInvalid."""
    credentials: dict[str, str] = {}
    for target, expression in block.payload_mapping.items():
        if not target.startswith(CREDENTIALS):
            continue
        value = _evaluate(expression, body)
        if value is _MISSING or value in ("", None, REMOVED):
            continue  # there is none, or it was taken before
        text = _as_text(value)
        if len(text) > limits.CREDENTIAL_CHARACTERS_MAX:
            raise MappingInvalid(f"{target}: expected at most {limits.CREDENTIAL_CHARACTERS_MAX} characters")
        credentials[target.removeprefix(CREDENTIALS)] = text
    rest = body
    for target, expression in block.payload_mapping.items():
        if target.startswith(CREDENTIALS) and expression.startswith("$"):
            rest = _without(rest, _steps(expression))
    return credentials, rest


def _evaluate(expression: str, body: Any) -> Any:
    """Return the value of a path or a plain text; _MISSING when the path finds nothing."""
    if not expression.startswith("$"):
        return expression
    value = body
    for step in _steps(expression):
        if isinstance(step, str):
            value = value.get(step, _MISSING) if isinstance(value, Mapping) else _MISSING
        else:
            value = value[step] if isinstance(value, list) and step < len(value) else _MISSING
        if value is _MISSING:
            return _MISSING
    return value


def _steps(path: str) -> Sequence[str | int]:
    return [name if name else int(index) for name, index in _STEP.findall(path)]


def _without(value: Any, steps: Sequence[str | int]) -> Any:
    """Return a value with REMOVED where the steps lead; unchanged when they lead nowhere."""
    if not steps:
        return REMOVED
    step, rest = steps[0], steps[1:]
    if isinstance(step, str) and isinstance(value, Mapping) and step in value:
        return {name: _without(one, rest) if name == step else one for name, one in value.items()}
    if isinstance(step, int) and isinstance(value, list) and step < len(value):
        return [_without(one, rest) if place == step else one for place, one in enumerate(value)]
    return value


def _as_text(value: Any) -> str:
    if value is _MISSING or value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _clean(text: str) -> str:
    """Return a text that every store takes: no NUL, no half of a surrogate pair."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
