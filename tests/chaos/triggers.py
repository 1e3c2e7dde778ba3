"""Channels, a schedule and a webhook while everything is struck: pairs of agents that hand work on, a schedule that
fires every second, and requests from outside that come twice.

Each pair has a channel of its own: one agent publishes to it once, the other waits for the message. Each delivery is
posted by two clients at once under the same id, again and again until both are answered. So the log says of each
message, each instant and each delivery whether it was lost, or had its effect twice.

Before: campaign. After: load starts the runs; checker.
"""

import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import httpx

from tests.chaos.evidence import CHANNEL_EVENTS, ENTITY_EVENTS, Evidence, Handoff, Record, read_topic
from tests.chaos.history import ENDS, Accepted, Violation, accepted
from tests.chaos.load import RETRY_S, RUN_TIMEOUT_S, Load
from tests.chaos.trigger_blocks import CHANNELS_MAX, EDITOR, FIRST, RESEARCHER, TOKEN, WEBHOOK
from tests.chaos.witness import Witness

PAIRS, SENDERS = 2, 2
"""Pairs and deliveries under way at once."""
PAUSE_S = 0.3
ACCEPTED = (200, 202)


class Outsiders:
    """Start pairs and post deliveries. `handoffs` and `delivered` is what was answered."""

    def __init__(self, client: httpx.AsyncClient, load: Load, *, label: str, first: int) -> None:
        """`first` is the number of the first pair."""
        self.handoffs: list[Handoff] = []
        self.delivered: list[str] = []
        self.met: Counter[str] = Counter()
        self._client = client
        self._load = load
        self._label = label
        self._pairs = count(first)
        self._deliveries = count()

    async def run(self, *, until: asyncio.Event) -> None:
        """Until the event is set, and what was begun is over."""
        async with asyncio.TaskGroup() as workers:
            for _ in range(PAIRS):
                workers.create_task(self._hand_on(until))
            for _ in range(SENDERS):
                workers.create_task(self._deliver(until))

    async def _hand_on(self, until: asyncio.Event) -> None:
        while not until.is_set() and (number := next(self._pairs)) < CHANNELS_MAX:
            runs = [
                self._load.run_over_http(f"{self._label}-{agent}-{number}", agent, f"c{number} goes on")
                for agent in (EDITOR, RESEARCHER)
            ]
            done = Handoff(channel=f"{FIRST}/c{number}")
            try:
                async with asyncio.timeout(RUN_TIMEOUT_S):
                    editor, researcher = await asyncio.gather(*runs)
                done = Handoff(channel=done.channel, publisher=researcher, reader=editor)
            except TimeoutError:
                until.set()
            self.handoffs.append(done)

    async def _deliver(self, until: asyncio.Event) -> None:
        while not until.is_set():
            delivery = f"{self._label}-{next(self._deliveries)}"
            await asyncio.gather(*(self._post(delivery) for _ in range(2)))
            self.delivered.append(delivery)
            await asyncio.sleep(PAUSE_S)

    async def _post(self, delivery: str) -> None:
        headers = {"Authorization": f"Bearer {TOKEN}", "X-Delivery-Id": delivery}
        while True:
            try:
                answer = await self._client.post(f"/v1/_webhooks/{WEBHOOK}", json={"goal": delivery}, headers=headers)
            except httpx.TransportError as error:
                self.met[f"webhook: {type(error).__name__}, came again"] += 1
            else:
                if answer.status_code in ACCEPTED:
                    return
                if answer.status_code != 503:
                    raise AssertionError(f"delivery {delivery}: {answer.status_code} {answer.text[:500]}")
                self.met[f"webhook: 503 {json.loads(answer.text)['code']}, came again"] += 1
            await asyncio.sleep(RETRY_S)


async def come_to_rest(client: httpx.AsyncClient, witness: Witness, kafka: str, partitions: int) -> None:
    """Pause the schedule, and wait until the runs of schedules and webhooks are over, as long as a run may take."""
    deadline = time.monotonic() + RUN_TIMEOUT_S
    paused = False
    while not paused and time.monotonic() < deadline:
        try:
            listed = await client.get("/v1/_schedules/list-all")
            ids = [row["active_def_id"] for row in listed.json()["entries"]] if listed.status_code == 200 else []
            answers = [await client.post(f"/v1/_schedules/{def_id}/pause") for def_id in ids]
            paused = bool(answers) and all(answer.status_code == 200 for answer in answers)
        except httpx.TransportError:
            paused = False
        if not paused:
            await asyncio.sleep(RETRY_S)
    while time.monotonic() < deadline:
        entity_events = await read_topic(kafka, ENTITY_EVENTS, partitions)
        channel_events = await read_topic(kafka, CHANNEL_EVENTS, partitions)
        started, fires = _runs_of(entity_events)
        if all(map(witness.is_over, started)) and not fires and not _open_leases(channel_events):
            return
        await asyncio.sleep(RETRY_S)  # what is left the checker names


