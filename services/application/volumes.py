"""Volumes for callers outside of runs: those that were made at run time are made and removed, all are listed.

Before: services/api/definition_endpoints.py. After: services/families/definition/volumes.py, which the VolumeDef tool
shares.
"""

from typing import Any

from loomlog.services.application.authentication import require_member, require_scope
from loomlog.services.application.definitions import Definitions
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.scopes import TENANT
from loomlog.services.families.definition.answers import format_time
from loomlog.services.families.definition.operations import Reply
from loomlog.services.families.definition.state import VOLUME
from loomlog.services.families.definition.table import SHARED
from loomlog.services.families.definition.volume_table import MadeVolume
from loomlog.services.families.definition.volumes import TOOL, VolumeOperations, shown_path


class Volumes:
    """The use cases. All methods raise Refused."""

    def __init__(self, definitions: Definitions, operations: VolumeOperations) -> None:
        self._definitions = definitions
        self._operations = operations
        self._volumes = operations.volumes

    async def operate(self, caller: Caller, body: Any, *, tenant: str = "") -> Reply:
        """Carry out an operation; `body` is that of the tool. Refusals have the code tool_refused, with a reason."""
        require_scope(caller, TENANT)
        require_member(caller)
        author = self._definitions.author(caller, VOLUME, tenant)
        reply: Reply = await self._definitions.refusing(TOOL, self._operations.run(body, author))
        return reply

    def list(self, caller: Caller, *, tenant: str = "") -> dict[str, Any]:
        """Return the volumes that agents of a tenant may be bound to: of the files, its own, and the shared ones."""
        owner = self._owner(caller, tenant)
        entries: dict[str, dict[str, Any]] = {
            name: {"name": name, "source": "static"} | dict(file.content)
            for (kind, name), file in sorted(self._definitions.table.files.items())
            if kind == VOLUME
        }
        for of, source in dict.fromkeys(((owner, "dynamic" if owner else "shared"), (SHARED, "shared"))):
            for made in self._volumes.lasting(of):
                entries.setdefault(made.content.name, _entry(made, source))
        return {"entries": [_shown(entry, caller) for entry in entries.values()]}

    def list_ephemeral(self, caller: Caller, *, tenant: str = "") -> dict[str, Any]:
        """Return the volumes of a tenant that end with their runs, one for each run and name."""
        volumes = self._volumes.all_ephemeral(self._owner(caller, tenant))
        entries = {
            (one.content.root_run, one.content.name): {
                "name": one.content.name,
                "root_run_id": one.content.root_run,
                "path": one.content.path,
                "mode": one.content.mode,
                "created_at": format_time(one.created_at_ms),
            }
            for one in volumes
        }
        return {"entries": [_shown(entry, caller) for entry in entries.values()]}

    def _owner(self, caller: Caller, tenant: str) -> str:
        require_member(caller)
        return self._definitions.tenant(caller, tenant)


def _entry(made: MadeVolume, source: str) -> dict[str, Any]:
    return {
        "name": made.content.name,
        "source": source,
        "path": made.content.path,
        "mode": made.content.mode,
        "default": False,
        "dynamic_root": False,
        "created_at": format_time(made.created_at_ms),
    }


def _shown(entry: dict[str, Any], caller: Caller) -> dict[str, Any]:
    return entry | {"path": shown_path(entry["path"], is_admin=caller.is_admin)}
