"""What the runtime publishes to the channels of the system."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from loomlog.connectors.configuration.channel_block import ChannelBlock
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.pause_events import PauseLifted, PauseSet, SwitchUsed
from loomlog.schemas.generated.run_events import InterruptionClosed, InterruptionOpened
from loomlog.schemas.generated.values import CallVerdict, Envelope, ToolCall
from loomlog.schemas.reader import RawEvent
from loomlog.schemas.records import replace
from loomlog.services.core.availability import AvailabilityTable, ModelStatus, ProviderStatus
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.core.run.interrupts.approvals import AskedApproval
from loomlog.services.core.run.interrupts.questions import APPROVAL, ClosedQuestion, question_of
from loomlog.services.families.channel.api import ChannelPublish
from loomlog.services.families.channel.caller import ChannelCaller
from loomlog.services.families.channel.system_channels import SystemChannels, availability_changes
from loomlog.services.families.pause import PAUSES
from tests.services.families.channel.declared_channels import ADMIN, BEAT, DeclaredChannels

OPENED = InterruptionOpened(
    turn=1,
    index=0,
    call_id="c",
    interrupt_id="intr_1",
    question="Go?",
    options=("yes",),
    expires_at_ms=1_700_000_000_000,
)
CLOSED = InterruptionClosed(
    turn=1, index=0, call_id="c", interrupt_id="intr_1", status="resolved", answer="yes", resolved_by="ann"
)
UP = ProviderStatus(reachable=True, models=(), checked_at_ms=1)
DOWN = ProviderStatus(reachable=False, models=(), checked_at_ms=2, error="refused")


def facts(user_id: str = "ann", *closed: ClosedQuestion) -> Any:
    definition = SimpleNamespace(name="helper")
    return SimpleNamespace(run_id="r_1", user_id=user_id, definition=definition, closed_questions=closed)


class Published:
    """The channels of the system of a runtime, and what is published to them."""

    def __init__(self, file: Mapping[str, ChannelBlock] | None = None) -> None:
        self.declared = DeclaredChannels(file or {})
        self.sent: list[tuple[Mapping[str, Any], ChannelCaller]] = []
        self.failures: list[Exception] = []
        self.table = AvailabilityTable()
        self.is_active = True
        self.now_ms = 1_700_000_000_000
        self.news = asyncio.Event()
        self.channels = SystemChannels(
            self,
            self.declared.declarations,
            codec=local_codec(),
            decrypt=self._decrypt,
            availability=lambda: self.table,
            is_active=lambda: self.is_active,
            clock_ms=lambda: self.now_ms,
            version="1.2",
            retry_s=0.0,
        )

    async def _decrypt(self, value: Any, tenant: str) -> Any:
        return {name: f"{tenant}:{text}" if name == "question" else text for name, text in value.items()}

    async def publish(self, asked: ChannelPublish, caller: ChannelCaller) -> None:
        if self.failures:
            failure = self.failures.pop(0)
            if not self.failures:
                self.news.set()
            raise failure
        self.sent.append(({"channel": asked.channel, "value": asked.value}, caller))
        self.news.set()

    async def until(self, count: int) -> list[tuple[Mapping[str, Any], ChannelCaller]]:
        """Publish until there are so many messages; return them."""
        task = asyncio.create_task(self.channels.run())
        try:
            async with asyncio.timeout(30):
                while len(self.sent) < count:
                    self.news.clear()
                    await self.news.wait()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return self.sent


def pause_event(event: Any, seq: int = 3) -> RawEvent:
    envelope = Envelope(
        term=1, seq=seq, aggregate=PAUSES, tenant="", at_ms=1_700_000_000_000, prev=bytes(16), cause_id="c"
    )
    value = local_codec().encode_event(envelope, event)
    return RawEvent(7, int.from_bytes(value[1:5], "big"), 1, seq, PAUSES, value)


async def test_the_next_group_of_approvers_is_told_once_and_the_first_by_the_question() -> None:
    here = Published()
    call = ToolCall(id=OPENED.call_id, name="pay", input="{}")
    asked = AskedApproval(
        interrupt_id="intr_1",
        tool="pay",
        verdict=CallVerdict(index=0, outcome="ask"),
        arguments_sha256="",
        question=question_of(replace(OPENED, kind=APPROVAL), call),
    )
    here.channels.on_asked("acme", facts(), asked, False)
    for group, is_repeated in ((1, False), (1, True), (2, False)):
        here.channels.on_asked("acme", facts(), replace(asked, group=group), is_repeated)
    sent = await here.until(3)
    assert [(fields["channel"], fields["value"]["group"]) for fields, _ in sent] == [
        ("_system/interrupts/pending", 1),
        ("_system/interrupts/pending", 1),
        ("_system/interrupts/pending", 2),
    ]
    ids = [caller.command_id for _, caller in sent]
    assert ids[0] == ids[1] != ids[2], "what is told again is published once"


async def test_a_question_is_told_to_the_user_of_its_run() -> None:
    here = Published()
    here.channels.on_question("acme", facts(), OPENED, False)
    ((fields, caller),) = await here.until(1)
    assert fields == {
        "channel": "_system/interrupts/pending",
        "value": {
            "interrupt_id": "intr_1",
            "run_id": "r_1",
            "kind": "question",
            "agent": "helper",
            "question": "acme:Go?",
            "options": ["yes"],
            "context": "",
            "priority": "normal",
            "expires_at": "2023-11-14T22:13:20.000Z",
        },
    }
    assert (caller.tenant, caller.user_id, caller.publisher, caller.issued_at_ms) == (
        "acme",
        "ann",
        "_system",
        here.now_ms,
    )


async def test_what_became_of_a_question_is_told_in_the_form_of_the_reference() -> None:
    here = Published()
    here.channels.on_question("acme", facts(), CLOSED, False)
    ((fields, _),) = await here.until(1)
    assert fields["channel"] == "_system/interrupts/resolved"
    assert fields["value"] == {
        "interrupt_id": "intr_1",
        "run_id": "r_1",
        "kind": "question",
        "status": "resolved",
        "answer": "yes",
        "resolved_by": "ann",
    }


async def test_an_approval_is_told_as_one_when_it_waits_and_when_it_has_ended() -> None:
    here = Published()
    closed = ClosedQuestion(interrupt_id="intr_1", status="resolved", kind=APPROVAL)
    here.channels.on_question("acme", facts(), replace(OPENED, kind=APPROVAL), False)
    here.channels.on_question("acme", facts("ann", closed), CLOSED, False)
    assert [fields["value"]["kind"] for fields, _ in await here.until(2)] == ["approval", "approval"]


async def test_a_question_after_a_takeover_has_the_same_id_and_is_looked_up() -> None:
    here = Published()
    here.channels.on_question("acme", facts(), OPENED, False)
    here.channels.on_question("acme", facts(), OPENED, True)
    here.channels.on_question("acme", facts(), CLOSED, True)
    first, again, other = (caller for _, caller in await here.until(3))
    assert first.command_id == again.command_id != other.command_id
    assert again.issued_at_ms == 0


async def test_a_run_without_a_user_has_nobody_to_be_told() -> None:
    here = Published()
    here.channels.on_question("acme", facts(user_id=""), OPENED, False)
    here.channels.on_question("acme", facts(), CLOSED, False)
    ((fields, _),) = await here.until(1)
    assert fields["channel"] == "_system/interrupts/resolved"


async def test_the_file_may_declare_questions_for_the_whole_tenant() -> None:
    here = Published({"_system/interrupts/pending": ChannelBlock(scope="tenant")})
    here.channels.on_question("acme", facts(user_id=""), OPENED, False)
    assert len(await here.until(1)) == 1


async def test_pauses_are_told_once_however_many_processes_read_them() -> None:
    one, two = Published(), Published()
    for here in (one, two):
        here.channels.on_pause_event(0, pause_event(PauseSet(scope="agent", tenant="acme", agent="helper", by="op")))
        here.channels.on_pause_event(0, pause_event(SwitchUsed(switch="x")))
        here.channels.on_pause_event(0, pause_event(PauseLifted(scope="agent", tenant="acme", agent="helper"), seq=4))
    (paused, caller), (running, _) = await one.until(2)
    assert paused["channel"] == "_system/runtime-state"
    assert paused["value"] == {
        "state": "paused",
        "scope": "agent",
        "tenant": "acme",
        "agent": "helper",
        "by": "op",
        "reason": "",
        "ts": "2023-11-14T22:13:20.000Z",
    }
    assert running["value"]["state"] == "running"
    assert caller.tenant == ""
    assert [one.command_id for _, one in await two.until(2)] == [each.command_id for _, each in one.sent]


async def test_a_beat_is_published_once_for_each_period_by_the_owner_of_partition_0() -> None:
    here = Published({"beat": BEAT})
    here.is_active = False
    here.channels.look()
    here.is_active = True
    here.channels.look()
    here.now_ms += 59_000 - here.now_ms % 60_000
    here.channels.look()
    here.now_ms += 1_000
    here.channels.look()
    here.now_ms -= 600_000  # a clock that goes back
    here.channels.look()
    (first, one), (second, two) = await here.until(2)
    assert first["channel"] == second["channel"] == "beat"
    assert set(first["value"]) == {"ts", "version", "uptime_s"}
    assert first["value"]["version"] == "1.2"
    assert one.command_id != two.command_id
    assert (one.issued_at_ms, two.issued_at_ms > 0) == (0, True)  # an earlier owner may have published the first
    other = Published({"beat": BEAT})
    ((_, again),) = await other.until(1)
    assert again.command_id == one.command_id


async def test_a_beat_of_a_channel_that_is_declared_at_run_time_begins_by_itself() -> None:
    here = Published()
    await here.declared.create(ADMIN, name="tick", scope="global", publisher="system", period="1s")
    ((fields, _),) = await here.until(1)
    assert fields["channel"] == "tick"


async def test_what_happens_to_providers_is_told_by_the_owner_of_partition_0() -> None:
    here = Published()
    here.table = AvailabilityTable(providers={"openai": DOWN})
    here.is_active = False
    here.channels.look()
    here.is_active = True
    here.table = AvailabilityTable(providers={"openai": UP})
    here.channels.look()
    ((fields, _),) = await here.until(1)
    assert fields["channel"] == "_system/provider-events"
    value = {"provider": "openai", "model": "", "event": "reachable", "reason": "", "ts": "2023-11-14T22:13:20.000Z"}
    assert fields["value"] == value


@pytest.mark.parametrize(
    ("before", "after", "events"),
    [
        ({}, {"providers": {"a": UP}}, []),
        ({}, {"providers": {"a": DOWN}}, [("a", "", "unreachable", "refused")]),
        ({"providers": {"a": UP}}, {"providers": {"a": DOWN}}, [("a", "", "unreachable", "refused")]),
        ({"providers": {"a": DOWN}}, {"providers": {"a": DOWN}}, []),
        ({}, {"statuses": {("a", "m"): ModelStatus(stalled_at_ms=5, reason="x")}}, [("a", "m", "stalled", "x")]),
        ({"statuses": {("a", "m"): ModelStatus(stalled_at_ms=5, reason="x")}}, {}, [("a", "m", "recovered", "x")]),
        (
            {},
            {"statuses": {("a", "m"): ModelStatus(limited_until_ms=9, reason="429")}},
            [("a", "m", "rate_limited", "429")],
        ),
    ],
)
def test_changes_of_availability(before: Any, after: Any, events: list[tuple[str, ...]]) -> None:
    changes = availability_changes(AvailabilityTable(**before), AvailabilityTable(**after))
    assert [(one["provider"], one["model"], one["event"], one["reason"]) for one in changes] == events


async def test_a_queue_without_an_owner_is_tried_again_and_a_refusal_is_not() -> None:
    here = Published()
    here.failures = [Unavailable("no owner"), Unavailable("no owner")]
    here.channels.on_question("acme", facts(), OPENED, False)
    ids = {caller.command_id for _, caller in await here.until(1)}
    assert len(ids) == 1
    refused = Published()
    refused.failures = [Refused("queue_full", "5,000 wait")]
    refused.channels.on_question("acme", facts(), OPENED, False)
    refused.channels.on_question("acme", facts(), CLOSED, False)
    ((fields, _),) = await refused.until(1)
    assert fields["channel"] == "_system/interrupts/resolved"
