"""Volumes that were made at run time, as tool calls are bound to them.

Before: services/runtime/tools/tool_context.py. After: services/families/definition/volume_table.py.
"""

from collections.abc import Sequence
from typing import Protocol

from loomlog.connectors.protocols import VolumeBinding


class MadeVolumes(Protocol):
    """The volumes that were made at run time."""

    def find(self, tenant: str, name: str) -> VolumeBinding | None:
        """Return a volume that lasts."""
        ...

    def of_run(self, tenant: str, root_run: str) -> Sequence[VolumeBinding]:
        """Return the ephemeral volumes of a tree of runs."""
        ...
