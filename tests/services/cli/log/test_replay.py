import gzip
import json
from contextlib import asynccontextmanager

import pytest
from typer.testing import CliRunner

from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.kafka.schema_registry import load_codec
from loomlog.schemas.generated.values import RunPosition
from loomlog.services.application.log.records import EVENTS_TOPIC
from loomlog.services.cli.errors import CliError
from loomlog.services.cli.log import replay as command
from loomlog.services.cli.main import app
from loomlog.services.cli.settings import load_cli_settings
from loomlog.services.core.run.history.replay import replay
from tests.connectors.kafka.test_schema_registry import FakeRegistry, registry
from tests.projections.stories import Partition, a3x2, completed, replied, requested, started
from tests.services.core.run.history.test_replay import accepted

__all__ = ["registry"]  # a fixture, used by its name


def log_of(partition: Partition) -> MemoryLog:
    log = MemoryLog({EVENTS_TOPIC: 1})
    log.put(EVENTS_TOPIC, 0, partition.outgoing())
    return log


def with_zombie() -> Partition:
    """A run whose first owner wrote once more after it had been replaced, among the events of another run."""
    partition = Partition()
    partition.claim("first")
    partition.add("r_0", started("r_0"))
    partition.add("r_1", started("r_1"), requested(1))
    partition.claim("second")
    partition.add("r_1", requested(1, 2), term=0)
    partition.add("r_0", requested(1))
    partition.add("r_1", replied(1, "Hi!"), completed())
    return partition


async def test_the_records_of_a_run_are_picked_out_and_stale_ones_counted():
    replayed, chain, stale = await command._fold_run(log_of(with_zombie()), 0, "r_1", None)
    assert [entry.seq for entry in replayed.entries] == [1, 2, 3, 4]
    assert (replayed.drift, chain, stale) == ((), 0, 1)


async def test_up_to_a_seq_only_what_was_by_then_is_folded():
    replayed, _, _ = await command._fold_run(log_of(with_zombie()), 0, "r_1", None, 2)
    assert (replayed.seq, replayed.status, replayed.drift) == (2, "running", ())
    with pytest.raises(CliError, match="has 4 events; there is no seq 5 yet"):
        await command._fold_run(log_of(with_zombie()), 0, "r_1", None, 5)


async def test_records_nobody_can_read_are_no_ones():
    partition = with_zombie()
    partition.records.append(b"garbage")
    replayed, _, _ = await command._fold_run(log_of(partition), 0, "r_1", None)
    assert len(replayed.entries) == 4


async def test_the_conversation_of_earlier_runs_comes_first_in_their_order():
    partition = Partition()
    partition.claim()
    partition.add("r_1", started("r_1", prompt="one"), requested(1), replied(1, "eins"), completed())
    first = RunPosition(run_id="r_1", first_offset=1, last_offset=4)
    partition.add(
        "r_1-b", started("r_1-b", prompt="two", continues=first), requested(1), replied(1, "zwei"), completed()
    )
    second = RunPosition(run_id="r_1-b", first_offset=5, last_offset=8)
    partition.add("r_1-c", started("r_1-c", prompt="three", continues=second), requested(1))
    replayed, chain, _ = await command._fold_run(log_of(partition), 0, "r_1-c", None)
    assert (chain, replayed.drift) == (2, ())
    texts = [block.text for message in replayed.history for block in message.blocks]
    assert texts == ["one", "eins", "two", "zwei", "three"]


async def test_an_earlier_run_that_is_not_there_is_a_failure_and_no_guess():
    partition = Partition()
    partition.claim()
    lost = RunPosition(run_id="r_0", first_offset=0, last_offset=1)
    partition.add("r_2", started("r_2"), requested(1))
    partition.add("r_1", started("r_1", continues=lost))
    with pytest.raises(CliError, match="r_0, which another goes on with, is not at offset 0"):
        await command._fold_run(log_of(partition), 0, "r_1", None)


