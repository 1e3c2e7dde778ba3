"""Webhooks of calls that wait: one callback for each approval, whatever is told again."""

import asyncio
import json
from typing import Any

import pytest

from loomlog.connectors.errors import Transient
from loomlog.schemas.generated.callback_commands import RequestCallback
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.values import ApproverGroup, CallVerdict, ToolCall
from loomlog.schemas.records import replace
from loomlog.services.core.run.interrupts.approvals import AskedApproval
from loomlog.services.core.run.interrupts.questions import Question
from loomlog.services.runtime.run import approval_notices
from loomlog.services.runtime.run.approval_notices import ApprovalNotices
from loomlog.services.stream.entities.answers import Answer
from tests.services.core.run.given import NOW, begun

VERDICT = CallVerdict(
    index=0,
    outcome="ask",
    rule="large",
    reason="money",
    groups=(ApproverGroup(subjects=("ann",), approvals=2, within_ms=60_000),),
    notify_url="https://pager.example.com/calls",
    notify_secret_env="PAGER_SECRET",
)
QUESTION = Question(
    index=0,
    call=ToolCall(id="c0", name="pay", input="{}"),
    interrupt_id="intr_1",
    kind="approval",
    question="",
    options=(),
    context="{}",
    priority="",
    expires_at_ms=NOW,
)
ASKED = AskedApproval(interrupt_id="intr_1", tool="pay", verdict=VERDICT, arguments_sha256="a0", question=QUESTION)


class Owner:
    """Answers commands, after so many that nobody answers."""

    def __init__(self, *, failures: int = 0, code: str = "") -> None:
        self.asked: list[RequestCallback] = []
        self._failures, self._code = failures, code

    async def ask(self, command: Any, *, wait_s: float) -> Answer:
        self.asked.append(command)
        if len(self.asked) <= self._failures:
            raise Transient("no owner", kind="unavailable")
        events = (CommandRefused(code=self._code, message="no"),) if self._code else ()
        return Answer(events=events, topic="t", partition=0, offset=1)


def told(owner: Owner, *events: AskedApproval, is_repeated: bool = False) -> list[RequestCallback]:
    async def tell() -> None:
        notices = ApprovalNotices(owner, clock_ms=lambda: NOW)  # type: ignore[arg-type]  # what it asks of commands
        for event in events:
            notices.on_asked("acme", begun().live.facts, event, is_repeated)
        task = asyncio.create_task(notices.run())
        await notices.drain()
        task.cancel()

    asyncio.run(tell())
    return owner.asked


def test_the_address_of_the_rule_gets_the_call_without_its_arguments() -> None:
    (command,) = told(Owner(), ASKED)
    assert (command.run_id, command.url, command.secret_env) == (
        "intr_1",
        "https://pager.example.com/calls",
        "PAGER_SECRET",
    )
    body = json.loads(command.body)
    assert (body["type"], body["data"]["tool"], body["data"]["approvals"]) == ("approval.pending", "pay", 2)
    assert "arguments" not in body["data"]
    assert command.envelope.command_id == "intr_1:pending"


def test_what_is_told_again_after_a_takeover_is_the_same_command() -> None:
    first, again = told(Owner(), ASKED)[0], told(Owner(), ASKED, is_repeated=True)[0]
    assert (first.envelope.command_id, first.envelope.issued_at_ms) == (again.envelope.command_id, NOW)
    assert again.envelope.issued_at_ms == 0


def test_a_rule_without_an_address_tells_nobody() -> None:
    assert told(Owner(), replace(ASKED, verdict=replace(VERDICT, notify_url=""))) == []


def test_an_owner_that_does_not_answer_is_asked_again_and_one_that_refuses_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(approval_notices, "RETRY_S", 0)
    assert len(told(Owner(failures=2), ASKED)) == 3
    assert len(told(Owner(code="bad_request"), ASKED)) == 1
    assert len(told(Owner(failures=1_000), ASKED)) == approval_notices.TRIES


def test_the_next_group_is_told_once_more_under_an_id_of_its_own() -> None:
    boss = ApproverGroup(subjects=("boss",), approvals=1, within_ms=5_000)
    verdict = replace(VERDICT, groups=(*VERDICT.groups, boss))
    first, second = told(Owner(), replace(ASKED, verdict=verdict), replace(ASKED, verdict=verdict, group=1))
    assert (first.hook, first.envelope.command_id) == (0, "intr_1:pending")
    assert (second.hook, second.envelope.command_id) == (1, "intr_1:1")
    body = json.loads(second.body)["data"]
    assert (body["group"], body["approvals"], body["within_s"]) == (1, 1, 5)
