"""Who sends commands: a client that repeats each one until the broker has acknowledged it.

    plain     one run
    chat      a run, and when its end is in the log another one that continues its session
    talk      an interactive run: some texts, and a cancel when all of them were answered
    cancel    a run that is cancelled at some time
    family    a run that starts runs, of one of the agents of tests/services/stream/families.py; half are cancelled
    pay       a run with rules whose first call needs approval: it is approved, denied, approved by the next group once
              the time of the first is over, or its time is over
    purse     a run of which four sub-agents want to make a call at once, and a rule allows the tree two
    ask       a run that asks a person, who answers, or does not until the time of the question is over
    stop      an interactive run whose turn is stopped, and which is cancelled once it has parked
    auto      a run whose conversation is compacted whenever it fills half of the window
    wish      a run whose tools ask for a compaction
    hand      an interactive run that is compacted by hand between its texts, and cancelled at the end
    seed      a run, a seed that compacts its session, and a run that goes on from there
    typed     a run that owes a record, and is corrected until it gives one, or fails

Any command may be sent twice. What a client waits for it reads off the log, like everybody.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Protocol
from zlib import crc32

from loomlog.connectors.errors import UnknownOutcome
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.budget_commands import SetLimit
from loomlog.schemas.generated.run_commands import (
    CancelRun,
    CancelTurn,
    CompactRun,
    GiveApproval,
    PostInput,
    ResolveInterruption,
    StartRun,
)
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.ids import partition_key
from loomlog.schemas.records import replace
from loomlog.services.core.families import aggregate_key
from loomlog.services.core.run.conversation.compaction import COMPACT
from loomlog.services.families.budget import INSTALLATION
from tests.run_options import grouped
from tests.simulation.broker import Wire
from tests.simulation.log import ENTITIES, TOPICS

TENANT = "t"
COMPACTION_SHARE = 0.35
"""Of the seeds: those with one of auto, wish, hand and seed."""
OUTPUT_RETRIES = 2
COMPACTIONS = ("auto", "wish", "hand", "hand", "seed")
SHRINKER, BRIEF = "shrinker", "brief"
"""The agents of those runs: one that is compacted by itself, one of which a compaction leaves little."""
HAND_TEXTS = 2
"""Texts before a compaction by hand, each with its answer: with the first one enough to leave something out."""
TYPED_SHARE = 0.3
"""Of the seeds: those with a run that owes a record."""
RECORDER = "recorder"
"""Its agent."""
PAYER = "payer"
"""The agent of runs with rules, whose calls need approval."""
APPROVER, SECOND_APPROVER = "ann", "bob"
PURSE, CLERK, CLERKS, PURSE_LIMIT = "purse", "clerk", 4, 2
"""An agent, those that work for it, how many there are, and the calls that a rule allows all of them together."""
PURSE_SHARE = 0.2
"""Of the seeds: those with such a tree."""
PAYMENT_SHARE = 0.3
"""Of the seeds: those with a run that needs approval."""
PEOPLE_SHARE = 0.3
"""Of the seeds for each of ask and stop, which are drawn apart: the load of a seed stays what it was."""
KINDS = ("plain", "plain", "chat", "talk", "cancel")
FAMILIES = ("tree-3-2", "tree-6", "pair", "keeper")
FAMILY_SHARE = 0.4
"""Of the seeds: those with a family beside the other wishes."""
MOST_WISHES = 4
LOOK_S = 0.25
"""How often a client looks whether what it waits for is in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a client wants. `name` is the run's key; `texts` of a talk."""

    name: str
    kind: str
    at_s: float
    repeats: bool
    texts: int
    agent: str = "helper"


