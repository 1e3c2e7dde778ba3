"""The frames of a run, over lost connections: no frame is repeated and none is missing.

A start always carries an Idempotency-Key, so a connection that is lost before the ids have arrived is retried and
returns the same run. Once the ids are known the stream continues where it was, by Last-Event-ID. Previews have no id;
after a reconnect the current turn begins again, and a client-side `reconnected` frame announces that.

Leaving a stream never ends the run.

Before: client.py, services/cli/runs. After: http.py, connectors/http/sse.py.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

from loomlog.connectors.client.errors import ApiError, ApiUnavailable, ClientError
from loomlog.connectors.client.http import POSITION_HEADER, HttpClient, position_headers
from loomlog.connectors.http.sse import EventParser, FrameTooLarge

INITIAL_BACKOFF_S = 0.2
MAX_BACKOFF_S = 2.0
MAX_FRAME_BYTES = 32 * 1024 * 1024
"""A tool result of some megabytes, escaped; a larger frame does not come from this API."""
QUARANTINED = "quarantined"
FINAL_FRAMES = frozenset({"done", "error", QUARANTINED})
"""Frames after which the stream ends, unless the run was released in the meantime."""
RELEASE_POLL_S, RELEASE_POLLS = 0.2, 5
"""Seconds between polls, and their number; the read models may lag a quarantine, and after 1 s it has been lifted."""
RECONNECTED = "reconnected"
WAITING = "waiting"
"""Name of a client-side frame: nothing arrives for a while, and the reason."""
REPORT_WAIT_AFTER_S = 1.0
"""Seconds before a wait is reported, with its reason; shorter restarts are not worth a message."""
REPORTED_AT_ONCE = frozenset({"run_pending", "starting"})
"""Refusal codes reported without delay; they come after a wait of the API's own, or mean one."""
NO_RESPONSE_YET = "The API has not answered yet; within some seconds it reports what it waits for."


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One frame. `seq` is None for previews and for client-side frames."""

    name: str
    data: Mapping[str, Any]
    seq: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIds:
    """Ids of a run; `position`, that of its first event, is known only to the client that started it."""

    run_id: str
    session_id: str = ""
    agent_id: str = ""
    position: str = ""


class RunStream:
    """Stream of one run from its start (`body`, `idempotency_key`) or from a position in it (`run_id`, `last_id`)."""

    def __init__(
        self,
        api: HttpClient,
        *,
        run_id: str = "",
        body: Mapping[str, Any] | None = None,
        idempotency_key: str = "",
        path: str = "/v1/runs",
        timeout_s: float | None = None,
        clock: Callable[[], float] | None = None,
        last_id: str = "",
        position: str = "",
    ) -> None:
        """`position`: of earlier writes that a start must see, separated by commas."""
        assert run_id or (body is not None and idempotency_key), "a run id, or a start that can be repeated"
        self.ids = RunIds(run_id=run_id)
        self.final_frame: Frame | None = None
        self._api = api
        self._body = body
        self._idempotency_key = idempotency_key
        self._path = path
        self._timeout_s = api.reconnect_timeout_s if timeout_s is None else timeout_s
        self._clock = clock or asyncio.get_running_loop().time
        self._last_id = last_id
        self._position = position
        self._last_wait_reason = ""
        self._was_connected = False

    async def frames(self) -> AsyncGenerator[Frame]:
        """Yield frames until the run has ended. Raises ApiError when the start is refused, Unreachable after
        `timeout_s` without a connection.
        """
        pause_s = INITIAL_BACKOFF_S
        since: float | None = None
        while True:
            problem: Exception | None = None
            try:
                async with (
                    aclosing(self._open_stream()) as connection,
                    aclosing(self._with_silence_notice(connection)) as coming,
                ):
                    async for frame in coming:
                        if frame.name != WAITING:
                            pause_s, since, self._last_wait_reason = INITIAL_BACKOFF_S, None, ""
                        yield frame
                        if frame.name in FINAL_FRAMES and not (
                            frame.name == QUARANTINED and await self._was_released()
                        ):
                            self.final_frame = frame
                            return
            except httpx.HTTPError as error:
                problem = self._api.unreachable_error(error)
            except ApiUnavailable as refusal:
                problem = refusal
                self._update_ids(refusal.details)
            except ApiError as refusal:
                # A run that was accepted a moment ago may not be in the read models yet.
                if not (refusal.status == 404 and self._body is not None and self.ids.run_id):
                    raise
                problem = refusal
            except FrameTooLarge as error:
                raise self._api.invalid_response(f"the stream of {self.ids.run_id or 'the run'} has {error}") from error
            now = self._clock()
            since = now if since is None else since
            if now - since > self._timeout_s:
                raise self._timeout_error(problem)
            is_due = now - since >= REPORT_WAIT_AFTER_S or (
                isinstance(problem, ApiUnavailable) and problem.code in REPORTED_AT_ONCE
            )
            if problem is not None and is_due and (waiting := self._waiting_frame(str(problem))) is not None:
                yield waiting
            await asyncio.sleep(pause_s)
            pause_s = min(MAX_BACKOFF_S, pause_s * 2)

    def _waiting_frame(self, reason: str) -> Frame | None:
        """Return the frame that reports the reason of a wait; None when it repeats the last one."""
        if reason == self._last_wait_reason:
            return None
        self._last_wait_reason = reason
        return Frame(name=WAITING, data={"error": reason})

    async def _with_silence_notice(self, connection: AsyncGenerator[Frame]) -> AsyncGenerator[Frame]:
        """Yield the frames of a connection, and one waiting frame if the first is slow to arrive."""
        first = asyncio.ensure_future(anext(connection, None))
        try:
            await asyncio.wait((first,), timeout=REPORT_WAIT_AFTER_S)
            if not first.done() and (waiting := self._waiting_frame(NO_RESPONSE_YET)) is not None:
                yield waiting
            came = await first
        finally:
            first.cancel()
            await asyncio.wait((first,))
        if came is not None:
            yield came
            async for frame in connection:
                yield frame

    async def _was_released(self) -> bool:
        """Return whether a run with a quarantine in its history has been released since."""
        for _ in range(RELEASE_POLLS):
            try:
                row = await self._api.get(f"/v1/runs/{self.ids.run_id}")
            except ClientError:
                return False  # the next request shows the current status
            if row["status"] != "running":
                return True  # more frames follow: how it ended
            if row["quarantined"]:
                return False
            await asyncio.sleep(RELEASE_POLL_S)
        return True

    async def _open_stream(self) -> AsyncGenerator[Frame]:
        if self.ids.run_id:
            headers = {"Last-Event-ID": self._last_id} if self._last_id else {}
            opened = self._api.stream("GET", f"/v1/runs/{self.ids.run_id}/stream", headers=headers)
        else:
            headers = {"Idempotency-Key": self._idempotency_key, **position_headers(self._position)}
            opened = self._api.stream("POST", self._path, body=self._body, headers=headers)
        async with opened as response:
            if self._was_connected:
                yield Frame(name=RECONNECTED, data={})
            self._was_connected = True
            parser = EventParser(MAX_FRAME_BYTES, last_id=self._last_id)
            async for chunk in response.aiter_bytes():
                for sent in parser.feed(chunk):
                    frame = _parse_frame(sent.name, sent.data, sent.last_id if sent.has_own_id else "")
                    self._last_id = sent.last_id
                    if frame.name == "agent":
                        position = response.headers.get(POSITION_HEADER, "")
                        self._update_ids({**frame.data, "position": position or self.ids.position})
                    yield frame

    def _update_ids(self, data: Mapping[str, Any]) -> None:
        if not data.get("run_id"):
            return
        self.ids = RunIds(
            run_id=str(data["run_id"]),
            session_id=str(data.get("session_id") or self.ids.session_id),
            agent_id=str(data.get("agent_id") or self.ids.agent_id),
            position=str(data.get("position") or self.ids.position),
        )

    def _timeout_error(self, problem: Exception | None) -> Exception:
        text = str(problem) if problem is not None else "The stream ends again and again before the run does."
        return self._api.stream_lost_error(
            f"{text} Retried for {self._timeout_s:g} s." if self._timeout_s else text, self.ids.run_id
        )


def _parse_frame(name: str, data: bytes, seq: str) -> Frame:
    try:
        payload = msgspec.json.decode(data)
    except msgspec.DecodeError:
        payload = {"text": data.decode(errors="replace")}
    return Frame(
        name=name,
        data=payload if isinstance(payload, dict) else {"value": payload},
        seq=int(seq) if seq.isascii() and seq.isdigit() else None,
    )
