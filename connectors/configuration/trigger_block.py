"""Values that schedules, webhooks and starts of runs share: what happens after a run, and references to credentials.

Before: the files, overlays of definitions. After: connectors/definitions/triggers.py checks them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from loomlog.connectors.configuration.field_types import FORBID_EXTRA

_CREDENTIAL = re.compile(r"\$cred:[A-Za-z0-9_-]{1,128}\Z")


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