def wishes(seed: int, without: frozenset[str], within_s: float) -> list[Wish]:
    """The load of a seed."""
    random = Random(f"{seed}/wishes")
    result = []
    for number in range(random.randint(1, MOST_WISHES)):
        kind = random.choice(KINDS)
        wish = Wish(
            name=f"{kind}{number}",
            kind=kind,
            at_s=random.uniform(0.0, within_s),
            repeats=random.random() < 0.3,
            texts=random.randint(1, 3),
        )
        if wish.name not in without:
            result.append(wish)
    family = Random(f"{seed}/family")  # drawn apart, so that a seed keeps its other wishes
    if family.random() < FAMILY_SHARE:
        kind = family.choice(("family", "family-cancel"))
        wish = Wish(
            name=kind.replace("-", ""),
            kind=kind,
            at_s=family.uniform(0.0, within_s),
            repeats=family.random() < 0.3,
            texts=0,
            agent=family.choice(FAMILIES),
        )
        if wish.name not in without:
            result.append(wish)
    people = Random(f"{seed}/people")
    for kind in ("ask", "stop"):
        wish = Wish(
            name=f"{kind}{people.randint(0, 9)}",
            kind=kind,
            at_s=people.uniform(0.0, within_s),
            repeats=people.random() < 0.3,
            texts=0,
        )
        if people.random() < PEOPLE_SHARE and wish.name not in without:
            result.append(wish)
    payments = Random(f"{seed}/approvals")
    wish = Wish(
        name=f"pay{payments.randint(0, 9)}",
        kind="pay",
        at_s=payments.uniform(0.0, within_s),
        repeats=payments.random() < 0.3,
        texts=0,
        agent=PAYER,
    )
    if payments.random() < PAYMENT_SHARE and wish.name not in without:
        result.append(wish)
    purses = Random(f"{seed}/purse")
    wish = Wish(
        name=f"purse{purses.randint(0, 9)}",
        kind="purse",
        at_s=purses.uniform(0.0, within_s),
        repeats=purses.random() < 0.3,
        texts=0,
        agent=PURSE,
    )
    if purses.random() < PURSE_SHARE and wish.name not in without:
        result.append(wish)
    shrinking = Random(f"{seed}/compaction")
    if shrinking.random() < COMPACTION_SHARE:
        kind = shrinking.choice(COMPACTIONS)
        wish = Wish(
            name=f"{kind}{shrinking.randint(0, 9)}",
            kind=kind,
            at_s=shrinking.uniform(0.0, within_s),
            repeats=shrinking.random() < 0.3,
            texts=HAND_TEXTS,
            agent=SHRINKER if kind == "auto" else BRIEF,
        )
        if wish.name not in without:
            result.append(wish)
    typed = Random(f"{seed}/typed")
    if typed.random() < TYPED_SHARE:
        wish = Wish(
            name=f"typed{typed.randint(0, 9)}",
            kind="typed",
            at_s=typed.uniform(0.0, within_s),
            repeats=typed.random() < 0.3,
            texts=0,
            agent=RECORDER,
        )
        if wish.name not in without:
            result.append(wish)
    return result


def bad_answers(run_id: str) -> int:
    """How often a run that owes a record gives something else first; more than OUTPUT_RETRIES: it fails."""
    return crc32(f"{run_id}/bad".encode()) % (OUTPUT_RETRIES + 2)


def record_of(run_id: str) -> str:
    """The record that such a run gives in the end."""
    return f'{{"run":"{run_id}"}}'


def expires(run_id: str) -> bool:
    """Whether nobody answers what the run asks."""
    return crc32(run_id.encode()) % 2 == 0


def escalates(run_id: str) -> bool:
    """Whether a second group is asked about a call that nobody of the first decides about."""
    return crc32(f"{run_id}/escalates".encode()) % 2 == 0


def is_approved(run_id: str) -> bool:
    """Whether the approver approves what the run asks for."""
    return crc32(f"{run_id}/approved".encode()) % 3 > 0


class Reader(Protocol):
    """The log as a client reads it."""

    def is_limited(self) -> bool: ...
    def has_ended(self, run_id: str) -> bool: ...
    def is_parked(self, run_id: str) -> bool: ...
    def is_at_rest(self, run_id: str, *, texts: int, compactions: int = 0) -> bool: ...
    def has_asked(self, run_id: str) -> bool: ...
    def has_escalated(self, run_id: str) -> bool: ...
    def question_of(self, run_id: str) -> str: ...


