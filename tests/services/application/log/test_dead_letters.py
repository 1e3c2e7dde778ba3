from typing import Any

import pytest

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.run_commands import CancelRun
from loomlog.schemas.generated.stream_records import DeadLetter, Header
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.application.log.dead_letters import (
    TOPIC,
    DeadLetters,
    OpenLetters,
    dead_letter_json,
    read_dead_letter,
    read_dead_letters,
    replay_letter,
)
from loomlog.services.application.queries.log_pages import LogReadQueue
from loomlog.services.core.refusals import Refused
from tests.services.application.world import ADMIN_CALLER, declined

COMMANDS = "loom.run.commands"
CODEC = local_codec()
PLACE = partition_of(b"k", 4)
"""Partition of the key of the letter's original."""
CANCEL = CODEC.encode(
    CancelRun(envelope=CommandEnvelope(command_id="c1", issued_at_ms=1), run_id="r_1", reason="enough")
)


def letter(**changes: Any) -> DeadLetter:
    fields: dict[str, Any] = {
        "topic": COMMANDS,
        "partition": 2,
        "offset": 17,
        "timestamp_ms": 1_000,
        "service": "runtime",
        "kind": "refused",
        "error": "ValueError: no such thing",
        "at_ms": 2_000,
        "key": b"k",
        "value": CANCEL,
        "headers": (Header(key="traceparent", value=b"00-1"),),
    }
    return DeadLetter(**(fields | changes))


def log_of(*letters: DeadLetter) -> MemoryLog:
    log = MemoryLog({TOPIC: 1, COMMANDS: 4})
    for one in letters:
        log.put(TOPIC, 0, [ProducerRecord(key=b"p", value=CODEC.encode(one))])
    return log


async def replayed(log: MemoryLog, offset: int, *, again: bool = False) -> str:
    entry = await read_dead_letter(log, CODEC, offset)
    return await replay_letter(log, CODEC, entry, allow_repeat=again, at_ms=9)


async def test_the_original_goes_back_as_it_was_and_that_is_noted():
    log = log_of(letter())
    assert await replayed(log, 0) == f"{COMMANDS}/{PLACE}:0"
    back = log.records[COMMANDS, PLACE][0]
    assert (back.key, back.value, back.headers) == (b"k", CANCEL, (("traceparent", b"00-1"),))
    assert (await read_dead_letter(log, CODEC, 0)).replay_positions == (f"{COMMANDS}/{PLACE}:0",)


async def test_nothing_is_put_back_twice_by_mistake():
    log = log_of(letter())
    await replayed(log, 0)
    with pytest.raises(Refused, match=r"put back already, at .*:0\. To do it once more"):
        await replayed(log, 0)
    assert await replayed(log, 0, again=True) == f"{COMMANDS}/{PLACE}:1"
    assert (await read_dead_letters(log, CODEC))[0].replay_positions == (
        f"{COMMANDS}/{PLACE}:0",
        f"{COMMANDS}/{PLACE}:1",
    )


async def test_an_event_is_never_put_back():
    log = log_of(letter(topic="loom.run.events", kind="undecodable"))
    with pytest.raises(Refused, match="only its owner writes there"):
        await replayed(log, 0)


async def test_a_letter_without_the_bytes_says_where_they_are():
    log = log_of(letter(value=None))
    with pytest.raises(Refused, match=r"is at loom\.run\.commands/2:17 as long as"):
        await replayed(log, 0)


async def test_an_unknown_outcome_is_told_and_not_noted():
    log = log_of(letter())
    log.lose_acks = 1
    with pytest.raises(Refused, match="is not known"):
        await replayed(log, 0)
    assert (await read_dead_letter(log, CODEC, 0)).replay_positions == ()


async def test_what_is_no_letter_is_said():
    log = log_of(letter())
    await replayed(log, 0)
    with pytest.raises(Refused, match="There is no dead letter 7"):
        await read_dead_letter(log, CODEC, 7)
    with pytest.raises(Refused, match=r"dead-letter/0:1 is no dead letter"):
        await read_dead_letter(log, CODEC, 1)


