import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.chaos import outside
from tests.chaos.outside import METHODS_OF_TURNS, application, effect, frames, spread, turn_of

USER: dict[str, Any] = {"role": "user", "content": "run 1"}


def after(turns: int) -> list[dict[str, Any]]:
    """A conversation in which that many turns were answered."""
    messages = [USER]
    for turn in range(turns):
        calls = [{"id": f"c{turn}{index}"} for index in range(len(METHODS_OF_TURNS[turn]))]
        messages.append({"role": "assistant", "content": "", "tool_calls": calls})
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": "done"} for call in calls]
    return messages


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHORTEST_TURN_S", "LONGEST_TURN_S", "SHORTEST_CALL_S", "LONGEST_CALL_S"):
        monkeypatch.setattr(outside, name, 0.0)


async def said(messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """The calls of a turn, and why it stopped."""
    calls, reason = [], ""
    async for text in frames({"messages": messages}, "http://there/effects"):
        data = text.removeprefix("data: ").strip()
        for choice in json.loads(data)["choices"] if data != "[DONE]" else ():
            calls += [json.loads(call["function"]["arguments"]) for call in choice["delta"].get("tool_calls", ())]
            reason = choice["finish_reason"] or reason
    return calls, reason


async def test_a_run_makes_calls_of_every_effect_class_and_ends() -> None:
    for turn, methods in enumerate(METHODS_OF_TURNS):
        calls, reason = await said(after(turn))
        assert [call["method"] for call in calls] == list(methods)
        assert reason == "tool_calls"
        assert all(call["url"].startswith("http://there/effects/") for call in calls)
    assert await said(after(len(METHODS_OF_TURNS))) == ([], "stop")


def test_a_new_user_text_begins_anew() -> None:
    assert turn_of(after(2)) == 2
    assert turn_of([*after(2), USER]) == 0


async def test_a_change_leaves_one_line_and_a_look_leaves_none(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    transport = httpx.ASGITransport(app=application(str(ledger), "http://there"))
    async with httpx.AsyncClient(transport=transport, base_url="http://there") as client:
        for method, key in (("GET", "r_one:1.0"), ("PUT", "r_one:1.1"), ("POST", "r_one:2.0")):
            answer = await client.request(method, "/effects/a", headers={"Idempotency-Key": key})
            assert answer.status_code == 200
    assert ledger.read_text().splitlines() == ["r_one:1.1 r_one", "r_one:2.0 r_one"]


async def test_an_effect_happens_although_its_caller_has_gone(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    task = asyncio.create_task(effect(str(ledger), "r_one:1.0", 0.0))
    waiting = asyncio.ensure_future(asyncio.shield(task))
    waiting.cancel()
    await task
    assert ledger.read_text() == "r_one:1.0 r_one\n"


def test_how_long_something_takes_depends_on_it_alone() -> None:
    actual = [spread(str(number), 1.0, 2.0) for number in range(200)]
    assert actual == [spread(str(number), 1.0, 2.0) for number in range(200)]
    assert min(actual) >= 1.0
    assert max(actual) < 2.0
    assert max(actual) - min(actual) > 0.9
