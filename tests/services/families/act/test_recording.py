"""Acts are in the log before anything is done, and with their outcome after it; refusals are counted."""

import asyncio
from typing import Any

import orjson
import pytest

from loomlog.connectors.errors import Transient
from loomlog.schemas.generated.act_commands import BeginAct, EndAct, NoteRefusals
from loomlog.services.core.operations import Answer, Change
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.act import recording
from loomlog.services.families.act.recording import (
    ITEMS_MAX,
    STRING_CHARACTERS_MAX,
    TEXT_BYTES_MAX,
    ActLog,
    detail_text,
)
from loomlog.services.families.ports.acts import Act
from tests.services.application.world import ACME, NOW_MS

ACT = Act(act_id="one", operation="hook.register", caller=ACME, tenant="acme", target="mask", request={"name": "mask"})


class Log:
    """The commands that were sent; `is_away` refuses them."""

    def __init__(self) -> None:
        self.commands: list[Any] = []
        self.is_away = False
        tokens, origin = iter("abcdefgh"), ("http", "req_1")
        self.acts = ActLog(self.send, lambda: origin, clock_ms=lambda: NOW_MS, new_token=lambda: next(tokens))

    async def send(self, command: Any) -> None:
        if self.is_away:
            raise Transient("no broker", kind="unavailable")
        self.commands.append(command)

    async def carry_out(self, outcome: Any, change: Change | None = None) -> Any:
        async def work() -> Any:
            self.commands.append("work")
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        return await self.acts.carry_out(ACT, work, change or Change())


@pytest.fixture
def log() -> Log:
    return Log()


async def test_an_act_is_in_the_log_before_its_work_and_after_it(log: Log) -> None:
    answer = Answer(value={"id": "hook_1", "signing_secret": "hush-hush-hush"})
    assert await log.carry_out(answer, Change(before={"hooks": 0})) is answer
    begin, work, end = log.commands
    assert isinstance(begin, BeginAct)
    assert (begin.who, begin.token, begin.transport, begin.operation) == ("acme-op", "acme", "http", "hook.register")
    assert (begin.envelope.command_id, begin.envelope.tenant, begin.at_ms) == ("one", "acme", NOW_MS)
    assert orjson.loads(begin.request) == {"name": "mask"}
    assert work == "work"
    assert isinstance(end, EndAct)
    assert (end.outcome, end.code, orjson.loads(end.before)) == ("done", "", {"hooks": 0})
    assert orjson.loads(end.after) == {"id": "hook_1", "signing_secret": "[redacted]"}


async def test_an_act_that_cannot_be_recorded_is_not_carried_out(log: Log) -> None:
    log.is_away = True
    with pytest.raises(Refused) as caught:
        await log.carry_out(Answer(value=None))
    assert caught.value.code == "audit_unavailable"
    assert log.commands == []


async def test_a_log_that_hangs_refuses_the_act_in_time(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "SEND_WAIT_S", 0.01)

    async def hang(command: Any) -> None:
        await asyncio.Event().wait()

    log.acts = ActLog(hang, lambda: ("http", "req_1"), clock_ms=lambda: NOW_MS, new_token=lambda: "t")
    with pytest.raises(Refused) as caught:
        await log.carry_out(Answer(value=None))
    assert caught.value.code == "audit_unavailable"


@pytest.mark.parametrize(
    ("error", "outcome", "code"),
    [
        (Refused("not_found", "no"), "refused", "not_found"),
        (Refused("cancel_pending", "later"), "unknown", "cancel_pending"),
        (Unavailable("away"), "refused", "unavailable"),
        (Unavailable("away", is_unknown=True, code="command_pending"), "unknown", "command_pending"),
        (ValueError("a bug"), "unknown", "internal"),
    ],
)
async def test_what_fails_ends_with_its_code(log: Log, error: Exception, outcome: str, code: str) -> None:
    with pytest.raises(type(error)):
        await log.carry_out(error)
    end = log.commands[-1]
    assert (end.outcome, end.code, end.after) == (outcome, code, "")


async def test_an_answer_is_given_though_the_log_has_gone_meanwhile(log: Log) -> None:
    async def work() -> str:
        log.is_away = True
        return "done"

    assert await log.acts.carry_out(ACT, work, Change()) == "done"
    assert [type(command) for command in log.commands] == [BeginAct]


async def test_another_outcome_is_another_command_and_the_same_one_is_not(log: Log) -> None:
    for _ in range(2):
        with pytest.raises(Refused):
            await log.carry_out(Refused("command_pending", "later"))
    await log.carry_out(Answer(value=None))
    ids = [command.envelope.command_id for command in log.commands if command != "work"]
    assert ids == ["one", "one.unknown", "one", "one.unknown", "one", "one.done"]


async def test_of_refusals_the_first_of_a_kind_is_told_then_their_number(log: Log) -> None:
    for _ in range(4):
        log.acts.note_refusal("hook.register", ACME, "acme", "insufficient_scope", "mask")
    log.acts.note_refusal("hook.register", ACME, "acme", "bad_request")
    await log.acts.settle()
    assert [(one.code, one.count) for one in log.commands] == [("insufficient_scope", 1), ("bad_request", 1)]
    log.acts.flush()
    await log.acts.settle()
    assert isinstance(log.commands[-1], NoteRefusals)
    assert [(one.code, one.count) for one in log.commands[2:]] == [("insufficient_scope", 3)]
    log.acts.note_refusal("hook.register", ACME, "acme", "insufficient_scope")
    await log.acts.settle()
    assert log.commands[-1].count == 1, "it is another minute"


async def test_what_was_counted_is_told_when_the_process_ends(log: Log) -> None:
    task = asyncio.create_task(log.acts.run())
    for _ in range(3):
        log.acts.note_refusal("hook.register", ACME, "acme", "bad_request")
    await log.acts.settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [one.count for one in log.commands] == [1, 2]


def test_a_detail_has_no_secret_and_an_end() -> None:
    detail = {
        "api_key": "abc",
        "token_env": "CI_TOKEN",
        "credentials": {"github": "abc", "more": ["abc"]},
        "text": "Authorization: Bearer abcdefghijklmnop",
        "long": "a" * (STRING_CHARACTERS_MAX + 5),
        "many": list(range(ITEMS_MAX + 1)),
        "max_tokens": 5,
    }
    kept = orjson.loads(detail_text(detail))
    assert (kept["api_key"], kept["token_env"], kept["max_tokens"]) == ("[redacted]", "CI_TOKEN", 5)
    assert kept["credentials"] == {"github": "[redacted]", "more": ["[redacted]"]}
    assert "abcdefghijklmnop" not in kept["text"]
    assert kept["long"].endswith("... (5 more characters)")
    assert len(kept["many"]) == ITEMS_MAX
    assert set(orjson.loads(detail_text(["b" * 1_000] * 100))) == {"bytes", "sha256"}
    assert len(detail_text(["b" * 1_000] * 10)) < TEXT_BYTES_MAX
    assert detail_text(None) == ""
    nested: Any = []
    for _ in range(100):
        nested = [nested]
    assert "..." in detail_text(nested)


def test_half_a_surrogate_pair_is_kept_as_json_can_say_it() -> None:
    assert detail_text("\ud800") == '"\\ud800"'
