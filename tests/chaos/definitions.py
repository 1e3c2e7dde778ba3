"""Definitions that change while everything is struck: promotions, each followed by a run that has to be pinned to it.

Each author is alone on a line with two versions. It makes one and the other active in turn, with the same
Idempotency-Key until it is answered; so each promotion is in the log once, and the run that it starts next has that
version, whichever process answered, died or starts it.

Before: campaign. After: load starts the runs; checker.
"""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count

import httpx

from tests.chaos.evidence import Evidence, Shipped
from tests.chaos.history import NO_DIGEST, Accepted, Event, Violation, accepted
from tests.chaos.load import RETRY_S, RUN_TIMEOUT_S, Load

AUTHORS = 2
PAUSE_S = 0.3
VERSIONS = 2
ROUTE = "/v1/_agentdef"


class Authors:
    """Change definitions. `shipped` is what was answered, `met` what they met on the way."""

    def __init__(self, client: httpx.AsyncClient, load: Load, *, label: str) -> None:
        self.shipped: list[Shipped] = []
        self.met: Counter[str] = Counter()
        self._client = client
        self._load = load
        self._label = label

    async def run(self, *, until: asyncio.Event) -> None:
        """Until the event is set, and what was begun is over."""
        async with asyncio.TaskGroup() as authors:
            for number in range(AUTHORS):
                authors.create_task(self._author(f"shipped-{self._label}-{number}", until))

    async def _author(self, line: str, until: asyncio.Event) -> None:
        versions = [
            await self._change(f"{line}-version-{number}", op="create", name=line, overlay=_content(number))
            for number in range(VERSIONS)
        ]
        for number in count():
            if until.is_set():
                return
            one = Shipped(line=line, key=f"{line}-{number}", def_id=versions[number % VERSIONS])
            try:
                async with asyncio.timeout(RUN_TIMEOUT_S):
                    await self._change(one.key, op="promote", def_id=one.def_id)
                    one = replace(one, is_answered=True)
                    run_id = await self._load.run_over_http(one.key, line, f"run {number} of {line}")
                    self.shipped.append(replace(one, run_id=run_id))
            except TimeoutError:
                self.shipped.append(one)
                return
            await asyncio.sleep(PAUSE_S)

    async def _change(self, key: str, **body: str | Mapping[str, object]) -> str:
        """Ask until there is an answer; the def_id in it."""
        while True:
            try:
                answer = await self._client.post(ROUTE, json=body, headers={"Idempotency-Key": key})
            except httpx.TransportError as error:
                self.met[f"definitions: {type(error).__name__}, came again"] += 1
            else:
                if answer.status_code == 200:
                    return str(answer.json()["def_id"])
                if answer.status_code != 503:
                    raise AssertionError(f"{body['op']} with key {key}: {answer.status_code} {answer.text[:500]}")
                self.met[f"definitions: 503 {json.loads(answer.text)['code']}, came again"] += 1
            await asyncio.sleep(RETRY_S)


def _content(number: int) -> Mapping[str, object]:
    return {
        "provider": "quick",
        "model": "mock-a3x2",
        "tools": ["Bench"],
        "disable_context": True,
        "system_prompt": f"You are version {number}.",
    }


def shipped_once(evidence: Evidence, runs: Mapping[int, Accepted]) -> Iterator[Violation]:
    """What authors were answered is in the log, once and in their order; and runs are pinned to what was active."""
    promoted: dict[str, list[str]] = defaultdict(list)
    chains: dict[str, tuple[int, bytes]] = {}
    for number, records in evidence.entity_events.items():
        history = accepted(number, records)
        yield from history.violations
        for event in history.events:
            yield from _continues(chains, event)
            if event.name == "DefPromoted":
                promoted[event.values["name"]].append(event.values["to_def_id"])
    pins = {
        event.run_id: (event.values["definition"]["pin"] or {}).get("def_id", "")
        for history in runs.values()
        for event in history.events
        if event.name == "RunStarted"
    }
    answered: dict[str, list[str]] = defaultdict(list)
    for one in evidence.shipped:
        if one.is_answered:
            answered[one.line].append(one.def_id)
        if not one.run_id:
            what = "its run has no end" if one.is_answered else "it was not answered"
            yield Violation(kind="stuck", text=f"the promotion {one.key}: {what} in {RUN_TIMEOUT_S:g} s")
        elif pins.get(one.run_id) != one.def_id:
            text = f"{one.run_id} of {one.line} is pinned to {pins.get(one.run_id)}; {one.def_id} was promoted"
            yield Violation(kind="pin", text=f"{text} ({one.key})")
    for line, expected in answered.items():
        logged = promoted[line][VERSIONS:]  # each is promoted when it is made
        if logged[: len(expected)] != expected:
            kind = "lost" if len(logged) < len(expected) else "doubled"
            yield Violation(kind=kind, text=f"{line}: promoted were {logged}; answered was {expected}")
        elif len(logged) > len(expected) + 1:  # the last one may have been let go
            yield Violation(kind="doubled", text=f"{line}: {len(logged)} promotions, {len(expected)} were asked for")


def _continues(chains: dict[str, tuple[int, bytes]], event: Event) -> Iterator[Violation]:
    seq, digest = chains.get(event.run_id, (0, NO_DIGEST))
    if event.seq != seq + 1:
        yield Violation(kind="gap", text=f"{event.run_id}: seq {event.seq} at {event.place}, expected {seq + 1}")
    if event.prev != digest:
        yield Violation(kind="chain", text=f"{event.run_id}: {event.place} names another record before it")
    chains[event.run_id] = (event.seq, event.digest)
