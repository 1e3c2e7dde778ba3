"""Calls that need approval, and calls of an MCP server, while everything is struck; and the people who decide.

    payer   its rules ask about the first call of its ledger, and deny the fourth; of the people some approve, some
            deny, some leave it to those who are asked next, some to nobody
    teller  writes a line with the tool of an MCP server on standard input; one text in three needs approval

That no call is made before its approval the stories of the runs say (history.py). Here: a line of the server is there
once if its call returned ok, at most once if nobody knows, and otherwise not; and people are told once what became of
what they said.

Before: campaign.  After: checker.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any
from zlib import crc32

import httpx

from tests.chaos.evidence import Evidence
from tests.chaos.history import Accepted, Story, Violation
from tests.chaos.load import RETRY_S, Load

PAYERS, TELLERS = 3, 2
"""Workers of each kind: one run at a time each."""
PAUSE_S = 0.3
NOTE = "mcp__desk__echo"
FATES = 6
"""Of six calls two are approved at once, one is denied, two are left to the next group, one to nobody."""


class Payments:
    """Runs and people. `met`: what they met, and what people have decided."""

    def __init__(self, client: httpx.AsyncClient, load: Load, *, label: str) -> None:
        self.met: Counter[str] = Counter()
        self._client = client
        self._load = load
        self._label = label

    async def run(self, *, until: asyncio.Event) -> None:
        """Until the event is set, and what was begun is over."""
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            people = group.create_task(self._people(over))
            async with asyncio.TaskGroup() as work:
                for number in range(PAYERS + TELLERS):
                    work.create_task(self._work("payer" if number < PAYERS else "teller", number, until))
            over.set()
            await people

    async def _work(self, agent: str, worker: int, until: asyncio.Event) -> None:
        for number in count():
            if until.is_set():
                return
            text = f"{agent}-{self._label}-{worker}-{number}-{number % 3}"
            try:
                async with asyncio.timeout(self._load.run_timeout_s):
                    await self._load.run_over_http(text, agent, text)
            except TimeoutError:
                self.met[f"run of {agent} not over in time"] += 1
                return
            await asyncio.sleep(PAUSE_S)

    async def _people(self, over: asyncio.Event) -> None:
        while not over.is_set():
            try:
                answer = await self._client.get("/v1/_approvals", params={"limit": 500})
                for row in answer.json()["approvals"] if answer.status_code == 200 else ():
                    await self._decide(row)
            except httpx.TransportError as error:
                self.met[f"approvals: {type(error).__name__}, came again"] += 1
            await asyncio.sleep(RETRY_S)

    async def _decide(self, row: Mapping[str, Any]) -> None:
        fate = crc32(row["approval_id"].encode()) % FATES
        if fate == 5 or (fate in (3, 4) and row["group"] == 0):
            return
        act = "deny" if fate == 2 else "approve"
        path = f"/v1/_approvals/{row['run_id']}/{row['approval_id']}/{act}"
        key = {"Idempotency-Key": f"{act}-{row['approval_id']}-{row['group']}"}
        answer = await self._client.post(path, json={"reason": "chaos"}, headers=key)
        said = answer.json().get("status") if answer.status_code == 200 else answer.json().get("code")
        self.met[f"approvals: {act}, {said}"] += 1
        if answer.status_code not in (200, 404, 409, 503):
            raise AssertionError(f"{act} of {row['approval_id']}: {answer.status_code} {answer.text[:500]}")


def noted_once(
    evidence: Evidence, histories: Mapping[int, Accepted], stories: Mapping[str, Story]
) -> Iterator[Violation]:
    """The file of the MCP server and the log say the same about every call."""
    lines = Counter(evidence.notes)
    for history in histories.values():
        for event in history.events:
            if event.name != "ModelReplied":
                continue
            for index, made in enumerate(event.values["tool_calls"]):
                if made["name"] != NOTE:
                    continue
                place = (event.values["turn"], index)
                call, text = stories[event.run_id].calls[place], json.loads(made["input"])["text"]
                done = lines.pop(text, 0)
                if done > 1 or (done and not call.attempts):
                    yield Violation(kind="doubled effect", text=f"{event.run_id} {place}: {done} lines, {call.outcome}")
                if call.outcome == "ok" and not done:
                    yield Violation(kind="lost effect", text=f"{event.run_id} {place}: returned ok, and wrote no line")
    for text, times in lines.items():
        yield Violation(kind="effect without intent", text=f"{text!r}: {times} lines that no accepted call wrote")


def asked_calls(stories: Mapping[str, Story]) -> Counter[str]:
    """Calls about which rules have decided, by what they say now."""
    return Counter(call.verdict for story in stories.values() for call in story.calls.values() if call.verdict)