def _runs_of(events: Mapping[int, Sequence[Record]]) -> tuple[set[str], set[str]]:
    """Return the runs that schedules and webhooks have started, and those whose ends their schedules do not know."""
    started, fired = set[str](), set[str]()
    for number, records in events.items():
        for event in accepted(number, records).events:
            if event.name in ("ScheduleFired", "EventReceived"):
                started.add(event.values["run_id"])
            if event.name == "ScheduleFired":
                fired.add(event.values["run_id"])
            elif event.name == "FireSettled":
                fired.discard(event.values["run_id"])
    return started, fired


def _open_leases(events: Mapping[int, Sequence[Record]]) -> dict[str, str]:
    """Return the channels of leases that are not settled."""
    leases = dict[str, str]()
    for number, records in events.items():
        for event in accepted(number, records).events:
            if event.name == "MessagesLeased":
                leases[event.values["lease_id"]] = event.values["channel"]
            elif event.name == "LeaseSettled":
                leases.pop(event.values["lease_id"], None)
    return leases


@dataclass(slots=True)
class TriggerFigures:
    """How it went."""

    messages: int = 0
    delivered: int = 0
    fires: int = 0
    deliveries: int = 0


def triggered_once(evidence: Evidence, runs: Mapping[int, Accepted]) -> tuple[TriggerFigures, list[Violation]]:
    """Each message was delivered once or is visible; each instant and each delivery has one run."""
    figures = TriggerFigures()
    started = {event.run_id for one in runs.values() for event in one.events if event.name == "RunStarted"}
    ended = {event.run_id for one in runs.values() for event in one.events if event.name in ENDS}
    violations = [*_triggers(evidence, figures, started, ended), *_messages(evidence, figures, runs)]
    return figures, violations


def _triggers(evidence: Evidence, figures: TriggerFigures, started: set[str], ended: set[str]) -> Iterator[Violation]:
    instants, taken = Counter[tuple[str, int]](), defaultdict[str, list[str]](list)
    settled, fired = Counter[str](), list[str]()
    for number, records in evidence.entity_events.items():
        for event in accepted(number, records).events:
            values = event.values
            if event.name == "ScheduleFired":
                instants[event.run_id, values["instant_ms"]] += 1
                fired.append(values["run_id"])
            elif event.name == "FireSettled":
                settled[values["run_id"]] += 1
            elif event.name == "EventReceived":
                taken[values["delivery_id"]].append(values["run_id"])
    figures.fires, figures.deliveries = len(fired), len(taken)
    for place, times in instants.items():
        if times > 1:
            yield Violation(kind="doubled", text=f"the instant {place} has fired {times} times")
    for run_id, times in Counter([*fired, *(run for some in taken.values() for run in some)]).items():
        if run_id not in started:
            yield Violation(kind="lost", text=f"{run_id} of a schedule or webhook has never begun")
        if times > 1:
            yield Violation(kind="doubled", text=f"{run_id} was started {times} times")
    for run_id in fired:
        if settled[run_id] != (run_id in ended):
            yield Violation(kind="stuck", text=f"the end of {run_id} was told to its schedule {settled[run_id]} times")
    for delivery in evidence.delivered:
        if len(taken[delivery]) != 1:
            kind = "doubled" if taken[delivery] else "lost"
            yield Violation(kind=kind, text=f"the delivery {delivery} was answered, and has runs {taken[delivery]}")


def _messages(evidence: Evidence, figures: TriggerFigures, runs: Mapping[int, Accepted]) -> Iterator[Violation]:
    published, taken = defaultdict[str, list[str]](list), Counter[str]()
    for number, records in evidence.channel_events.items():
        history = accepted(number, records)
        yield from history.violations
        for event in history.events:
            values = event.values
            if event.name == "MessagePublished":
                published[values["channel"]].append(values["message_id"])
            elif event.name == "LeaseSettled":
                taken[values["channel"]] += values["taken"]
    got = _received(runs)
    figures.messages, figures.delivered = sum(map(len, published.values())), got.total()
    for message, times in got.items():
        if times > 1:
            yield Violation(kind="doubled", text=f"the message {message} was delivered {times} times")
    for lease_id, channel in _open_leases(evidence.channel_events).items():
        yield Violation(kind="stuck", text=f"the lease {lease_id} of {channel} is not settled")
    for one in evidence.handoffs:
        ids = published[one.channel]
        if not one.reader:
            yield Violation(kind="stuck", text=f"{one.channel}: its runs have no end in {RUN_TIMEOUT_S:g} s")
        elif len(ids) != 1:
            kind = "doubled" if ids else "lost"
            yield Violation(kind=kind, text=f"{one.channel}: {one.publisher} has published {ids}")
        elif taken[one.channel] != got[ids[0]]:
            text = f"{one.channel}: {taken[one.channel]} messages are taken, {got[ids[0]]} are in results of runs"
            yield Violation(kind="lost" if taken[one.channel] else "doubled", text=text)


def _received(runs: Mapping[int, Accepted]) -> Counter[str]:
    """Return how often each message is in the result of a call."""
    result = Counter[str]()
    for history in runs.values():
        for event in history.events:
            details = event.values.get("details") if event.name == "ToolReturned" else None
            if details is not None and details["leases"]:
                result.update(_ids(event.values["text"]))
    return result


def _ids(text: str) -> Sequence[str]:
    return [message["id"] for message in json.loads(text)["messages"]]
