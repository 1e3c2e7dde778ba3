"""The volumes that were made at run time, as far as this process has read: by name, and by the tree of runs they belong
to. A volume whose folder is not the one that its names give here is left out: its line was not written by this server,
or the dynamic root has moved.

Before: the replicas fold a line. After: volumes.py; services/runtime/tools/tool_context.py for each tool call.
"""

import logging
from collections.abc import Collection, Iterator, Sequence

from loomlog.connectors.definitions import DefinitionProblem
from loomlog.connectors.protocols import VolumeBinding
from loomlog.connectors.tools.volume_folders import VolumeFolders
from loomlog.schemas.records import Value
from loomlog.services.families.definition.content import parse_content
from loomlog.services.families.definition.state import VOLUME, Line, Version
from loomlog.services.families.definition.table import NAME, SHARED, DefinitionTable
from loomlog.services.families.definition.volume_content import (
    VolumeContent,
    folder_parts,
    is_slot,
    parse_volume,
    slot_name,
)
from loomlog.services.stream.entities.replicas import Replicas

log = logging.getLogger(__name__)


class MadeVolume(Value, frozen=True, kw_only=True):
    """A volume that was made at run time. Times in UTC milliseconds."""

    tenant: str
    line: str
    """Name of its line; for an ephemeral volume a slot."""
    content: VolumeContent
    parts: tuple[str, ...]
    """Names from the dynamic root to its folder."""
    digest: bytes
    created_at_ms: int
    updated_at_ms: int


class VolumeTable:
    """Protocol loomlog.services.families.ports.made_volumes.MadeVolumes."""

    def __init__(self, table: DefinitionTable, replicas: Replicas) -> None:
        self.definitions = table
        self.folders = _dynamic_folders(table)
        """None: the configuration has no dynamic root, so there are no such volumes."""
        self._replicas = replicas
        self._runs: dict[tuple[str, str], dict[str, MadeVolume]] = {}
        """By tenant and root run: ephemeral volumes by line."""
        self._slots: dict[str, dict[str, str]] = {}
        """By tenant: root run of each line that has an ephemeral volume."""
        replicas.on_fold(NAME, self._folded)

    def _folded(self, aggregate: str) -> None:
        line = self._replicas.state(aggregate)
        if not isinstance(line, Line) or line.kind != VOLUME or not is_slot(line.name):
            return
        slots = self._slots.setdefault(line.tenant, {})
        run = slots.pop(line.name, "")
        if run:
            of_run = self._runs[line.tenant, run]
            del of_run[line.name]
            if not of_run:
                del self._runs[line.tenant, run]
        made = self._read(line)
        if made is not None:
            slots[line.name] = made.content.root_run
            self._runs.setdefault((line.tenant, made.content.root_run), {})[line.name] = made

    # --- volumes that last -------------------------------------------------------------------------------------------

    def made(self, tenant: str, name: str) -> MadeVolume | None:
        """Return the tenant's own volume of that name."""
        line = self.definitions.line(VOLUME, tenant, name)
        return None if line is None else self._read(line)

    def lasting(self, tenant: str) -> Iterator[MadeVolume]:
        """Yield the tenant's own volumes by name."""
        for line in self.definitions.lines(VOLUME, tenant):
            made = None if is_slot(line.name) else self._read(line)
            if made is not None:
                yield made

    def find(self, tenant: str, name: str) -> VolumeBinding | None:
        """Return what a name that the configuration does not have means for a tenant: its own volume, or the shared."""
        if self.folders is None or (VOLUME, name) in self.definitions.files:
            return None
        owners = dict.fromkeys((tenant, SHARED))
        made = next(filter(None, (self.made(owner, name) for owner in owners)), None)
        return None if made is None else self._binding(made)

    # --- ephemeral volumes -------------------------------------------------------------------------------------------

    def ephemeral(self, tenant: str, root_run: str, name: str = "") -> list[MadeVolume]:
        """Return the volumes of a tree of runs; with a name those of that name, which may have two lines."""
        volumes = self._runs.get((tenant, root_run), {}).values()
        return [one for one in volumes if not name or one.content.name == name]

    def of_run(self, tenant: str, root_run: str) -> Sequence[VolumeBinding]:
        """Return the volumes of a tree of runs, one for each name, as tools see them."""
        if (tenant, root_run) not in self._runs:
            return ()
        volumes = {one.content.name: one for one in self.ephemeral(tenant, root_run)}
        return [self._binding(volumes[name]) for name in sorted(volumes)]

    def all_ephemeral(self, tenant: str | None = None) -> list[MadeVolume]:
        """Return the volumes of all trees of runs, of a tenant or of all, by tenant, run and name."""
        volumes = [
            one for (owner, _), of_run in self._runs.items() if tenant in (None, owner) for one in of_run.values()
        ]
        return sorted(volumes, key=lambda one: (one.tenant, one.content.root_run, one.content.name, one.line))

    def ephemeral_count(self, tenant: str) -> int:
        return len(self._slots.get(tenant, ()))

    def free_slot(self, tenant: str, tried: Collection[str]) -> str:
        """Return the first line that has no ephemeral volume now and is not among those that were tried."""
        slots, number = self._slots.get(tenant, {}), 0
        while (name := slot_name(number)) in slots or name in tried:
            number += 1
        return name

    # --- lines -------------------------------------------------------------------------------------------------------

    def _read(self, line: Line) -> MadeVolume | None:
        version = line.active_version
        if version is None or version.is_retired or self.folders is None:
            return None
        try:
            content = parse_volume(line.name, parse_content(version.content))
            parts = folder_parts(line.tenant, content.name, content.root_run)
        except DefinitionProblem as problem:
            log.warning("the volume %s of the tenant %r is left out: %s", line.name, line.tenant, problem)
            return None
        if content.path != self.folders.path(parts):
            log.warning("the volume %s is left out: %s is not below %s", line.name, content.path, self.folders.root)
            return None
        return _made(line, version, content, parts)

    def _binding(self, made: MadeVolume) -> VolumeBinding:
        assert self.folders is not None, "it was read"
        return VolumeBinding(
            name=made.content.name, path=made.content.path, mode=made.content.mode, root=self.folders.root
        )


def _made(line: Line, version: Version, content: VolumeContent, parts: tuple[str, ...]) -> MadeVolume:
    return MadeVolume(
        tenant=line.tenant,
        line=line.name,
        content=content,
        parts=parts,
        digest=version.digest,
        created_at_ms=line.versions[0].created_at_ms,
        updated_at_ms=version.created_at_ms,
    )


def _dynamic_folders(table: DefinitionTable) -> VolumeFolders | None:
    roots = (
        file.content["path"] for file in table.files.values() if file.kind == VOLUME and file.content["dynamic_root"]
    )
    root = next(roots, None)
    return None if root is None else VolumeFolders(str(root))
