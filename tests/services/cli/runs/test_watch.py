"""`loomlog runs watch`: a line for each change."""

import asyncio
import json
from contextlib import closing

import orjson
import pytest
from typer.testing import CliRunner

from loomlog.services.application.runs.requests import RunRequest
from loomlog.services.application.streaming.run_states import StateFilter
from loomlog.services.cli.http import events
from loomlog.services.cli.main import app
from loomlog.services.cli.runs import watch
from tests.services.application.owner import WAIT_S
from tests.services.application.world import ACME, world
from tests.services.cli.fake_api import FakeApi, Scripted, frame, refused

OPEN = frame("stream_open", {"user_id": ""})
STARTED = {
    "run_id": "r_1",
    "agent": "writer",
    "user_id": "ann",
    "status": "running",
    "parked": False,
    "quarantined": False,
    "ts": "2026-11-26T04:00:01.250Z",
}
ENDED = {
    **STARTED,
    "status": "failed",
    "error": "it broke",
    "usage": {"input_tokens": 1_000, "output_tokens": 234},
    "cost_micros": 0,
    "currency": None,
    "iterations": 2,
}


@pytest.fixture
def fake(fake: FakeApi, monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    monkeypatch.setattr(events, "RETRY_S", 0.0)
    return fake


def watched(*arguments: str) -> list[str]:
    """What is printed until the API refuses."""
    result = CliRunner().invoke(app, ["runs", "watch", *arguments])
    assert result.exit_code != 0
    return result.output.splitlines()


def test_each_change_is_a_line(fake: FakeApi) -> None:
    waiting = {**STARTED, "parked": True, "awaited_state": "interrupted"}
    fake.streams += [
        Scripted(pieces=[OPEN, frame("run_state", STARTED), frame("run_change", waiting), frame("run_state", ENDED)]),
        refused(403, "insufficient_scope", "no"),
    ]
    lines = watched("--agent", "writer", "--user", "ann")
    assert [line.split()[:5] for line in lines[:3]] == [
        ["04:00:01.250", "r_1", "writer", "ann", "running"],
        ["04:00:01.250", "r_1", "writer", "ann", "asking"],
        ["04:00:01.250", "r_1", "writer", "ann", "failed"],
    ]
    assert "2 turns, 1,234 tokens" in lines[2]
    assert lines[2].endswith("it broke")
    assert dict(fake.asked[0].url.params) == {"status": "all", "agent": "writer", "user_id": "ann"}


def test_a_lost_connection_is_opened_again_and_said(fake: FakeApi) -> None:
    fake.streams += [
        Scripted(pieces=[OPEN, frame("run_state", STARTED)], breaks=True),
        Scripted(pieces=[OPEN, frame("run_state", ENDED)]),
        refused(403, "insufficient_scope", "no"),
    ]
    result = CliRunner().invoke(app, ["runs", "watch", "--json"])
    assert [json.loads(line)["status"] for line in result.stdout.splitlines()] == ["running", "failed"]
    assert "changes between are not shown" in result.stderr


async def test_the_lines_are_of_what_the_api_sends() -> None:
    lines: list[str] = []
    async with world() as made:
        with closing(made.layer.run_states.follow(ACME, StateFilter())) as stream:
            await stream.next()
            accepted = await made.layer.runs.start(ACME, RunRequest(agent="soaker", prompt="go"))
            accepted.stream.close()
            async with asyncio.timeout(WAIT_S):
                while len(lines) < 2:
                    lines += [watch.change_line(orjson.loads(chunk.data)).plain for chunk in await stream.next() or ()]
    assert [line.split()[1:5] for line in lines] == [
        [accepted.run_id, "soaker", "acme-op", "running"],
        [accepted.run_id, "soaker", "acme-op", "completed"],
    ]
    assert "1 turn, " in lines[1]
