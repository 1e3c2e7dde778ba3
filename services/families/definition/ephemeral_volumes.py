"""The end of ephemeral volumes: they are removed when the top-level run of their tree has ended.

The owner of the run removes them when its end is in the log. What is left over (the owner died, the folder could not be
removed, a call made a volume while its run ended) is found by a sweep of one runtime, the owner of run partition 0.

Before: services/runtime/run/command_handler.py reports the end of a run. After: volumes.py.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.process.logs import about
from loomlog.connectors.tools.volume_folders import FolderProblem
from loomlog.projections.audit import AuditRow
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.families.definition.volumes import VolumeOperations

log = logging.getLogger(__name__)

Tree = tuple[str, str]
"""Tenant and root run."""
FindRun = Callable[[str], Awaitable[AuditRow | None]]
"""Returns the row of a run; one that is live has not ended_at_ms. Raises ConnectorError."""


class EphemeralVolumes:
    """Removes the volumes of trees of runs that are over."""

    def __init__(
        self, volumes: VolumeOperations, find_run: FindRun, *, clock_ms: Callable[[], int], interval_s: float
    ) -> None:
        self._volumes = volumes
        self._find_run = find_run
        self._clock_ms = clock_ms
        self._interval_s = interval_s
        self._ended: dict[Tree, None] = {}
        self._wakeup = asyncio.Event()

    def on_run_ended(self, tenant: str, facts: RunFacts) -> None:
        """Schedule the removal for a root run whose end is in the log."""
        if facts.parent is None and self._volumes.volumes.ephemeral(tenant, facts.run_id):
            self._ended[tenant, facts.run_id] = None
            self._wakeup.set()

    async def run(self, is_active: Callable[[], bool]) -> None:
        """Remove what has ended, and sweep while this runtime is the active one, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._wakeup.wait()
            except TimeoutError:
                if is_active():
                    await self.sweep()
            self._wakeup.clear()
            while self._ended:
                tree = next(iter(self._ended))
                del self._ended[tree]  # what cannot be removed now is left to the sweep
                await self._remove(tree)

    async def sweep(self) -> None:
        """Remove the volumes of all trees whose root run is over. A run that the index does not have counts as live."""
        for tree in dict.fromkeys((one.tenant, one.content.root_run) for one in self._volumes.volumes.all_ephemeral()):
            try:
                row = await self._find_run(tree[1])
            except ConnectorError as error:
                log.warning("could not look for ephemeral volumes of ended runs: %s", error)
                return
            if row is not None and row.tenant == tree[0] and row.ended_at_ms:
                await self._remove(tree)

    async def _remove(self, tree: Tree) -> None:
        tenant, run_id = tree
        try:
            await self._volumes.end_run(tenant, run_id, at_ms=self._clock_ms())
        except (ConnectorError, Refused, Unavailable, FolderProblem) as error:
            log.warning(
                "the ephemeral volumes of %s could not be removed yet: %s", run_id, error, extra=about(run_id, tree[0])
            )
