"""A run as a stream of frames that survives lost connections: what was shown is not shown again, nothing is left out.

A start carries an Idempotency-Key, always, so a connection that is lost before the ids have come is answered by asking
again: the same run comes back. Once the ids are known the stream goes on where it was, by Last-Event-ID. Previews have
no id; after a new connection the turn that was under way begins again, and a `reconnected` frame of our own says so.

Leaving never ends the run.

Before: runs.py, review.py. After: api.py, sse.py; view.py shows the frames.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from loomlog.services.cli.failures import Failure, Unreachable
from loomlog.services.cli.http.api import POSITION_HEADER, Api, NotNow, Refusal
from loomlog.services.cli.http.sse import EventParser, FrameTooLarge

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 2.0
GIVE_UP_S = 60.0
"""How long an API may be away: a restart of everything takes seconds, a broken one should be said."""
QUARANTINED = "quarantined"
ENDINGS = frozenset({"done", "error", QUARANTINED})
"""Frames after which there is nothing to wait for, unless the run was released meanwhile."""
RELEASED_LOOK_S, RELEASED_LOOKS = 0.2, 5
"""The read models may not know of a quarantine for a moment; after a second it has been lifted."""
RECONNECTED = "reconnected"
WAITING = "waiting"
"""A frame of our own: nothing comes for a while, and why."""
SAY_AFTER_S = 1.0
"""What is waited for is said after so long: restarts of a moment are nobody's concern, silence soon is."""
SAID_AT_ONCE = frozenset({"run_pending", "starting"})
"""Codes of refusals that come after a wait of the API's own, or mean one."""
NO_ANSWER_YET = "The API has not answered yet; it says within some seconds what it waits for."


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One frame. `seq` is None for previews and for what we say ourselves."""

    name: str
    data: Mapping[str, Any]
    seq: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIds:
    """Which run it is; the position of its first event is known only to who started it."""

    run_id: str
    session_id: str = ""
    agent_id: str = ""
    position: str = ""


class Followed:
    """One run, followed from its start (`body`, `idempotency_key`) or from somewhere in it (`run_id`)."""

    def __init__(
        self,
        api: Api,
        *,
        run_id: str = "",
        body: Mapping[str, Any] | None = None,
        idempotency_key: str = "",
        path: str = "/v1/runs",
        give_up_s: float = GIVE_UP_S,
        clock: Callable[[], float] | None = None,
    ) -> None:
        assert run_id or (body is not None and idempotency_key), "a run id, or a start that can be repeated"
        self.ids = RunIds(run_id=run_id)
        self.ended_by: Frame | None = None
        self._api = api
        self._body = body
        self._key = idempotency_key
        self._path = path
        self._give_up_s = give_up_s
        self._clock = clock or asyncio.get_running_loop().time
        self._last_id = ""
        self._said = ""
        self._was_connected = False

    async def frames(self) -> AsyncGenerator[Frame]:
        """Until the run has ended. Raises Refusal when the start is refused, Unreachable after `give_up_s`."""
        pause_s = FIRST_PAUSE_S
        since: float | None = None
        while True:
            problem: Failure | None = None
            try:
                async with (
                    aclosing(self._connection()) as connection,
                    aclosing(self._or_silence(connection)) as coming,
                ):
                    async for frame in coming:
                        if frame.name != WAITING:
                            pause_s, since, self._said = FIRST_PAUSE_S, None, ""
                        yield frame
                        if frame.name in ENDINGS and not (frame.name == QUARANTINED and await self._goes_on()):
                            self.ended_by = frame
                            return
            except httpx.HTTPError as error:
                problem = self._api.away(error)
            except NotNow as refusal:
                problem = refusal
                self._take_ids(refusal.details)
            except Refusal as refusal:
                # A run that was accepted a moment ago is not in the read models yet.
                if not (refusal.status == 404 and self._body is not None and self.ids.run_id):
                    raise
                problem = refusal
            except FrameTooLarge as error:
                raise Failure(f"The stream of {self.ids.run_id or 'the run'} cannot be read: {error}.") from error
            now = self._clock()
            since = now if since is None else since
            if now - since > self._give_up_s:
                raise self._given_up(problem)
            is_due = now - since >= SAY_AFTER_S or (isinstance(problem, NotNow) and problem.code in SAID_AT_ONCE)
            if problem is not None and is_due and (waiting := self._waiting(str(problem))) is not None:
                yield waiting
            await asyncio.sleep(pause_s)
            pause_s = min(LONGEST_PAUSE_S, pause_s * 2)

    def _waiting(self, why: str) -> Frame | None:
        """The frame that says why nothing comes; None when that was said last."""
        if why == self._said:
            return None
        self._said = why
        return Frame(name=WAITING, data={"error": why})

    async def _or_silence(self, connection: AsyncGenerator[Frame]) -> AsyncGenerator[Frame]:
        """The frames of a connection; while the first does not come, once a frame that says so."""
        first = asyncio.ensure_future(anext(connection, None))
        try:
            await asyncio.wait((first,), timeout=SAY_AFTER_S)
            if not first.done() and (waiting := self._waiting(NO_ANSWER_YET)) is not None:
                yield waiting
            came = await first
        finally:
            first.cancel()
            await asyncio.wait((first,))
        if came is not None:
            yield came
            async for frame in connection:
                yield frame

    async def _goes_on(self) -> bool:
        """Whether a run whose history has a quarantine was released since."""
        for _ in range(RELEASED_LOOKS):
            try:
                row = await self._api.get(f"/v1/runs/{self.ids.run_id}")
            except Failure:
                return False  # whoever asks again sees it from where it stands
            if row["status"] != "running":
                return True  # there is more to come: how it ended
            if row["quarantined"]:
                return False
            await asyncio.sleep(RELEASED_LOOK_S)
        return True

    async def _connection(self) -> AsyncGenerator[Frame]:
        if self.ids.run_id:
            headers = {"Last-Event-ID": self._last_id} if self._last_id else {}
            opened = self._api.stream("GET", f"/v1/runs/{self.ids.run_id}/stream", headers=headers)
        else:
            opened = self._api.stream("POST", self._path, body=self._body, headers={"Idempotency-Key": self._key})
        async with opened as response:
            if self._was_connected:
                yield Frame(name=RECONNECTED, data={})
            self._was_connected = True
            parser = EventParser(last_id=self._last_id)
            async for chunk in response.aiter_bytes():
                for sent in parser.feed(chunk):
                    frame = _frame(sent.name, sent.data, sent.last_id if sent.own_id else "")
                    self._last_id = sent.last_id
                    if frame.name == "agent":
                        position = response.headers.get(POSITION_HEADER, "")
                        self._take_ids({**frame.data, "position": position or self.ids.position})
                    yield frame

    def _take_ids(self, found: Mapping[str, Any]) -> None:
        if not found.get("run_id"):
            return
        self.ids = RunIds(
            run_id=str(found["run_id"]),
            session_id=str(found.get("session_id") or self.ids.session_id),
            agent_id=str(found.get("agent_id") or self.ids.agent_id),
            position=str(found.get("position") or self.ids.position),
        )

    def _given_up(self, problem: Failure | None) -> Unreachable:
        said = str(problem) if problem is not None else "The stream ends again and again before the run does."
        rest = f" The run {self.ids.run_id} is not affected: `loomlog runs follow {self.ids.run_id}` goes on."
        return Unreachable(f"{said}{rest if self.ids.run_id else ''} Tried for {self._give_up_s:g} s.")


def _frame(name: str, data: bytes, seq: str) -> Frame:
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        found = {"text": data.decode(errors="replace")}
    return Frame(
        name=name,
        data=found if isinstance(found, dict) else {"value": found},
        seq=int(seq) if seq.isascii() and seq.isdigit() else None,
    )
