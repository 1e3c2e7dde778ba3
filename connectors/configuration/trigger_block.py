"""Values that schedules, webhooks and starts of runs share: what happens after a run, and references to credentials.

Before: the files, overlays of definitions. After: connectors/definitions/triggers.py checks them.
"""

import re
from dataclasses import field
from typing import Annotated, Literal

from pydantic import AfterValidator

from loomlog.connectors.configuration.field_types import (
    EnvName,
    JsonObject,
    JsonValue,
    OptionalUrl,
    configuration_block,
)

ANY = "any"
_CREDENTIAL = re.compile(r"\$(cred|ghapp):[A-Za-z0-9_-]{1,128}\Z")


def _require_reference(value: str) -> str:
    if not _CREDENTIAL.match(value):
        raise ValueError("expected a reference like $cred:name or $ghapp:name, because everyone can read a definition")
    return value


CredentialReference = Annotated[str, AfterValidator(_require_reference)]


@configuration_block
class CompletionHook:
    """What happens once a run has ended."""

    kind: Literal["channel.publish", "mcp.call", "memory.set", "http"]
    on: Literal["completed", "failed", "cancelled", "any"] = "completed"
    channel: str = ""
    server: str = ""
    tool: str = ""
    args: JsonObject = field(default_factory=dict)
    scope: str = ""
    key: str = ""
    url: OptionalUrl = ""
    secret_env: EnvName | None = None
    payload: JsonValue = None

    def is_due(self, status: str) -> bool:
        """Whether it is carried out after a run that ended so."""
        return self.on in (ANY, status)
