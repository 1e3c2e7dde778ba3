"""Fields that schedules, webhooks and runs share: what happens after a run, and the credentials of their runs.

    channel.publish   {channel, payload}             memory.set   {scope, key, payload}
    http              {url, secret_env?, payload?}   mcp.call     {server, tool, args}

A hook is carried out after a run that ended as its `on` says. {{run.final_text}}, {{run.result}}, {{run.id}} and
{{run.status}} are replaced in every text of the payload. A run has its hooks as JSON texts (`hook_texts`), with the
name of the schedule or webhook that started it as `source`.

Before: kind.py, connectors/configuration/trigger_block.py. After: schedule.py, webhook.py,
services/application/runs/requests.py; at the end of a run services/runtime/run/run_end_actions.py.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from loomlog.connectors.configuration.channel_block import SYSTEM_PREFIX
from loomlog.connectors.configuration.field_types import configuration_block
from loomlog.connectors.configuration.trigger_block import CompletionHook, CredentialReference
from loomlog.connectors.crypto.content_encryption import is_token
from loomlog.connectors.definitions.canonical import canonical_json
from loomlog.connectors.definitions.kind import Kind
from loomlog.connectors.definitions.problems import DefinitionProblem

__all__ = ["CompletionHook", "CredentialReference", "check_hooks", "hook_texts", "parse_hooks", "read_hook"]

HOOKS_MAX = 8
"""Hooks of one run."""
PAYLOAD_BYTES_MAX = 65_536
"""Bytes of a payload as JSON: those of a value of a channel."""
URL_CHARACTERS_MAX = 2_000
SCOPES = ("agent", "user", "tenant", "global")
"""Scopes of memory.set; global is another word for tenant (parity: reference surfaces 7)."""
SOURCE = "source"
"""Key of a hook of a run that names what has started it: {"schedule_name": ...} or {"webhook_name": ...}."""
_NEEDED = {
    "channel.publish": ("channel",),
    "mcp.call": ("server", "tool"),
    "memory.set": ("scope", "key"),
    "http": ("url",),
}


def check_hooks(hooks: Sequence[CompletionHook]) -> None:
    """Raise DefinitionProblem, naming the place: missing_field for a hook without the fields of its kind."""
    if len(hooks) > HOOKS_MAX:
        raise DefinitionProblem("too_many", f"on_complete: {len(hooks)} hooks, at most {HOOKS_MAX}")
    for position, hook in enumerate(hooks):
        path = f"on_complete[{position}]"
        for name in _NEEDED[hook.kind]:
            if not getattr(hook, name):
                raise DefinitionProblem("missing_field", f"missing required field: {path}.{name}")
        if problem := _hook_problem(hook):
            raise DefinitionProblem("invalid_definition", f"{path}.{problem}")
        name, value = ("args", hook.args) if hook.args else ("payload", hook.payload)
        if (size := len(canonical_json(value).encode())) > PAYLOAD_BYTES_MAX:
            raise DefinitionProblem(
                "too_large", f"{path}.{name} has {size} bytes; at most {PAYLOAD_BYTES_MAX} are taken"
            )


def _hook_problem(hook: CompletionHook) -> str:
    """Return the field and what is wrong with it; empty when nothing is."""
    match hook.kind:
        case "mcp.call" if hook.args and hook.payload is not None:
            return "payload: a call of a tool has args; leave it out"
        case "channel.publish" if hook.channel.startswith(SYSTEM_PREFIX):
            return f"channel: channels of {SYSTEM_PREFIX} are published to by the runtime only"
        case "memory.set" if hook.scope not in SCOPES:
            return f"scope: expected {', '.join(SCOPES)}"
        case "http" if len(hook.url) > URL_CHARACTERS_MAX:
            return f"url: expected at most {URL_CHARACTERS_MAX} characters"
    return ""


# --- hooks of a run --------------------------------------------------------------------------------------------------


@configuration_block
class _Hooks:
    """Hooks beside no definition."""

    on_complete: tuple[CompletionHook, ...] = ()


_HOOKS = Kind(name="hooks", tool="", block=_Hooks, check=lambda block: check_hooks(block.on_complete))


def parse_hooks(hooks: Sequence[Any]) -> tuple[CompletionHook, ...]:
    """Return the hooks that a JSON list has. Raises DefinitionProblem, naming the place as on_complete[0].key."""
    try:
        parsed: _Hooks = _HOOKS.block_of(_HOOKS.compose("hooks", {"on_complete": list(hooks)}))
    except DefinitionProblem as problem:
        raise DefinitionProblem(problem.reason, problem.message.replace(" in overlay.", " in ")) from None
    return parsed.on_complete


def hook_texts(hooks: Iterable[CompletionHook], source: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the hooks as RunOptions.on_complete has them: the arguments of a call are its payload, which is encrypted.
    `source`: see SOURCE.
    """
    as_sent = tuple(replace(hook, args={}, payload=hook.args) if hook.args else hook for hook in hooks)
    contents = _HOOKS.content_of(_Hooks(on_complete=as_sent)).get("on_complete", ())
    return tuple(canonical_json({**content, **({SOURCE: dict(source)} if source else {})}) for content in contents)


def read_hook(text: str) -> tuple[CompletionHook, Mapping[str, str]]:
    """Return a hook of a run and its source. Raises DefinitionProblem when it is none."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DefinitionProblem("invalid_definition", "a hook: expected JSON") from error
    if not isinstance(content, dict):
        raise DefinitionProblem("invalid_definition", "a hook: expected an object")
    source = content.pop(SOURCE, {})
    if not isinstance(source, dict) or not all(isinstance(value, str) for value in source.values()):
        raise DefinitionProblem("invalid_definition", f"a hook: {SOURCE}: expected an object of texts")
    # Its fields were checked when the run was started; an encrypted payload is longer than a payload may be, and an
    # encrypted address is none.
    url = content.get("url")
    is_encrypted = isinstance(url, str) and is_token(url)
    parsed: _Hooks = _HOOKS.block_of({"on_complete": [{**content, "url": ""} if is_encrypted else content]})
    hook = parsed.on_complete[0]
    return (replace(hook, url=url) if isinstance(url, str) and is_encrypted else hook), source
