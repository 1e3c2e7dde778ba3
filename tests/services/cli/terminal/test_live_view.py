import io

import pytest

from loomlog.connectors.client.run_stream import RunStream
from loomlog.services.cli.errors import Unreachable
from loomlog.services.cli.terminal import live_view
from loomlog.services.cli.terminal.live_view import show_run, wait_for_final_row
from loomlog.services.cli.terminal.output import Terminal
from tests.services.cli.fake_api import POSITION, FakeApi, Scripted, frame, frames, refused, row
from tests.sleeps import noted_sleeps

STREAM = (
    frame("started", {"type": "started"}, 258),
    frame("text", {"type": "text", "text": "Hello there."}, 513),
    frame("usage", {"type": "usage", "usage": {"input_tokens": 1200, "output_tokens": 34}}, 514),
    frame("done", {"type": "done", "stop_reason": "end_turn"}, 1024),
)


async def shown(fake: FakeApi, *, is_terminal: bool = False) -> str:
    file = io.StringIO()
    out = Terminal(file=file, force_terminal=is_terminal, width=100, color_system=None)
    async with fake.client() as api:
        await show_run(api, RunStream(api, body={"agent": "assistant"}, idempotency_key="k"), out)
    return file.getvalue()


async def test_a_pipe_gets_the_lines_alone():
    fake = FakeApi()
    fake.streams.append(frames(*STREAM))
    fake.rows["r_1"] = row()
    assert (await shown(fake)).splitlines() == [
        f"run r_1  session s_1  event {POSITION}",
        "turn 1",
        "  Hello there.",
        "  1,200 tokens in, 34 out   ",
        "completed (end_turn)  1 turn, 0 tool calls, 1,200 tokens in, 34 out, 0.0012 USD, 1.5 s",
    ]


async def test_a_terminal_gets_the_same_lines_and_a_progress_line_that_is_gone_at_the_end():
    fake = FakeApi()
    fake.streams.append(frames(*STREAM))
    fake.rows["r_1"] = row()
    text = await shown(fake, is_terminal=True)
    for line in ("run r_1", "turn 1", "  Hello there.", "completed (end_turn)"):
        assert line in text
    assert "tool calls ·" in text, "the progress line was drawn"
    assert "\x1b[?25h" in text, "the cursor is shown again"


async def test_the_position_of_a_followed_run_is_not_made_up():
    fake = FakeApi()
    fake.streams.append(Scripted(pieces=frames(*STREAM).pieces))
    fake.rows["r_1"] = row()
    assert (await shown(fake)).splitlines()[0] == "run r_1  session s_1"


@pytest.fixture
def no_pauses(monkeypatch):
    noted_sleeps(monkeypatch, "loomlog.services.cli.terminal.live_view", lambda seconds: None)


async def test_a_row_that_is_behind_is_waited_for(no_pauses):
    fake = FakeApi()
    states = iter(["running", "running", "completed"])
    fake.rows = _Changing(lambda: row(status=next(states)))
    async with fake.client() as api:
        assert (await wait_for_final_row(api, "r_1"))["status"] == "completed"


async def test_a_quarantined_run_is_over_although_it_runs_for_ever(no_pauses):
    fake = FakeApi()
    fake.rows["r_1"] = row(status="running", quarantined=True)
    async with fake.client() as api:
        assert (await wait_for_final_row(api, "r_1"))["quarantined"] is True


async def test_an_api_that_is_away_at_the_end_is_waited_for_and_then_said(no_pauses, monkeypatch):
    monkeypatch.setattr(live_view, "ROW_TIMEOUT_S", 0.0)
    fake = FakeApi()
    fake.answers["GET", "/v1/runs/r_1"] = refused(503, "projection_unavailable", "the read models cannot be reached")
    async with fake.client() as api:
        with pytest.raises(Unreachable, match="read models cannot be reached"):
            await wait_for_final_row(api, "r_1")


class _Changing(dict):
    """Rows that are another each time they are asked for."""

    def __init__(self, make) -> None:
        super().__init__()
        self._make = make

    def get(self, key, default=None):
        return self._make()
