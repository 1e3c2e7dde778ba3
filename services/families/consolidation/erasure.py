"""Removal of a subject's consolidation target: pending entries, and whatever else would start the consolidator.

Before: services/families/ports/content_erasure.py. After: decide.py.
"""

from collections.abc import Callable

import orjson

from loomlog.schemas.generated.consolidation_commands import DropTarget
from loomlog.schemas.generated.consolidation_events import TargetDropped
from loomlog.services.families.consolidation.items import TARGET_ITEM
from loomlog.services.families.consolidation.state import FAMILY_NAME
from loomlog.services.families.memory.scope_erasure import ErasureCommands, scope_of_subject
from loomlog.services.families.ports.content_erasure import ContentFindings, ErasedSubject, ErasureRequest
from loomlog.services.stream.entities.answers import EntityCommands
from loomlog.services.stream.entities.reads import EntityReads

PENDING = "memory_pending"


class TargetErasure:
    """Protocol ContentEraser of ports/content_erasure.py."""

    def __init__(self, commands: EntityCommands, reads: EntityReads, clock_ms: Callable[[], int]) -> None:
        self._commands = ErasureCommands(FAMILY_NAME, commands, clock_ms)
        self._reads = reads

    async def find(self, subject: ErasedSubject) -> ContentFindings:
        """Count pending entries. Raises PositionNotRead, ConnectorError."""
        findings, scope = ContentFindings(), scope_of_subject(subject)
        if scope is not None:
            rows = await self._reads.load_items(FAMILY_NAME, scope.tenant, TARGET_ITEM, [scope.aggregate])
            findings.counts[PENDING] = orjson.loads(rows[0].document)["pending"] if rows else 0
        return findings

    async def erase(self, subject: ErasedSubject, before: ContentFindings, erasure: ErasureRequest) -> ContentFindings:
        """Drop the target."""
        findings, scope = ContentFindings(), scope_of_subject(subject)
        if scope is not None:
            with findings.noted("what waits to be learnt of the user was not deleted"):
                events = await self._commands.ask(DropTarget, scope, erasure)
                dropped = [event.dropped_pending for event in events if isinstance(event, TargetDropped)]
                findings.counts[PENDING] = sum(dropped)
        return findings
