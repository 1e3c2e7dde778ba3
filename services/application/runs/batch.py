"""Many runs in one request: started at once, and either waited for (join) or left running (detach).

Each run has its own outcome, in the order of the requests: one that is refused or fails does not affect the others. A
join that reaches its timeout cancels the remaining runs and reports that. A client that disconnects cancels nothing.

Under one Idempotency-Key each run has a key of its own, so the same batch again joins the same runs. The hash of the
whole batch is part of each of its requests, and the first of them starts alone: when the key belongs to another batch,
it is refused, and the batch with it, before anything of it has started.

Before: a transport. After: start.py, once for each run, and its stream to the end.
"""

import asyncio
import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from loomlog.schemas.records import replace
from loomlog.services.application import limits
from loomlog.services.application.answers.runs import SpawnResult
from loomlog.services.application.errors import bad_request
from loomlog.services.application.queries.json_types import FinalUsage, LimitNoticeJson
from loomlog.services.application.runs.control import RunControl
from loomlog.services.application.runs.requests import RunRequest, check_request, request_digest
from loomlog.services.application.runs.start import RunStarts, StartedRun
from loomlog.services.application.streaming.items import StreamChunk
from loomlog.services.application.streaming.run_stream import RunStream, StreamSources
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused

TIMEOUT_REASON = "batch timeout"
"""Reason of the cancel of runs that a join no longer waits for."""


@dataclass(slots=True, kw_only=True)
class SpawnOutcome:
    """Outcome of one run of a batch. Ids are empty when it was refused.

    `status` is completed, failed, cancelled, running (detached, or not taken up by an owner yet) or awaiting_input (an
    interactive run that waits).
    """

    status: str
    agent_id: str = ""
    run_id: str = ""
    session_id: str = ""
    stop_reason: str = ""
    final_text: str = ""
    result: Any = None
    """The record of a run with an output schema."""
    usage: FinalUsage | None = None
    error: str = ""
    error_code: str = ""
    limits: list[LimitNoticeJson] = field(default_factory=list)
    parent_context: dict[str, str] = field(default_factory=dict)
    position: str = ""


class Batches:
    """The use cases. Both raise Refused for errors of the batch as a whole."""

    def __init__(self, sources: StreamSources, runs: RunStarts, control: RunControl) -> None:
        self._sources = sources
        self._runs = runs
        self._control = control

    async def join(
        self, caller: Caller, requests: Sequence[RunRequest], *, key: str = "", timeout_ms: int = 0
    ) -> list[SpawnOutcome]:
        """Start the runs and wait for them; returns outcomes in the order of the requests. `timeout_ms` 0 = the
        maximum.
        """
        spawns = _check_batch(requests, key)
        clock = asyncio.get_running_loop().time
        deadline = clock() + min(timeout_ms or limits.BATCH_WAIT_MS, limits.BATCH_WAIT_MS) / 1000
        begun = await self._start_first(caller, spawns)
        return await asyncio.gather(
            *(self._joined_outcome(caller, one, deadline, begun.get(place)) for place, one in enumerate(spawns))
        )

    async def detach(self, caller: Caller, requests: Sequence[RunRequest], *, key: str = "") -> list[SpawnOutcome]:
        """Start the runs; returns their ids once every start is decided."""
        spawns = _check_batch(requests, key)
        begun = await self._start_first(caller, spawns)
        return await asyncio.gather(
            *(self._detached_outcome(caller, one, begun.get(place)) for place, one in enumerate(spawns))
        )

    async def _start_first(self, caller: Caller, requests: Sequence[RunRequest]) -> dict[int, StartedRun | Refused]:
        """Start runs under the key of the batch, in order, up to the first that is not refused; returns results by
        index.

        Raises Refused when the key was used by another batch (idempotency_key_reused), or by one whose content
        is erased, so that it cannot be compared (content_erased).
        """
        begun: dict[int, StartedRun | Refused] = {}
        for place, request in enumerate(requests):
            if request.batch_sha256:
                begun[place] = result = await self._try_start(caller, request)
                if isinstance(result, Refused) and result.code in ("idempotency_key_reused", "content_erased"):
                    raise result
                if isinstance(result, StartedRun) or result.code == "run_pending":
                    break
        return begun

    async def _try_start(self, caller: Caller, request: RunRequest) -> StartedRun | Refused:
        try:
            return await self._runs.start(caller, request)
        except Refused as declined:
            return declined

    async def _detached_outcome(
        self, caller: Caller, request: RunRequest, started: StartedRun | Refused | None
    ) -> SpawnOutcome:
        accepted = started or await self._try_start(caller, request)
        if isinstance(accepted, Refused):
            return _refused_outcome(accepted, request)
        accepted.stream.close()
        return _started_outcome(accepted, request)

    async def _joined_outcome(
        self, caller: Caller, request: RunRequest, deadline: float, started: StartedRun | Refused | None
    ) -> SpawnOutcome:
        accepted = started or await self._try_start(caller, request)
        if isinstance(accepted, Refused):
            return _refused_outcome(accepted, request)
        outcome = _started_outcome(accepted, request)
        try:
            async with asyncio.timeout_at(deadline):
                await self._follow(accepted.stream, outcome)
        except TimeoutError:
            await self._cancel_on_timeout(caller, outcome)
        except Refused as declined:
            outcome.error, outcome.error_code = declined.message, declined.code
        finally:
            accepted.stream.close()
        partition = self._sources.partition_of(outcome.run_id)
        newest = max(0, self._sources.hub.position(partition) - 1)
        outcome.position = self._sources.barrier.token(partition, newest)
        return outcome

    async def _follow(self, stream: RunStream, outcome: SpawnOutcome) -> None:
        """Follow the stream until the run has ended or waits for input."""
        builder = OutcomeBuilder(outcome)
        while (pieces := await stream.next()) is not None:
            for piece in pieces:
                builder.add_frame(piece)
            if outcome.status == "awaiting_input":
                return
        if outcome.status == "running":
            outcome.error = f"the stream of the run ended early ({stream.end_reason}); follow it under its id"

    async def _cancel_on_timeout(self, caller: Caller, outcome: SpawnOutcome) -> None:
        try:
            stopped = await self._control.cancel_run(caller, outcome.run_id, TIMEOUT_REASON)
        except Refused as declined:
            # The cancel is in the log, or the read models do not know the run yet: do not wait for it.
            outcome.error, outcome.error_code = declined.message, declined.code
            outcome.status = "cancelled" if declined.code == "cancel_pending" else outcome.status
            return
        outcome.status, outcome.stop_reason = stopped.status, stopped.reason
        outcome.error = outcome.error or ("" if stopped.status == "completed" else stopped.reason)


