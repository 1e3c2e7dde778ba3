"""`Client`: start, follow, steer and read runs over HTTP.

    async with Client("http://127.0.0.1:18787", token="...") as client:
        run = await client.start_run("assistant", "What is a term?")
        async for frame in run.frames():
            ...
        result = await run.result()

Before: programs of users. After: http.py, run_stream.py.
"""

import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from loomlog.connectors.client.errors import ApiError, ClientError
from loomlog.connectors.client.http import ApiResponse, HttpClient, quote_segment
from loomlog.connectors.client.run_stream import RECONNECTED, Frame, RunIds, RunStream

DEFAULT_URL = "http://127.0.0.1:18787"


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended. `status` is completed, failed or cancelled; `text` the answer of its last turn; `error` the
    reason when it did not complete; `row` the run as `GET /v1/runs/{id}` returns it.
    """

    status: str
    text: str
    error: str
    row: Mapping[str, Any]


class Client(HttpClient):
    """A loomlog API. `get`, `post`, `put` and `delete` (http.py) reach every route that has no method here."""

    def __init__(self, base_url: str = DEFAULT_URL, token: str = "", **options: Any) -> None:
        super().__init__(base_url, token, **options)

    async def start_run(
        self,
        agent: str,
        prompt: str = "",
        *,
        session_id: str = "",
        segments: Sequence[Mapping[str, Any]] = (),
        user_id: str = "",
        metadata: Mapping[str, Any] | None = None,
        idempotency_key: str = "",
        position: str = "",
        **options: Any,
    ) -> "Run":
        """Start a run and return it once its ids are known.

        The start is repeated over lost connections under one idempotency key (a random one by default), so there is
        one run. `session_id` continues that session; `options` are further fields of the body of `POST /v1/runs`.
        `position` names earlier writes that the run must see (ApiResponse.position, for example of a limit).
        Raises ApiError when the start is refused, Unreachable when the API cannot be reached for 60 s.
        """
        path = f"/v1/sessions/{quote_segment(session_id)}/messages?ids=1" if session_id else "/v1/runs?ids=1"
        fields = {"segments": list(segments), "user_id": user_id, "metadata": metadata, "prompt": prompt, **options}
        body = {"agent": agent} | {name: value for name, value in fields.items() if value not in ("", None, [])}
        stream = RunStream(
            self, body=body, idempotency_key=idempotency_key or str(uuid.uuid4()), path=path, position=position
        )
        run = Run(self, stream)
        await run._wait_for_ids()
        return run

    def run(self, run_id: str, *, last_id: str = "") -> "Run":
        """Return a run by its id, for following (from `last_id` on) and steering. Sends no request."""
        return Run(self, RunStream(self, run_id=run_id, last_id=last_id))

    async def runs(self, **filters: str | int) -> list[Mapping[str, Any]]:
        """Return a page of runs, newest first; `filters` are the query parameters of `GET /v1/runs`."""
        page: dict[str, Any] = await self.get("/v1/runs", filters)
        return list(page["runs"])

    async def questions(self, **filters: str | int) -> list[Mapping[str, Any]]:
        """Return the open questions to people; `filters` are the query parameters of `GET /v1/interrupts`."""
        page: dict[str, Any] = await self.get("/v1/interrupts", filters)
        return list(page["interrupts"])


class Run:
    """One run. Use one method of `frames` and `result` at a time; both continue where the other stopped."""

    def __init__(self, client: HttpClient, stream: RunStream) -> None:
        self._client = client
        self._stream = stream
        self._frames = stream.frames()
        self._early: list[Frame] = []
        self._text = ""
        self._unconfirmed = ""
        """Previews of the current turn, which a reconnect repeats."""

    @property
    def ids(self) -> RunIds:
        """Ids of the run, its session and its handle, and the log position of its first event."""
        return self._stream.ids

    @property
    def run_id(self) -> str:
        return self._stream.ids.run_id

    async def frames(self) -> AsyncGenerator[Frame]:
        """Yield the frames that were not yielded yet, until the run has ended. Raises Unreachable.

        After a frame named `reconnected` the current turn begins again: discard text without a `seq` since the last
        frame with one.
        """
        while self._early:
            yield self._early.pop(0)
        async for frame in self._frames:
            yield frame

    async def result(self, *, on_frame: Callable[[Frame], Awaitable[None]] | None = None) -> RunResult:
        """Follow the run to its end, calling `on_frame` for each frame, and return its result. Raises Unreachable."""
        async with aclosing(self.frames()) as frames:
            async for frame in frames:
                self._collect(frame)
                if on_frame is not None:
                    await on_frame(frame)
        return await self._result()

    async def row(self, *, position: str = "") -> Mapping[str, Any]:
        """Return the run as `GET /v1/runs/{id}` has it, with the writes at `position`. Raises ApiError."""
        row: dict[str, Any] = await self._client.get(self._path(), position=position)
        return row

    async def transcript(self) -> list[Mapping[str, Any]]:
        """Return the stored frames of the run's session. Raises ApiError."""
        row = await self.row()
        page: dict[str, Any] = await self._client.get(f"/v1/sessions/{quote_segment(row['session_id'])}/transcript")
        return list(page["events"])

    async def send(self, text: str, *, idempotency_key: str = "") -> ApiResponse:
        """Send a user text to a live run. Raises ApiError."""
        return await self._post("/input", {"text": text}, idempotency_key)

    async def answer(self, interrupt_id: str, answer: str, *, idempotency_key: str = "") -> ApiResponse:
        """Answer a question that the run asked. Raises ApiError."""
        return await self._post(
            f"/interrupts/{quote_segment(interrupt_id)}/resolve", {"answer": answer}, idempotency_key
        )

    async def stop_turn(self) -> ApiResponse:
        """Stop the current turn; an interactive run then waits for input. Raises ApiError."""
        return await self._post("/cancel", {})

    async def cancel(self, reason: str = "") -> ApiResponse:
        """End the run. Raises ApiError."""
        agent_id = self.ids.agent_id or (await self.row())["agent_id"]
        return await self._client.post(f"/v1/agents/{quote_segment(agent_id)}/cancel", {"reason": reason})

    async def _post(self, path: str, body: Mapping[str, Any], idempotency_key: str = "") -> ApiResponse:
        headers = {"Idempotency-Key": idempotency_key or str(uuid.uuid4())}
        return await self._client.post(self._path() + path, body, headers)

    def _path(self) -> str:
        return f"/v1/runs/{quote_segment(self.run_id)}"

    async def _wait_for_ids(self) -> None:
        while not self.run_id:
            frame = await anext(self._frames, None)
            if frame is None:
                raise ClientError("the stream ended before the ids of the run")
            self._early.append(frame)

    def _collect(self, frame: Frame) -> None:
        match frame.name:
            case "tool_result" | "steer" | "retry" | "provider_fallback":
                self._text = self._unconfirmed = ""
            case name if name == RECONNECTED:
                self._unconfirmed = ""
            case "text" if frame.seq is None:
                self._unconfirmed += str(frame.data.get("text") or "")
            case "text":
                self._text += self._unconfirmed + str(frame.data.get("text") or "")
                self._unconfirmed = ""

    async def _result(self) -> RunResult:
        final = self._stream.final_frame
        assert final is not None, "the stream has ended"
        try:
            row = await self.row()
        except ApiError as error:
            if error.status != 404:
                raise
            row = {}
        error_text = str(final.data.get("error") or row.get("error") or "")
        status = str(row.get("status") or ("completed" if final.name == "done" else "failed"))
        return RunResult(status=status, text=self._text + self._unconfirmed, error=error_text, row=row)