class Client:
    """Carries the wishes out. `sent` counts the commands that were acknowledged."""

    def __init__(self, wire: Wire, reader: Reader, *, partitions: int, clock_ms: Callable[[], int]) -> None:
        self.busy = 0
        """Wishes that are not carried out yet."""
        self._wire = wire
        self._reader = reader
        self._partitions = partitions
        self._clock_ms = clock_ms

    async def run(self, todo: list[Wish], limit: SetLimit | None) -> None:
        """Until all was sent; the limit first, and the rest when it is known."""
        self.busy = len(todo)
        if limit is not None:
            key = aggregate_key(INSTALLATION)
            outgoing = [ProducerRecord(key=key, value=local_codec().encode(limit))]
            while not self._reader.is_limited():
                with suppress(UnknownOutcome):
                    await self._wire.append(ENTITIES.commands, partition_of(key, self._partitions), outgoing)
                await asyncio.sleep(LOOK_S)
        async with asyncio.TaskGroup() as group:
            for wish in todo:
                group.create_task(self._carry_out(wish))

    async def _carry_out(self, wish: Wish) -> None:
        await asyncio.sleep(wish.at_s)
        run_id = f"r_{wish.name}"
        await self._start(run_id, wish, interactive=wish.kind in ("talk", "stop", "hand"))
        if wish.kind.endswith("cancel"):
            await asyncio.sleep(wish.at_s / 10)
            await self._cancel(run_id, wish)
        elif wish.kind == "chat":
            await self._until(self._reader.has_ended, run_id)
            await self._start(f"{run_id}-2", wish, session_id=f"s_{wish.name}")
        elif wish.kind == "talk":
            for number in range(wish.texts):
                await self._say(run_id, wish, number)
            await self._until(self._reader.is_parked, run_id)
            await self._cancel(run_id, wish)
        elif wish.kind == "ask" and not expires(run_id):
            await self._until(self._reader.has_asked, run_id)
            if question := self._reader.question_of(run_id):
                envelope = self._envelope(f"answer-{wish.name}")
                answer = ResolveInterruption(envelope=envelope, run_id=run_id, interrupt_id=question, answer="yes")
                await self._send(run_id, answer, wish)
        elif wish.kind == "pay" and (escalates(run_id) or not expires(run_id)):
            is_late = expires(run_id)
            await self._until(self._reader.has_escalated if is_late else self._reader.has_asked, run_id)
            if approval := self._reader.question_of(run_id):
                approver = SECOND_APPROVER if is_late else APPROVER
                envelope = replace(self._envelope(f"approve-{wish.name}"), subject=approver)
                vote = GiveApproval(
                    envelope=envelope, run_id=run_id, interrupt_id=approval, is_approved=is_approved(run_id)
                )
                await self._send(run_id, vote, wish)
        elif wish.kind == "stop":
            await asyncio.sleep(wish.at_s / 20)
            await self._send(run_id, CancelTurn(envelope=self._envelope(f"stop-{wish.name}"), run_id=run_id), wish)
            await self._until(self._reader.is_parked, run_id)
            await self._cancel(run_id, wish)
        elif wish.kind == "hand":
            await self._compact_by_hand(run_id, wish)
        elif wish.kind == "seed":
            session = {"session_id": f"s_{wish.name}"}
            await self._until(self._reader.has_ended, run_id)
            await self._start(f"{run_id}-2", wish, prompt="", seed=COMPACT, **session)
            await self._until(self._reader.has_ended, f"{run_id}-2")
            await self._start(f"{run_id}-3", wish, **session)
        self.busy -= 1

    async def _compact_by_hand(self, run_id: str, wish: Wish) -> None:
        """Text after text, a compaction, another text with it in mind, the end."""
        text = 0
        for text in range(wish.texts):
            await self._until(partial(self._reader.is_at_rest, texts=text), run_id)
            await self._say(run_id, wish, text)
        await self._until(partial(self._reader.is_at_rest, texts=text + 1), run_id)
        await self._send(run_id, CompactRun(envelope=self._envelope(f"compact-{wish.name}"), run_id=run_id), wish)
        await self._until(partial(self._reader.is_at_rest, texts=text + 1, compactions=1), run_id)
        await self._say(run_id, wish, text + 1)
        await self._until(partial(self._reader.is_at_rest, texts=text + 2), run_id)
        await self._cancel(run_id, wish)

    async def _say(self, run_id: str, wish: Wish, number: int) -> None:
        envelope = self._envelope(f"say-{wish.name}-{number}")
        await self._send(run_id, PostInput(envelope=envelope, run_id=run_id, text=f"{wish.name} text {number}"), wish)

    async def _start(self, run_id: str, wish: Wish, *, prompt: str = "go", **more: Any) -> None:
        envelope = self._envelope(f"start-{run_id}")
        key = f"key-{run_id}"
        await self._send(
            run_id,
            StartRun(
                envelope=envelope, agent=wish.agent, prompt=prompt, run_id=run_id, idempotency_key=key, **grouped(more)
            ),
            wish,
        )

    async def _cancel(self, run_id: str, wish: Wish) -> None:
        await self._send(run_id, CancelRun(envelope=self._envelope(f"cancel-{run_id}"), run_id=run_id), wish)

    def _envelope(self, command_id: str) -> CommandEnvelope:
        return CommandEnvelope(command_id=command_id, tenant=TENANT, issued_at_ms=self._clock_ms())

    async def _send(self, run_id: str, command: Any, wish: Wish) -> None:
        key = partition_key(run_id).encode()
        outgoing = [ProducerRecord(key=key, value=local_codec().encode(command))]
        left = 2 if wish.repeats else 1
        while left:
            try:
                await self._wire.append(TOPICS.commands, partition_of(key, self._partitions), outgoing)
            except UnknownOutcome:
                continue  # again: the command's id makes that safe
            left -= 1

    async def _until(self, holds: Callable[[str], bool], run_id: str) -> None:
        while not holds(run_id):
            await asyncio.sleep(LOOK_S)
