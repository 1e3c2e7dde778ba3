"""Fields that schedules and webhooks share: what happens after a run, and the credentials of their runs.

After: schedule.py, webhook.py.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from loomlog.connectors.configuration.field_types import FORBID_EXTRA
from loomlog.connectors.definitions.problems import DefinitionProblem

_CREDENTIAL = re.compile(r"\$cred:[A-Za-z0-9_-]{1,128}\Z")
_NEEDED = {"channel.publish": ("channel",), "mcp.call": ("server", "tool"), "memory.set": ("scope", "key")}


def _require_reference(value: str) -> str:
    if not _CREDENTIAL.match(value):
        raise ValueError("expected a reference like $cred:name, because everyone can read a definition")
    return value


CredentialReference = Annotated[str, AfterValidator(_require_reference)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionHook:
    """What happens once a run has completed."""

    __pydantic_config__ = FORBID_EXTRA
    kind: Literal["channel.publish", "mcp.call", "memory.set"]
    channel: str = ""
    server: str = ""
    tool: str = ""
    args: Mapping[str, Any] = field(default_factory=dict)
    scope: str = ""
    key: str = ""
    payload: Any = None


def check_hooks(hooks: tuple[CompletionHook, ...]) -> None:
    """Raise DefinitionProblem(missing_field) for a hook without the fields of its kind."""
    for position, hook in enumerate(hooks):
        for name in _NEEDED[hook.kind]:
            if not getattr(hook, name):
                raise DefinitionProblem("missing_field", f"missing required field: on_complete[{position}].{name}")
