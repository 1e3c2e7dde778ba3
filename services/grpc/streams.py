"""The RPCs that stream: runs, and the states of a user's runs. The same hubs as server-sent events.

A stream of Run and Continue begins with two frames that clients wait for: `session`, and `agent` with the ids of the
run. StreamRun has neither: it sends the events of a run after a number, stored ones and then those that happen. Every
event has from field 100 on what HTTP has of it: its number, with which a stream is resumed, and its JSON.

A reader that takes nothing keeps only its own stream: gRPC holds back what it sends, the stream has a queue with
bounds, and what fell out of it is read again from the read models (run_stream.py). One that has not taken what is sent
together after WRITE_WAIT_S is dropped.

Before: server.py. After: services/application/streaming.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
import orjson
from pydantic import ValidationError

from loomlog.projections.frames.frame import SESSION_STRIDE
from loomlog.services.api import open_access
from loomlog.services.api.event_stream import ChunkStream
from loomlog.services.api.request_shares import Takes
from loomlog.services.application.bodies.models import MessageBody, RunBody, to_run_request
from loomlog.services.application.bodies.problems import describe_problems
from loomlog.services.application.errors import RETRY_SOON_S, bad_request
from loomlog.services.application.operations import streams
from loomlog.services.application.queries.run_filters import check_agent, parse_statuses
from loomlog.services.application.request_context import current_request
from loomlog.services.application.runs.requests import RunRequest, check_user_id
from loomlog.services.application.runs.start import StartedRun
from loomlog.services.application.streaming.items import StreamChunk
from loomlog.services.application.streaming.run_states import StateFilter
from loomlog.services.application.streaming.run_stream import ENDED
from loomlog.services.application.streaming.subscription import CLIENT_LEFT
from loomlog.services.core.access.rules import Access
from loomlog.services.core.refusals import Refused
from loomlog.services.grpc.front import Context, Front, Incoming
from loomlog.services.grpc.messages import message_class, to_fields, to_message

WRITE_WAIT_S = 30.0
"""Seconds a client may take for what is sent together before it is dropped."""
EVENT, STATE = message_class("Event"), message_class("RunStateEvent")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStream:
    """A stream that is open. `encode` returns the message of a chunk; None for one that is not sent."""

    chunks: ChunkStream
    encode: Callable[[StreamChunk], bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRpc:
    """A row: how a stream is opened, and by whom."""

    name: str
    access: Access
    takes: Takes
    open: Callable[[Front, Incoming], Awaitable[OpenStream]]
    missing: str = "run or agent"


def stream_handler(front: Front, row: StreamRpc) -> "grpc.RpcMethodHandler[bytes, bytes]":
    """Return the handler of an RPC that streams."""

    async def work(rpc: Incoming) -> None:
        opened = await row.open(front, rpc)
        release_stream = rpc.slots.hand_over_stream()
        rpc.slots.release()  # what remains is the stream: others may be handled meanwhile
        let_go = front.service.open_access.hold(rpc.caller, lambda: opened.chunks.close(open_access.ENDED))
        try:
            await _send_all(opened, rpc.context)
        finally:
            let_go()
            release_stream()
            opened.chunks.close()

    return grpc.unary_stream_rpc_method_handler(
        front.answers(row.name, row.access, row.takes, work, missing=row.missing)
    )


async def _send_all(opened: OpenStream, context: Context) -> None:
    """Send a stream to its end. Raises Refused when it ends early: its client opens another."""
    while (chunks := await opened.chunks.next()) is not None:
        messages = [encoded for chunk in chunks if (encoded := opened.encode(chunk)) is not None]
        try:
            # One timer for all that is sent together: one for each would cost more than the writes.
            async with asyncio.timeout(WRITE_WAIT_S):
                for message in messages:
                    await context.write(message)
        except TimeoutError as error:
            raise Refused("request_timeout", f"not all was read within {WRITE_WAIT_S:g} s") from error
    if opened.chunks.end_reason == open_access.ENDED:
        raise Refused("unauthorized", open_access.ENDED)
    if opened.chunks.end_reason not in (ENDED, CLIENT_LEFT):
        text = f"the stream has ended: {opened.chunks.end_reason}; go on with StreamRun after the last seq"
        raise Refused("not_yet", text, retry_after_s=RETRY_SOON_S)


# --- runs ------------------------------------------------------------------------------------------------------------


async def start_run(front: Front, rpc: Incoming) -> OpenStream:
    """Start a run, or the next one of the session that the message names."""
    began = time.perf_counter()
    request = _run_request(RunBody, to_fields(rpc.message), rpc)
    return _started(front, await front.service.application.runs.start(rpc.caller, request), began)


async def continue_session(front: Front, rpc: Incoming) -> OpenStream:
    """Start the next run of a session."""
    began = time.perf_counter()
    fields = to_fields(rpc.message)
    session_id = fields.pop("session_id", "")
    request = _run_request(MessageBody, fields, rpc)
    started = await front.service.application.runs.continue_session(rpc.caller, session_id, request)
    return _started(front, started, began)


async def stream_run(front: Front, rpc: Incoming) -> OpenStream:
    """Open the events of a run after `from_seq`, which may be that of a transcript."""
    fields = to_fields(rpc.message)
    after = fields.get("from_seq", 0)
    if after < 0:
        raise bad_request(f"from_seq is {after}: expected the seq of an event, or 0 for all")
    stream = await front.service.application.queries.stream(
        rpc.caller, fields.get("run_id", ""), after=after % SESSION_STRIDE
    )
    return OpenStream(chunks=stream, encode=_event_without_ids)


def _started(front: Front, started: StartedRun, began: float) -> OpenStream:
    front.service.metrics.start_seconds.observe(time.perf_counter() - began)

    def encode(chunk: StreamChunk) -> bytes:
        return encode_event(chunk, position=started.position)

    return OpenStream(chunks=started.stream, encode=encode)


def _run_request(kind: type[MessageBody], fields: Mapping[str, Any], rpc: Incoming) -> RunRequest:
    """Return the request in the fields of a message, which are checked as a body of HTTP is. Raises Refused."""
    try:
        body = kind.model_validate_json(orjson.dumps(fields))
    except ValidationError as error:
        raise bad_request(describe_problems(error, kind)) from error
    return to_run_request(
        body,
        idempotency_key=current_request.get().idempotency_key,
        traceparent=rpc.sent.get("traceparent", ""),
    )


def encode_event(chunk: StreamChunk, *, position: str = "") -> bytes:
    """Return the Event of a frame; the first two of a run have its position."""
    frame: dict[str, Any] = orjson.loads(chunk.data)
    if chunk.type == "agent":
        frame = _agent_frame(frame)
    own = {"type": chunk.type, "seq": chunk.seq, "payload": chunk.data}
    if chunk.type in ("session", "agent"):
        own["position"] = position
    return to_message(EVENT, {**frame, **own}).SerializeToString()


def _agent_frame(ids: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ids of a run in the fields in which clients look for them."""
    names = ("agent_id", "run_id", "session_id", "parent_agent_id")
    parent = ids["parent_agent_id"] or ""
    error = orjson.dumps({name: ids[name] or "" for name in names}).decode()
    return {"text": ids["agent_id"], "stop_reason": parent, "error": error}


