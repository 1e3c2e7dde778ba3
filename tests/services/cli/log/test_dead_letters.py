import json
from contextlib import asynccontextmanager
from typing import Any

import pytest
from typer.testing import CliRunner

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.run_commands import CancelRun
from loomlog.schemas.generated.stream_records import DeadLetter, Header
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.cli.errors import CliError
from loomlog.services.cli.log import dead_letters
from loomlog.services.cli.log.dead_letters import (
    TOPIC,
    original_record,
    read_dead_letter,
    read_dead_letters,
    replay_record,
)
from loomlog.services.cli.main import app

COMMANDS = "loom.run.commands"
CODEC = local_codec()
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
    found = await read_dead_letter(log, CODEC, offset)
    return await replay_record(log, CODEC, found, original_record(found, allow_repeat=again), 3, at_ms=9)


async def test_the_original_goes_back_as_it_was_and_that_is_noted():
    log = log_of(letter())
    assert await replayed(log, 0) == "loom.run.commands/3:0"
    back = log.records[COMMANDS, 3][0]
    assert (back.key, back.value, back.headers) == (b"k", CANCEL, (("traceparent", b"00-1"),))
    assert (await read_dead_letter(log, CODEC, 0)).replay_positions == ("loom.run.commands/3:0",)


async def test_nothing_is_put_back_twice_by_mistake():
    log = log_of(letter())
    await replayed(log, 0)
    with pytest.raises(CliError, match=r"put back already, at loom\.run\.commands/3:0\. --again"):
        await replayed(log, 0)
    assert await replayed(log, 0, again=True) == "loom.run.commands/3:1"
    assert (await read_dead_letters(log, CODEC))[0].replay_positions == (
        "loom.run.commands/3:0",
        "loom.run.commands/3:1",
    )


async def test_an_event_is_never_put_back():
    log = log_of(letter(topic="loom.run.events", kind="undecodable"))
    with pytest.raises(CliError, match="only its owner writes there"):
        await replayed(log, 0)


async def test_a_letter_without_the_bytes_says_where_they_are():
    log = log_of(letter(value=None))
    with pytest.raises(CliError, match=r"is at loom\.run\.commands/2:17 as long as"):
        await replayed(log, 0)


async def test_an_unknown_outcome_is_told_and_not_noted():
    log = log_of(letter())
    log.lose_acks = 1
    with pytest.raises(CliError, match="is not known"):
        await replayed(log, 0)
    assert (await read_dead_letter(log, CODEC, 0)).replay_positions == ()


async def test_what_is_no_letter_is_said():
    log = log_of(letter())
    await replayed(log, 0)
    with pytest.raises(CliError, match="There is no dead letter 7"):
        await read_dead_letter(log, CODEC, 7)
    with pytest.raises(CliError, match=r"dead-letter/0:1 is no dead letter"):
        await read_dead_letter(log, CODEC, 1)


@pytest.fixture
def dlq(monkeypatch, tmp_path):
    """Runs `loomlog dlq` over a log."""

    def run(log: MemoryLog, *arguments: str):
        @asynccontextmanager
        async def ranges(options):
            yield log

        @asynccontextmanager
        async def both(options):
            yield log, log

        async def four(options, topic):
            return 4

        monkeypatch.setattr(dead_letters, "open_ranges", ranges)
        monkeypatch.setattr(dead_letters, "_open_log", both)
        monkeypatch.setattr(dead_letters, "count_partitions", four)
        environ = {"LOOMLOG_HOME": str(tmp_path), "LOOMLOG_KAFKA": "k.test:1"}
        return CliRunner().invoke(app, ["dlq", *arguments], env=environ)

    return run


def test_letters_are_listed_with_what_became_of_them(dlq):
    log = log_of(letter(), letter(kind="fold_bug", topic="loom.run.events", offset=3))
    assert dlq(log, "replay", "0").exit_code == 0
    shown = dlq(log, "ls").stdout
    assert "loom.run.commands/2:17" in shown
    assert "put back" in shown
    listed = json.loads(dlq(log, "ls", "--kind", "fold_bug", "--json").stdout)["letters"]
    assert [(one["offset"], one["from"], one["replayed"]) for one in listed] == [(1, "loom.run.events/2:3", [])]


def test_no_letters_are_good_news(dlq):
    assert "There are no dead letters" in dlq(log_of(), "ls").stdout


def test_a_kind_there_is_not_is_wrong_use_and_those_there_are_are_named(dlq):
    result = dlq(log_of(), "ls", "--kind", "nope")
    assert result.exit_code == 2
    for kind in ("undecodable", "unknown_schema", "refused", "fold_bug"):
        assert kind in result.stderr
    assert (
        "no dead letters of the kind refused" in dlq(log_of(letter(kind="fold_bug")), "ls", "--kind", "refused").stdout
    )


def test_a_letter_is_shown_with_what_its_original_says(dlq):
    shown = json.loads(dlq(log_of(letter()), "show", "0", "--json").stdout)
    assert shown["original"]["type"] == "CancelRun"
    assert shown["original"]["payload"]["reason"] == "enough"
    unreadable = json.loads(dlq(log_of(letter(value=b"\x07rubbish")), "show", "0", "--json").stdout)["original"]
    assert unreadable["type"] is None
    assert unreadable["value_hex"] == b"\x07rubbish".hex()
    assert "CancelRun" in dlq(log_of(letter()), "show", "0").stdout


def test_a_letter_without_its_bytes_says_why_and_where_they_are(dlq):
    log = log_of(letter(value=None, error="7 bytes beginning b'garbage' are not framed"))
    why = (
        "Letter 0 holds no bytes: the original is too large, was a tombstone, or says in clear what is encrypted here."
    )
    original = json.loads(dlq(log, "show", "0", "--json").stdout)["original"]
    assert (original["value_hex"], original["type"]) == (None, None)
    assert original["unreadable"] == f"{why} It is at loom.run.commands/2:17 as long as its topic keeps it."
    shown = dlq(log, "show", "0").stdout
    assert why in shown
    assert "None" not in shown
    assert "0 bytes" not in shown


def test_the_key_decides_where_a_command_goes_back_to(dlq):
    log = log_of(letter())
    answer = json.loads(dlq(log, "replay", "0", "--json").stdout)
    assert answer["offset"] == 0
    partition = int(answer["position"].split("/")[1].split(":")[0])
    assert len(log.records[COMMANDS, partition]) == 1
