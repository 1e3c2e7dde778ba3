"""gRPC on a whole stack: the client of loomcycle in an environment of its own, and a death in the middle."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from loomlog.services.grpc.messages import SERVICE, message_class
from tests.acceptance.installation import Installation

pytestmark = pytest.mark.stack
PROGRAM_TIMEOUT_S = 120.0
WAIT_S = 60.0
CLIENT = ("loomcycle==1.58.0", "protobuf<7")
"""Its messages have the names of ours, and it needs an older protobuf."""
ASK = json.dumps([{"tool": "Interruption", "input": {"op": "ask", "question": "Shall I?", "options": ["yes", "no"]}}])


@pytest.fixture(scope="module")
def own(second_stack: Installation) -> Installation:
    return second_stack


@pytest.fixture(scope="module")
def client_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the client of loomcycle."""
    target = tmp_path_factory.mktemp("loomcycle") / "environment"
    venv.create(target, symlinks=True, with_pip=False)
    python = target / "bin" / "python"
    uv = Path(sys.executable).parent / "uv"
    subprocess.run([uv, "pip", "install", "--quiet", "--python", python, *CLIENT], check=True, timeout=WAIT_S * 5)
    return python


def test_the_client_of_loomcycle_works_unchanged(own: Installation, client_python: Path) -> None:
    program = Path(__file__).parent / "loomcycle_program.py"
    done = subprocess.run(
        [client_python, "-I", program, own.environ["LOOMLOG_GRPC_ADDR"]],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    run = ["started", "text", "usage", "done"]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "health": True,
        "events": run,
        "continued": [run, True],
        "again": ["steer", *run],
        "agent": "completed",
        "agents": 2,
        "transcript": 10,
        "definition": [1, run],
        "channel": ["acceptance/issues", 1],
        "channels": True,
        "batch": [3, ["completed"] * 3],
        "hooks": [["h"], True],
        "limits": [[1_000_000]],
        "usage": True,
        "snapshot": [True, True],
        "directory": [True, "ada"],
        "probe": True,
        "paused": ["paused", "AlreadyPausingError"],
        "refusals": {
            "agent": "AgentNotFoundError",
            "session": "SessionNotFoundError",
            "snapshot": "SnapshotNotFoundError",
            "hook": "HookNotFoundError",
            "argument": "InvalidArgumentError",
            "tool": "SubstrateToolRefusedError",
            "not paused": "NotPausedError",
            "later": "LoomcycleError",
        },
    }


async def test_a_stream_goes_on_after_a_death_without_a_loss_or_a_repetition(own: Installation) -> None:
    async with connect(own) as channel:
        stream = call(channel, "Run", agent="puppet", segments=[segment(ASK)])
        events = [await next_event(stream) for _ in range(2)]
        run_id = json.loads(events[1].error)["run_id"]
        while events[-1].type != "interruption_pending":
            events.append(await next_event(stream))
        pid = next(one["pid"] for one in own.loomlog("status", "--json").json["children"] if one["name"] == "grpc")
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(grpc.aio.AioRpcError) as lost:
            await stream.read()
        assert lost.value.code() is grpc.StatusCode.UNAVAILABLE
    async with connect(own) as channel:
        await until_it_serves(channel)
        rest = call(channel, "StreamRun", run_id=run_id, from_seq=events[-1].seq)
        question = json.loads(events[-1].payload)["interruption"]["interrupt_id"]
        await call(channel, "ResolveInterrupt", run_id=run_id, interrupt_id=question, kind="question", answer="yes")
        later = []
        while not later or later[-1].type != "done":
            later.append(await next_event(rest))
        prompt, *whole = [event async for event in call(channel, "StreamRun", run_id=run_id)]
    assert prompt.type == "steer", "what was stored begins with the prompt"
    assert [(event.seq, event.type) for event in (*events[2:], *later)] == [(event.seq, event.type) for event in whole]
    assert len({event.seq for event in whole}) == len(whole)
    assert "yes" in next(event.text for event in later if event.type == "tool_result")


def connect(own: Installation) -> grpc.aio.Channel:
    """A connection that no other channel has, so none that the death has broken."""
    return grpc.aio.insecure_channel(own.environ["LOOMLOG_GRPC_ADDR"], [("grpc.use_local_subchannel_pool", 1)])


def call(channel: grpc.aio.Channel, name: str, **fields: Any) -> Any:
    """An RPC that waits for its connection."""
    answers = {"Run": "Event", "StreamRun": "Event", "ResolveInterrupt": "ResolveInterruptResponse"}
    make = channel.unary_unary if name == "ResolveInterrupt" else channel.unary_stream
    invoke = make(f"/{SERVICE}/{name}", response_deserializer=message_class(answers[name]).FromString)
    request = message_class(f"{name}Request")(**fields).SerializeToString()
    return invoke(request, wait_for_ready=True, timeout=WAIT_S)


async def until_it_serves(channel: grpc.aio.Channel) -> None:
    """Wait until the server is there again and has what it needs."""
    watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), wait_for_ready=True)
    async with asyncio.timeout(WAIT_S):
        while (await watch.read()).status != health_pb2.HealthCheckResponse.SERVING:
            pass
    watch.cancel()


def segment(text: str) -> Any:
    return {"role": "user", "content": [{"type": "trusted-text", "text": text}]}


async def next_event(stream: Any) -> Any:
    async with asyncio.timeout(WAIT_S):
        event = await stream.read()
    assert event is not grpc.aio.EOF
    return event