def _event_without_ids(chunk: StreamChunk) -> bytes | None:
    return None if chunk.type in ("session", "agent") else encode_event(chunk)


# --- states ----------------------------------------------------------------------------------------------------------


async def watch_user_runs(front: Front, rpc: Incoming) -> OpenStream:
    """Open the state changes of the runs of a user."""
    fields = to_fields(rpc.message)
    user_id = fields.get("user_id", "")
    check_user_id(user_id)
    if not user_id:
        raise bad_request("user_id: expected the user whose runs are meant")
    state_filter = StateFilter(
        user_id=user_id,
        statuses=parse_statuses(",".join(fields.get("statuses", ()))),
        agent=check_agent(fields.get("agent", "")),
        tenant="",
        with_waits=False,
    )
    return OpenStream(chunks=front.service.application.run_states.follow(rpc.caller, state_filter), encode=_state)


def _state(chunk: StreamChunk) -> bytes | None:
    if chunk.type != "run_state":
        return None
    return to_message(STATE, orjson.loads(chunk.data)).SerializeToString()


STREAMS: tuple[StreamRpc, ...] = (
    StreamRpc(name="Run", access=streams.START_RUN, takes=Takes.START, open=start_run, missing="session"),
    StreamRpc(name="Continue", access=streams.START_RUN, takes=Takes.START, open=continue_session, missing="session"),
    StreamRpc(name="StreamRun", access=streams.FOLLOW_RUN, takes=Takes.STREAM, open=stream_run),
    StreamRpc(name="StreamUserRunStates", access=streams.WATCH_RUNS, takes=Takes.STREAM, open=watch_user_runs),
)