def outcome_json(outcome: SpawnOutcome) -> SpawnResult:
    """Return one result of a batch as JSON; missing values are null."""
    answer: SpawnResult = {
        "agent_id": outcome.agent_id or None,
        "run_id": outcome.run_id or None,
        "session_id": outcome.session_id or None,
        "status": outcome.status,
        "stop_reason": outcome.stop_reason or None,
        "final_text": outcome.final_text,
        "usage": outcome.usage,
        "error": outcome.error or None,
        "error_code": outcome.error_code or None,
        "limits": outcome.limits,
        "parent_context": outcome.parent_context or None,
        "position": outcome.position or None,
    }
    if outcome.result is not None:
        answer["result"] = outcome.result
    return answer


class OutcomeBuilder:
    """Builds the outcome of a run from its stream frames."""

    def __init__(self, outcome: SpawnOutcome) -> None:
        self._outcome = outcome
        self._is_new_turn = True

    def add_frame(self, chunk: StreamChunk) -> None:
        outcome = self._outcome
        match chunk.type:
            case "text":
                text = orjson.loads(chunk.data).get("text", "")
                outcome.final_text = text if self._is_new_turn else outcome.final_text + text
                self._is_new_turn = False
            case "usage" | "retry":
                self._is_new_turn = True
            case "limit":
                outcome.limits.append(orjson.loads(chunk.data)["limit"])
            case "awaiting_input":
                outcome.status = outcome.stop_reason = "awaiting_input"
            case "done":
                done = orjson.loads(chunk.data)
                outcome.stop_reason = done["stop_reason"]
                outcome.status = "cancelled" if outcome.stop_reason == "cancelled" else "completed"
                outcome.usage = done.get("usage")
                outcome.result = done.get("result")
            case "error":
                outcome.status, outcome.error = "failed", orjson.loads(chunk.data).get("error", "")


def _check_batch(requests: Sequence[RunRequest], key: str) -> list[RunRequest]:
    """Return the requests as they are started: always new sessions, and under the key of the batch if it has one."""
    if not 1 <= len(requests) <= limits.BATCH_SPAWNS_MAX:
        raise bad_request(f"spawns: {len(requests)} of them, expected 1 to {limits.BATCH_SPAWNS_MAX}")
    return _with_keys([replace(request, session_id="") for request in requests], key)


def _started_outcome(started: StartedRun, request: RunRequest) -> SpawnOutcome:
    return SpawnOutcome(
        status="running",
        agent_id=started.agent_id,
        run_id=started.run_id,
        session_id=started.session_id,
        parent_context=dict(request.parent_context),
        position=started.position,
    )


def _refused_outcome(refusal: Refused, request: RunRequest) -> SpawnOutcome:
    """Return the outcome of a refused start; a pending one (not taken up yet) has its ids and status running."""
    details = refusal.details
    is_pending = refusal.code == "run_pending"
    return SpawnOutcome(
        status="running" if is_pending else "failed",
        agent_id=str(details.get("agent_id", "")),
        run_id=str(details.get("run_id", "")) if is_pending else "",
        session_id=str(details.get("session_id", "")),
        # The code in words first: clients of a batch parse it there.
        error=f"{refusal.code.replace('_', ' ')}: {refusal.message}",
        error_code=refusal.code,
        parent_context=dict(request.parent_context),
        position=str(details.get("position", "")),
    )


def _with_keys(requests: list[RunRequest], key: str) -> list[RunRequest]:
    """Give each request of a batch with an Idempotency-Key its own derived key, unless it has one."""
    if not key:
        return requests
    digests = [(request.idempotency_key, _digest(request)) for request in requests]
    batch_sha256 = hashlib.sha256(orjson.dumps(digests)).hexdigest()
    number = itertools.count()
    return [
        request
        if request.idempotency_key
        else replace(request, idempotency_key=f"{key}.{next(number)}", batch_sha256=batch_sha256)
        for request in requests
    ]


def _digest(request: RunRequest) -> str:
    """Return the digest of a request; for one that cannot be started, the reason."""
    try:
        return request_digest(check_request(request))
    except Refused as declined:
        return declined.message