async def test_a_log_written_with_the_ids_of_a_registry_is_replayed_with_them(
    registry: FakeRegistry, monkeypatch, tmp_path
):
    partition = Partition(codec=await load_codec(Settings(schema_registry=registry.url)))
    partition.claim()
    partition.add("r_1", started("r_1", prompt="one"), requested(1), replied(1, "eins"), completed())
    first = RunPosition(run_id="r_1", first_offset=1, last_offset=4)
    partition.add("r_1-b", started("r_1-b", continues=first), requested(1), replied(1, "zwei"), completed())

    async def one(options, topic):
        return 1

    @asynccontextmanager
    async def ranges(options):
        yield log_of(partition)

    monkeypatch.setattr(command, "count_partitions", one)
    monkeypatch.setattr(command, "open_ranges", ranges)
    told = {"LOOMLOG_HOME": "home", "LOOMLOG_KAFKA": "127.0.0.1:1", "LOOMLOG_SCHEMA_REGISTRY": registry.url}
    found = await command.build_report(load_cli_settings(told, working_directory=tmp_path), "r_1-b")
    assert (found.replayed.seq, found.replayed.status, found.earlier_runs, found.drift) == (4, "completed", 1, ())


def report(*, drift: tuple[str, ...] = (), not_compared: str = "") -> command.ReplayReport:
    partition = Partition()
    partition.claim()
    partition.add("r_1", *a3x2("r_1"))
    replayed = replay("r_1", accepted(partition, "r_1"))
    return command.ReplayReport(
        replayed=replayed, partition=3, stale_records=2, earlier_runs=1, drift=drift, comparison_skipped=not_compared
    )


def invoke(monkeypatch, tmp_path, found: command.ReplayReport, *arguments: str):
    async def given(cli, run_id, to_seq):
        assert (run_id, to_seq) == ("r_1", 0)
        return found

    monkeypatch.setattr(command, "build_report", given)
    return CliRunner().invoke(app, ["replay", "r_1", *arguments], env={"LOOMLOG_HOME": str(tmp_path)})


def test_a_proven_run_ends_with_0_and_shows_its_timeline(monkeypatch, tmp_path):
    result = invoke(monkeypatch, tmp_path, report())
    assert result.exit_code == 0
    assert "run r_1  in loom.run.events/3" in result.stdout
    assert result.stdout.count("ToolReturned") == 2
    assert "history   12 events, sequence complete, hash chain valid" in result.stdout
    assert "stale     2 records" in result.stdout
    assert "continues 1 earlier run" in result.stdout
    assert "replay matches the read models" in result.stdout
    assert "ToolReturned" not in invoke(monkeypatch, tmp_path, report(), "--no-timeline").stdout


@pytest.mark.parametrize("given", ["/nonexistent.file", "/", "../r_1", "a_1", "r_1/x"])
def test_what_is_no_file_and_no_run_is_wrong_use(given):
    result = CliRunner().invoke(app, ["replay", given])
    sentence = f"{given} is neither a file here nor the id of a run (r_...) or of an aggregate (FAMILY:TENANT/NAME).\n"
    assert (result.exit_code, result.stderr) == (2, sentence)


def test_a_state_file_is_named_with_the_command_that_takes_it(tmp_path):
    file = tmp_path / "x.loomlog-state.gz"
    file.write_bytes(gzip.compress(b'{"format":"loomlog.state","schema_version":2,"sections":{\n'))
    result = CliRunner().invoke(app, ["replay", str(file)])
    said = f"{file} cannot be replayed: it is a state, which `loomlog backup restore` takes.\n"
    assert (result.exit_code, result.stderr) == (1, said)


def test_drift_ends_with_1_and_says_what_does_not_hold(monkeypatch, tmp_path):
    result = invoke(monkeypatch, tmp_path, report(drift=("the read models say turns 9",)))
    assert result.exit_code == 1
    assert "drift\n  the read models say turns 9" in result.stdout
    assert "equal to the read models" not in result.stdout


def test_what_could_not_be_compared_is_said(monkeypatch, tmp_path):
    result = invoke(monkeypatch, tmp_path, report(not_compared="Postgres is away"))
    assert result.exit_code == 0
    assert "not compared with the read models: Postgres is away" in result.stdout


def test_as_json_everything_is_in_one_document(monkeypatch, tmp_path):
    found = json.loads(invoke(monkeypatch, tmp_path, report(drift=("x",)), "--json").stdout)
    assert (found["run_id"], found["seq"], found["status"], found["drift"]) == ("r_1", 12, "completed", ["x"])
    assert [event["seq"] for event in found["events"]] == list(range(1, 13))
    assert found["compared"] is True
