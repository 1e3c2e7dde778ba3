"""Content of the lines of volumes, and the place of a volume's folder below the dynamic root.

    tenant's volume     line "notes"            folder <tenant or _shared>/notes
    ephemeral volume    line "_ephemeral-7"     folder _ephemeral/<root run>/notes

An ephemeral volume belongs to one tree of runs, so two trees may use one name; its line is any free slot of the tenant,
because every process has all lines in memory for ever, and a line for each run would let them grow without bound.

Before: decide.py, volume_table.py, volumes.py. After: connectors/tools/volume_folders.py makes and removes the folders.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from loomlog.connectors.configuration.field_classes import NEUTRAL, Bound
from loomlog.connectors.definitions import DefinitionProblem
from loomlog.schemas.records import Value

SHARED_FOLDER, EPHEMERAL_FOLDER = "_shared", "_ephemeral"
SLOT_PREFIX = "_ephemeral-"
MODES = ("rw", "ro")
PATH_BYTES_MAX = 4_096
MOUNT_CHARACTERS_MAX = 1_024
"""Longest name of the tree of names (reference runtime 3.8)."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_SEGMENT = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Tenants and run ids, as parts of a path."""
_SLOT = re.compile(re.escape(SLOT_PREFIX) + r"[0-9]{1,6}")


class VolumeContent(Value, frozen=True, kw_only=True):
    """What a line says of its volume. `root_run` is empty for one that lasts."""

    name: Annotated[str, NEUTRAL]
    path: Annotated[str, NEUTRAL]
    mode: Annotated[str, Bound(words=("ro", "rw"))]
    root_run: Annotated[str, NEUTRAL] = ""
    mount_at: Annotated[str, NEUTRAL] = ""

    def to_json(self) -> dict[str, Any]:
        """Return the content that a version has."""
        content: dict[str, Any] = {"path": self.path, "mode": self.mode}
        if self.root_run:
            content |= {"name": self.name, "ephemeral": True, "root_run": self.root_run}
        return content | ({"mount_at": self.mount_at} if self.mount_at else {})


def check_volume_name(name: str) -> str:
    """Return the name. Raises DefinitionProblem."""
    if not _NAME.fullmatch(name):
        text = f"name is {name[:80]!r}: expected 1 to 64 of a-z, 0-9, _ and -, beginning with a letter or a digit"
        raise DefinitionProblem("bad_name", text)
    return name


def slot_name(number: int) -> str:
    """Return the name of the line of an ephemeral volume."""
    return f"{SLOT_PREFIX}{number}"


def is_slot(line_name: str) -> bool:
    """Whether a line is for ephemeral volumes."""
    return line_name.startswith(SLOT_PREFIX)


def parse_volume(line_name: str, content: Mapping[str, Any]) -> VolumeContent:
    """Return the volume of a line's content. Raises DefinitionProblem."""
    texts = {key: value for key, value in content.items() if key != "ephemeral"}
    unknown = texts.keys() - {"path", "mode", "name", "root_run", "mount_at"}
    if unknown or not all(isinstance(value, str) for value in texts.values()):
        raise DefinitionProblem("invalid_definition", "a volume has path, mode, name, root_run and mount_at, all texts")
    volume = VolumeContent(**{"name": line_name, "path": "", "mode": ""} | texts)
    if is_slot(line_name):
        if not _SLOT.fullmatch(line_name) or not _SEGMENT.fullmatch(volume.root_run):
            raise DefinitionProblem("invalid_definition", f"{line_name[:80]}: an ephemeral volume has a slot and a run")
    elif volume.root_run or volume.name != line_name:
        raise DefinitionProblem("invalid_definition", f"only lines {SLOT_PREFIX}N have volumes of runs")
    check_volume_name(volume.name)
    if volume.mode not in MODES:
        raise DefinitionProblem("invalid_definition", f"mode is {volume.mode[:20]!r}: expected rw or ro")
    if not volume.path.startswith("/") or len(volume.path.encode()) > PATH_BYTES_MAX:
        text = f"path: expected an absolute one of at most {PATH_BYTES_MAX} bytes"
        raise DefinitionProblem("invalid_definition", text)
    if len(volume.mount_at) > MOUNT_CHARACTERS_MAX:
        raise DefinitionProblem("invalid_definition", f"mount_at: at most {MOUNT_CHARACTERS_MAX} characters")
    return volume


def folder_parts(tenant: str, name: str, root_run: str = "") -> tuple[str, ...]:
    """Return the names from the dynamic root to the folder of a volume. Raises DefinitionProblem."""
    owner = root_run or tenant or SHARED_FOLDER
    is_taken = not root_run and tenant in (SHARED_FOLDER, EPHEMERAL_FOLDER)
    if is_taken or not _SEGMENT.fullmatch(owner):
        raise DefinitionProblem("bad_name", f"no folder can have the name of {owner[:80]!r}")
    check_volume_name(name)
    return (EPHEMERAL_FOLDER, root_run, name) if root_run else (owner, name)
