"""Verifications for administrators: a stream of progress and then the result; and the newest signed checkpoints.

    progress   how far it is, at most every PROGRESS_EVERY_S
    result     the reports, as `loomlog audit verify --json`
    error      why there is no result

A verification reads the whole log, so one at a time runs in a process, with readers of its own. It ends with its
stream: when the client leaves, when the process stops, and after VERIFICATION_MAX_S.

Before: services/api/audit_endpoints.py, services/application/operations/log_handlers.py. After: verifier.py.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson

from loomlog.connectors.errors import ConnectorError
from loomlog.services.application.errors import RETRY_LATER_S, bad_request, unavailable
from loomlog.services.application.log.audit_json import audit_json
from loomlog.services.application.log.json_types import CheckpointList
from loomlog.services.application.log.verification import VerificationProgress
from loomlog.services.application.log.verifier import LogVerifier, VerificationRequest
from loomlog.services.application.streaming.items import StreamChunk
from loomlog.services.application.streaming.run_stream import ENDED
from loomlog.services.application.streaming.subscription import CLIENT_LEFT, STOPPING
from loomlog.services.core.refusals import Refused

PROGRESS_EVERY_S = 0.5
KEEPALIVE_S = 15.0
"""Idle time after which a keepalive is sent."""
VERIFICATION_MAX_S = 3_600.0
"""Time limit of a verification: some hundred million records. A part of the log takes less."""
CHECKPOINTS_WAIT_S = 10.0
CHECKPOINTS_MAX = 20
"""Maximum checkpoints listed of one partition of a topic."""


class AuditVerifications:
    """Verifies the log for administrators, one verification at a time."""

    def __init__(self, verifier: LogVerifier) -> None:
        self._verifier = verifier
        self._current: VerificationStream | None = None

    def verify(self, request: VerificationRequest) -> "VerificationStream":
        """Open the stream of a verification. Raises Refused: bad_request, backpressure."""
        if request.conflict:
            raise bad_request(request.conflict)
        if self._current is not None and self._current.is_running:
            raise Refused(
                "backpressure",
                "a verification is running in this process; wait for its end, or leave its stream",
                retry_after_s=RETRY_LATER_S,
            )
        self._current = VerificationStream(self._verifier, request)
        return self._current

    async def checkpoints(self, *, limit: int = 1) -> CheckpointList:
        """Return the newest checkpoints of each partition. Raises Refused: log_unavailable, request_timeout."""
        async with _translate_errors(f"not read within {CHECKPOINTS_WAIT_S:g} s", CHECKPOINTS_WAIT_S):
            return {"checkpoints": await self._verifier.newest_checkpoints(limit)}

    def stop(self) -> None:
        """End the stream, because the process is shutting down."""
        if self._current is not None:
            self._current.close(STOPPING)


class VerificationStream:
    """One verification as a stream; `next` and `close` as in run_stream.RunStream. It begins when it is opened."""

    def __init__(self, verifier: LogVerifier, request: VerificationRequest) -> None:
        self.end_reason = ""
        self._progress: VerificationProgress | None = None
        self._records: dict[tuple[str, int], int] = {}
        self._is_told = True
        self._began = time.monotonic()
        self._task = asyncio.create_task(self._verify(verifier, request), name="verification")

    @property
    def is_running(self) -> bool:
        """Whether it still reads the log."""
        return not self._task.done()

    async def next(self) -> list[StreamChunk] | None:
        """Return the next frames; an empty list is a keepalive, None the end."""
        idle_until = time.monotonic() + KEEPALIVE_S
        while not self.end_reason and not self._task.done():
            await asyncio.wait({self._task}, timeout=PROGRESS_EVERY_S)
            if not (self._is_told or self._task.done()):
                self._is_told = True
                return [self._progress_frame()]
            if time.monotonic() >= idle_until:
                return []
        if self.end_reason:
            return None
        self.end_reason = ENDED
        return [self._task.result()]

    def close(self, reason: str = CLIENT_LEFT) -> None:
        """End the verification; no frames follow."""
        self.end_reason = self.end_reason or reason
        self._task.cancel()

    async def _verify(self, verifier: LogVerifier, request: VerificationRequest) -> StreamChunk:
        try:
            async with _translate_errors(f"not verified within {VERIFICATION_MAX_S:g} s", VERIFICATION_MAX_S):
                reports = await verifier.verify(request, self._note)
        except Refused as refusal:
            return _frame("error", {"code": refusal.code, "error": refusal.message})
        return _frame("result", audit_json(reports, time.monotonic() - self._began))

    def _note(self, progress: VerificationProgress) -> None:
        self._progress, self._is_told = progress, False
        self._records[progress.topic, progress.partition] = progress.records

    def _progress_frame(self) -> StreamChunk:
        assert self._progress is not None
        return _frame(
            "progress",
            {
                "topic": self._progress.topic,
                "partition": self._progress.partition,
                "next_offset": self._progress.next_offset,
                "end_offset": self._progress.end_offset,
                "records": sum(self._records.values()),
                "seconds": round(time.monotonic() - self._began, 3),
            },
        )


def _frame(kind: str, body: Mapping[str, Any]) -> StreamChunk:
    return StreamChunk(None, kind, orjson.dumps({"type": kind, **body}))


@contextlib.asynccontextmanager
async def _translate_errors(late: str, wait_s: float) -> AsyncIterator[None]:
    """Translate a broker that does not answer into a refusal, and work that takes longer than its limit."""
    try:
        async with asyncio.timeout(wait_s):
            yield
    except TimeoutError as error:
        raise Refused("request_timeout", f"{late}: ask for a part (since, partition or run_id)") from error
    except ConnectorError as error:
        raise unavailable("log", error) from error