# --- the use cases ---------------------------------------------------------------------------------------------------


def letters_of(log: MemoryLog, token: str = "") -> DeadLetters:
    return DeadLetters(log, log, CODEC, LogReadQueue(), clock_ms=lambda: 9, request_token=lambda: token)


async def test_the_newest_letters_come_first_and_a_page_goes_on_below_the_one_before() -> None:
    letters = letters_of(log_of(letter(), letter(kind="fold_bug"), letter(), letter()))
    first = await letters.list(ADMIN_CALLER, limit=2)
    assert ([one["offset"] for one in first["letters"]], first["next"]) == ([3, 2], "2")
    second = await letters.list(ADMIN_CALLER, before=2, limit=2)
    assert ([one["offset"] for one in second["letters"]], second["next"]) == ([1, 0], None)
    assert [one["offset"] for one in (await letters.list(ADMIN_CALLER, kind="fold_bug"))["letters"]] == [1]


async def test_a_letter_in_full_has_its_original_and_where_it_was_replayed() -> None:
    log = log_of(letter())
    await letters_of(log).replay(ADMIN_CALLER, 0)
    shown = await letters_of(log).get(ADMIN_CALLER, 0)
    assert (shown["from"], shown["replayed"]) == ("loom.run.commands/2:17", [f"{COMMANDS}/{PLACE}:0"])
    original = shown["original"]
    assert (original["type"], original["payload"]["reason"]) == ("CancelRun", "enough")


async def test_a_repeated_request_appends_nothing_and_gets_the_first_answer() -> None:
    log = log_of(letter())
    first = await letters_of(log, "t_1").replay(ADMIN_CALLER, 0)
    assert first == {"offset": 0, "position": f"{COMMANDS}/{PLACE}:0", "repeated": False}
    assert await letters_of(log, "t_1").replay(ADMIN_CALLER, 0) == {**first, "repeated": True}
    assert len(log.records[COMMANDS, PLACE]) == 1
    refused = await declined(letters_of(log, "t_2").replay(ADMIN_CALLER, 0))
    assert refused.code == "command_refused"
    again = await letters_of(log, "t_3").replay(ADMIN_CALLER, 0, allow_repeat=True)
    assert again["position"] == f"{COMMANDS}/{PLACE}:1"


@pytest.mark.parametrize(
    ("value", "reason"),
    [(b"junk", "is no record that can be read"), (b"\x00\x00\x0f\x42\x40\x00", "cannot be read by this version")],
)
async def test_what_cannot_be_read_is_not_put_back_and_the_letter_says_so(value: bytes, reason: str) -> None:
    log = log_of(letter(value=value, kind="undecodable"))
    entry = await read_dead_letter(log, CODEC, 0)
    assert reason in (dead_letter_json(entry, CODEC)["not_replayable"] or "")
    with pytest.raises(Refused, match=reason):
        await replayed(log, 0)


async def test_a_letter_is_acknowledged_once_and_open_until_then():
    log = log_of(letter(value=b"junk"), letter(), letter())
    letters, counter = letters_of(log), OpenLetters(log, CODEC)
    assert await counter.count() == 3
    first = await letters.acknowledge(ADMIN_CALLER, 0, reason="an old probe")
    assert (first["acknowledged"] or {})["reason"] == "an old probe"
    assert (first["acknowledged"] or {})["by"] == ADMIN_CALLER.subject
    again = await letters.acknowledge(ADMIN_CALLER, 0, reason="other words")
    assert again["acknowledged"] == first["acknowledged"]
    assert (await letters.get(ADMIN_CALLER, 0))["acknowledged"] == first["acknowledged"]
    assert await counter.count() == 2
    await replayed(log, 1)
    assert await counter.count() == 1
    assert await OpenLetters(log, CODEC).count() == 1
    assert (await declined(letters.acknowledge(ADMIN_CALLER, 99))).code == "not_found"
