"""Entries of the configuration files (memory.entries) that are set when a runtime starts, unless their key is there.

The command id is a hash of the entry, so each is set once however many runtimes start: a key that was deleted since, or
that was there at the first start, is not set later. An entry with another value in the files is another one.

Before: services.py. After: services/stream/entities/client.py.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from loomlog.connectors.configuration.memory_block import MemoryEntryBlock
from loomlog.connectors.configuration.principals import DEFAULT_TENANT
from loomlog.connectors.errors import ConnectorError
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.memory_commands import SetEntry
from loomlog.schemas.generated.values import CommandEnvelope, MemorySource
from loomlog.schemas.ids import hashed_token
from loomlog.services.families.memory.entry_operations import EntryLimits
from loomlog.services.stream.entities.answers import CommandInvalid, CommandUnanswered, EntityCommands

log = logging.getLogger(__name__)

ORIGIN = "configuration"
WAIT_S = 10.0
EVERY_S = 1.0
"""Pause before entries that could not be set are tried again, and between two looks at who is to set them."""


class BootEntries:
    """Sets the entries of the files, in the tenant of an installation without tenants."""

    def __init__(
        self,
        entries: Sequence[MemoryEntryBlock],
        commands: EntityCommands,
        limits: EntryLimits,
        *,
        tenant: str = DEFAULT_TENANT,
    ) -> None:
        self._pending = list(entries)
        self._commands = commands
        self._limits = limits
        self._tenant = tenant

    async def run(self, is_active: Callable[[], bool]) -> None:
        """Set all entries once this runtime is the active one; ends when each has its answer."""
        while self._pending:
            if is_active():
                await self.set_pending()
            if self._pending:
                await asyncio.sleep(EVERY_S)

    async def set_pending(self) -> None:
        """Set the entries in order, up to the first that cannot be yet."""
        while self._pending:
            try:
                await self._set(self._pending[0])
            except (CommandUnanswered, ConnectorError) as error:
                log.warning("memory.entries are not all set yet: %s", error)
                return
            except CommandInvalid as error:
                log.warning("memory.entries: %s is not set: %s", _shown(self._pending[0]), error)
            del self._pending[0]

    async def _set(self, entry: MemoryEntryBlock) -> None:
        text = entry.json_text
        names = (self._tenant, entry.scope, entry.scope_id, entry.key)
        command = SetEntry(
            envelope=CommandEnvelope(
                command_id=hashed_token("memory-entry", *names, text, str(entry.embed)),
                tenant=self._tenant,
                subject=ORIGIN,
                issued_at_ms=0,  # an earlier process may have sent it
            ),
            scope=entry.scope,
            scope_id=entry.scope_id,
            key=entry.key,
            value=text,
            value_bytes=len(text.encode()),
            if_revision=0,
            quota_bytes=self._limits.scope_bytes_max,
            embed=entry.embed,
            source=MemorySource(origin=ORIGIN, principal=ORIGIN),
        )
        answer = await self._commands.ask(command, wait_s=WAIT_S)
        last = answer.events[-1]
        if isinstance(last, CommandRefused) and last.code != "revision_conflict":
            log.warning("memory.entries: %s is not set (%s): %s", _shown(entry), last.code, last.message)


def _shown(entry: MemoryEntryBlock) -> str:
    return f"{entry.key!r} of {entry.scope} {entry.scope_id}".rstrip()
