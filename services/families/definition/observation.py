"""What the files of a process say, as events: for differences, for blame, and to tell processes whose files differ.

A process tells what the shared line of a name does not say already. So equal processes tell each definition once, and
different ones go on telling, twice in the time for which an observation counts; an observation of a process that has
ended is forgotten.

Before: the start of an api or a runtime. After: decide.py; `static_differs` of /v1/_definitions, `loomlog doctor`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from itertools import islice

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.protocols import Blobs
from loomlog.schemas.generated.definition_commands import ObserveStatic
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.ids import hashed_token
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.definition import limits
from loomlog.services.families.definition.composition import store_content
from loomlog.services.families.definition.operations import WAIT_S, ask_owner
from loomlog.services.families.definition.table import SHARED, DefinitionTable, FileDefinition
from loomlog.services.stream.entities.answers import EntityCommands

log = logging.getLogger(__name__)

EVERY_S = 60.0
"""Pause between two comparisons with what the others have told; one costs microseconds."""
AT_ONCE = 8
"""Commands that wait for their answers at the same time."""


class FileObserver:
    """Tells what the files of this process say. `name` is that of the process, the same after a restart."""

    def __init__(
        self, name: str, table: DefinitionTable, commands: EntityCommands, blobs: Blobs, *, clock_ms: Callable[[], int]
    ) -> None:
        self._name = name[: limits.NAME_CHARACTERS_MAX]
        self._table = table
        self._commands = commands
        self._blobs = blobs
        self._clock_ms = clock_ms

    async def run(self) -> None:
        """Tell what is new, until cancelled. What fails is tried again."""
        while True:
            try:
                await self.observe()
            except (ConnectorError, Unavailable) as error:
                log.warning("what the files define is not told yet: %s", error)
            await asyncio.sleep(EVERY_S)

    async def observe(self) -> int:
        """Tell what is new; returns the number of definitions. Raises Unavailable, ConnectorError."""
        new = self._untold()
        count = 0
        while files := list(islice(new, AT_ONCE)):
            await asyncio.gather(*(self._tell(file) for file in files))
            count += len(files)
        return count

    def _untold(self) -> Iterator[FileDefinition]:
        for file in self._table.files.values():
            line = self._table.line(file.kind, SHARED, file.name)
            static = line.static if line is not None else None
            own, at_ms = static.observed_by(self._name) if static is not None else (b"", 0)
            is_told = own == file.digest and self._clock_ms() - at_ms < limits.OBSERVED_AGAIN_MS
            is_known = static is not None and static.digest == file.digest and own in (b"", file.digest)
            if not is_told and not is_known:
                yield file

    async def _tell(self, file: FileDefinition) -> None:
        line = self._table.line(file.kind, SHARED, file.name)
        stored = await store_content(self._blobs, file.text)
        # What was read last is part of the id: told again later, it is another command.
        content = (self._name, file.kind, file.name, file.digest.hex(), self._table.position(line) if line else "")
        command = ObserveStatic(
            envelope=CommandEnvelope(
                command_id=hashed_token("observe", *content),
                tenant=SHARED,
                subject=self._name,
                issued_at_ms=0,  # an earlier process of this name may have sent it
            ),
            kind=file.kind,
            name=file.name,
            content=stored.text,
            content_blob=stored.blob,
            content_sha256=file.content_sha256,
            observer=self._name,
        )
        try:
            await ask_owner(self._commands, command, wait_s=WAIT_S)
        except Refused as refused:
            log.error("what the files say of the %s %s is refused: %s", file.kind, file.name, refused.message)
