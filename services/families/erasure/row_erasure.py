"""Rows and blobs of a subject that is erased: afterwards no view has its sessions.

The event is what counts: the projector deletes the rows whenever it reads it, also of builds that are made later. An
answer waits for it, and says so when it takes longer. A blob is deleted where it is in plaintext and no other run has
it; one that is encrypted is unreadable without its key.

Before: services/application/admin/erasure.py. After: __init__.py decides, projections/erasures.py deletes.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.protocols import Blobs
from loomlog.projections.erasures import ErasureRow, SqlErasures
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.erasure_commands import EraseRuns
from loomlog.schemas.generated.values import BlobRef, CommandEnvelope
from loomlog.schemas.ids import hashed_token
from loomlog.services.families.erasure import RUNS_MAX
from loomlog.services.families.operation import read_rows
from loomlog.services.families.ports.row_erasure import ErasedRows
from loomlog.services.stream.entities.answers import CommandInvalid, CommandUnanswered, EntityCommands

COMMAND_WAIT_S = 5.0
"""Longest wait for the owner of the erasure."""
ROWS_WAIT_S = 30.0
"""Longest wait for the projector."""
POLL_S = 0.1


class RowErasure:
    """The port of that name."""

    def __init__(
        self,
        commands: EntityCommands,
        erasures: SqlErasures,
        blobs: Blobs,
        *,
        clock_ms: Callable[[], int],
        wait_s: float = COMMAND_WAIT_S,
        rows_wait_s: float = ROWS_WAIT_S,
    ) -> None:
        self._commands, self._erasures, self._blobs = commands, erasures, blobs
        self._clock_ms, self._wait_s, self._rows_wait_s = clock_ms, wait_s, rows_wait_s

    async def erase(
        self,
        tenant: str,
        subject: str,
        run_ids: Sequence[str],
        clear_blobs: Mapping[str, BlobRef],
        *,
        in_clear: bool,
        erasure_id: str,
        by: str,
        reason: str,
    ) -> ErasedRows:
        """Delete the rows of these runs, and blobs; what fails is in `errors`."""
        errors: list[str] = []
        blobs_deleted = 0
        try:
            blobs_deleted = await self._delete_blobs(clear_blobs, run_ids)
        except ConnectorError as error:
            errors.append(f"the blobs of the subject were not all deleted: {error}")
        command = EraseRuns(
            envelope=CommandEnvelope(
                command_id=hashed_token("erased runs", tenant, erasure_id),
                tenant=tenant,
                subject=by,
                issued_at_ms=self._clock_ms(),
            ),
            erasure_id=erasure_id,
            subject=subject,
            run_ids=tuple(run_ids[:RUNS_MAX]),
            in_clear=in_clear,
            by=by,
            reason=reason,
        )
        if len(run_ids) > RUNS_MAX:
            errors.append(f"{len(run_ids) - RUNS_MAX} runs of the subject are left: repeat the erasure")
        try:
            answer = await self._commands.ask(command, wait_s=self._wait_s)
            if isinstance(last := answer.events[-1], CommandRefused):
                errors.append(f"the rows of the subject were not deleted: {last.message}")
                return ErasedRows(at_ms=self._clock_ms(), blobs_deleted=blobs_deleted, errors=tuple(errors))
            are_deleted = await self._wait_until_deleted(tenant, erasure_id)
        except (CommandUnanswered, CommandInvalid, ConnectorError) as error:
            errors.append(f"the rows of the subject are not deleted yet: {error}")
            return ErasedRows(at_ms=self._clock_ms(), blobs_deleted=blobs_deleted, errors=tuple(errors))
        if not are_deleted:
            errors.append(
                f"the rows of the subject are not deleted yet: the projector has not done it within "
                f"{self._rows_wait_s:g} s, and will when it runs (`loomlog projections lag`)"
            )
        return ErasedRows(
            position=answer.position,
            at_ms=self._clock_ms(),
            are_deleted=are_deleted,
            blobs_deleted=blobs_deleted,
            errors=tuple(errors),
        )

    async def erasures_of(self, tenant: str, subject: str) -> tuple[ErasureRow, ...]:
        """Return the erasures of a subject whose rows are deleted. Raises Unavailable."""
        return tuple(await read_rows(self._erasures.of_subject(tenant, subject)))

    async def _delete_blobs(self, blobs: Mapping[str, BlobRef], run_ids: Sequence[str]) -> int:
        if not blobs:
            return 0
        shared = await self._erasures.shared_blobs(list(blobs), run_ids)
        own = [ref for sha256, ref in blobs.items() if sha256 not in shared]
        for ref in own:
            await self._blobs.delete(ref)
        return len(own)

    async def _wait_until_deleted(self, tenant: str, erasure_id: str) -> bool:
        deadline = asyncio.get_running_loop().time() + self._rows_wait_s
        while not (is_done := await self._erasures.is_done(tenant, erasure_id)):
            if asyncio.get_running_loop().time() >= deadline:
                break
            await asyncio.sleep(POLL_S)
        return is_done
