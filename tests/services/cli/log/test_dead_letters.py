import json
from contextlib import asynccontextmanager

import pytest
from typer.testing import CliRunner

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.services.cli.log import dead_letters
from loomlog.services.cli.main import app
from tests.services.application.log.test_dead_letters import COMMANDS, letter, log_of


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

        monkeypatch.setattr(dead_letters, "open_ranges", ranges)
        monkeypatch.setattr(dead_letters, "_open_log", both)
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
