import json
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, KafkaRanges
from loomlog.connectors.protocols import ProducerRecord
from loomlog.redpanda.apply import apply
from loomlog.schemas.codec import local_codec, read_envelope
from loomlog.schemas.generated.budget_events import BudgetMonthBegan
from loomlog.schemas.records import replace
from loomlog.services.cli.admin import budget_repair
from loomlog.services.cli.admin.budget_repair import archive_records, limit_command, limit_lines, read_budget_table
from loomlog.services.cli.errors import CliError
from loomlog.services.cli.main import app
from loomlog.services.families.budget.family import topics_of
from loomlog.services.families.budget.state import AccountUsage, BudgetState, Limit
from tests.services.cli.fake_api import FakeApi, Scripted
from tests.services.runtime.budget_world import BUDGETS, BudgetWorld

ACME = Limit(scope="tenant", tenant="acme", scope_id="acme", hard_tokens=500, soft_tokens=100, strict=True)
ADA = Limit(
    scope="user", tenant="a b", scope_id="ada", soft_micros=1, hard_micros=12_500_000, currency="USD", by="op", at_ms=1
)
EVERYBODY = Limit(scope="operator", tenant="", scope_id="", hard_micros=5_000_000, currency="USD")


@pytest.mark.parametrize(
    ("limit", "command"),
    [
        (ACME, "loomlog limits set --tenant acme --soft 100 --hard 500 --strict"),
        (ADA, "loomlog limits set --tenant 'a b' --user ada --soft-money 0.000001 --hard-money 12.5"),
        (EVERYBODY, "loomlog limits set --everybody --hard-money 5"),
    ],
)
def test_a_limit_is_told_as_the_command_that_sets_it(limit: Limit, command: str) -> None:
    assert limit_command(limit) == command


def test_what_was_used_and_set_aside_is_told_with_each_limit() -> None:
    account = AccountUsage(used_tokens=2_000, reserved_tokens=30, used_micros=1_250_000, reserved_micros=5)
    books = BudgetState(limits={"a": ADA}, accounts={"a": account})
    assert [line.plain.partition("#")[2] for line in limit_lines(books)] == [
        " 2,000 and 30 tokens, 1.25 and 0.000005 USD"
    ]
    assert [line.plain.strip() for line in limit_lines(BudgetState())] == ["none"]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    fake = FakeApi()
    monkeypatch.setattr(budget_repair, "open_api", fake.client)
    fake.answers["GET", "/v1/_state"] = Scripted(body={"state": "paused"})
    return fake


def invoke(tmp_path: Path, *more: str):
    environ = {"LOOMLOG_KAFKA": "127.0.0.1:1", "LOOMLOG_HOME": str(tmp_path / "home"), "COLUMNS": "200"}
    return CliRunner().invoke(app, ["limits", "reset", str(tmp_path / "kept.jsonl"), *more], env=environ)


BROKEN = "the books cannot be read past loom.budget.events offset 7: expected event 3, found 9"


def stopped(monkeypatch: pytest.MonkeyPatch, broken: str = BROKEN) -> list[Path]:
    """The books stopped; where their records were put."""
    put: list[Path] = []

    async def read(*_: object) -> SimpleNamespace:
        return SimpleNamespace(broken=broken, books=BudgetState(limits={"a": ACME}))

    async def aside(options: object, topics: object, file: Path) -> int:
        put.append(file)
        return 12

    monkeypatch.setattr(budget_repair, "read_budget_table", read)
    monkeypatch.setattr(budget_repair, "archive_records", aside)
    return put


def test_without_a_confirmation_it_is_only_told_what_would_happen(fake, tmp_path, monkeypatch):
    put = stopped(monkeypatch)
    result = invoke(tmp_path)
    assert (result.exit_code, put) == (0, [])
    assert "offset 7: expected event 3, found 9" in result.stdout
    assert "loomlog limits set --tenant acme --soft 100 --hard 500 --strict" in result.stdout
    assert "Nothing was changed." in result.stdout


def test_confirmed_it_is_told_what_to_do_next(fake, tmp_path, monkeypatch):
    put = stopped(monkeypatch)
    result = invoke(tmp_path, "--confirm")
    assert (result.exit_code, put) == (0, [tmp_path / "kept.jsonl"])
    assert "12 records of the budget topic are stored in" in result.stdout
    assert "start every runtime and api again" in result.stdout
    assert json.loads(invoke(tmp_path, "--confirm", "--json").stdout)["kept_records"] == 12


def test_nothing_is_touched_unless_everything_stands_still(fake, tmp_path, monkeypatch):
    put = stopped(monkeypatch)
    fake.answers["GET", "/v1/_state"] = Scripted(body={"state": "pausing"})
    result = invoke(tmp_path, "--confirm")
    assert (result.exit_code, put) == (1, [])
    assert "The installation is pausing. Pause everything first" in result.stderr


def test_books_that_can_be_read_are_left_alone(fake, tmp_path, monkeypatch):
    put = stopped(monkeypatch, broken="")
    result = invoke(tmp_path, "--confirm")
    assert (result.exit_code, put) == (1, [])
    assert "nothing to reset" in result.stderr


@pytest.mark.integration
async def test_books_that_stopped_are_kept_in_a_file_and_begin_anew(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    world = BudgetWorld()
    async with world.owner_of_the_books("first"), world.reader_of_the_books("a") as reader:
        await world.limit(reader, hard_micros=10_000)
    last = world.log.records[BUDGETS.events, 0][-1]
    envelope, _ = read_envelope(last.value or b"")
    forged = local_codec().encode_event(replace(envelope, seq=envelope.seq + 7), BudgetMonthBegan(month="2026-01"))

    await apply(kafka, prefix=topic_prefix)
    options, topics = KafkaOptions(bootstrap=kafka), topics_of(topic_prefix)
    appender, ranges = KafkaAppender(options), KafkaRanges(options)
    await appender.start()
    await ranges.start()
    try:
        for ours, theirs in ((topics.events, BUDGETS.events), (topics.commands, BUDGETS.commands)):
            # Terms are offsets, so they fit as long as every record lies where it lay.
            copied = [ProducerRecord(key=one.key, value=one.value) for one in world.log.records[theirs, 0]]
            assert await appender.append(ours, 0, copied) == 0
        assert not (await read_budget_table(options, local_codec(), topics)).broken

        at = await appender.append(topics.events, 0, [ProducerRecord(key=b"k", value=forged)])
        board = await read_budget_table(options, local_codec(), topics)
        assert f"{topics.events} offset {at}" in board.broken
        assert [limit.hard_micros for limit in board.books.limits.values()] == [10_000]

        file = tmp_path / "kept.jsonl"
        file.write_text("an earlier one")
        with pytest.raises(CliError, match="is there already"):
            await archive_records(options, topics, file)
        assert await ranges.beginning_offset(topics.events, 0) == 0
        file.unlink()
        kept = await archive_records(options, topics, file)
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert (len(lines), stat.S_IMODE(file.stat().st_mode)) == (kept, 0o600)
        assert [line["offset"] for line in lines if line["topic"] == topics.events] == list(range(at + 1))
        for topic in (topics.events, topics.commands):
            assert await ranges.beginning_offset(topic, 0) == await ranges.end_offset(topic, 0) > 0
        board = await read_budget_table(options, local_codec(), topics)
        assert (board.broken, board.books) == ("", BudgetState())
    finally:
        await appender.close()
        await ranges.close()
