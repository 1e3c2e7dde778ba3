import json
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.services.application.log.records import ENTITY_TOPIC, EVENTS_TOPIC, RecordView
from loomlog.services.cli.errors import UsageError
from loomlog.services.cli.log import events
from loomlog.services.cli.log.events import TailRequest, _select_partitions, _start_offset
from loomlog.services.cli.main import app
from loomlog.services.cli.settings import load_cli_settings
from tests.services.cli.fake_api import FakeApi, Scripted


def start(text: str, *, run_id: str = "", known: int | None = None, partitions: int = 1) -> int:
    return _start_offset(TailRequest(topic=EVENTS_TOPIC, start=text, run_id=run_id), 5, 100, known, partitions)


@pytest.mark.parametrize(
    ("text", "offset"),
    [("", 100), ("end", 100), ("beginning", 5), ("-3", 97), ("-500", 5), ("42", 42), ("1", 5), ("999", 100)],
)
def test_from_is_a_word_a_number_from_the_end_or_an_offset(text, offset):
    assert start(text) == offset


def test_a_run_is_shown_from_its_beginning_as_far_as_that_is_known():
    assert start("", run_id="r_1", known=33) == 33
    assert start("", run_id="r_1") == 5
    assert start("-1", run_id="r_1") == 99


def test_an_offset_needs_its_partition():
    with pytest.raises(UsageError, match="--partition"):
        start("42", partitions=4)
    assert start("-3", partitions=4) == 97


def test_anything_else_is_a_wrong_use():
    with pytest.raises(UsageError, match="'yesterday'; expected beginning"):
        start("yesterday")


def test_the_partition_of_a_run_follows_from_its_id():
    token = "64ydjbq3pbdze5xsv0cx28kh93"
    wanted = TailRequest(topic=EVENTS_TOPIC, run_id=f"r_{token}-suffix")
    assert _select_partitions(wanted, 4) == [partition_of(token.encode(), 4)]
    assert _select_partitions(TailRequest(topic=EVENTS_TOPIC), 3) == [0, 1, 2]
    assert _select_partitions(TailRequest(topic="loom.dead-letter", run_id="r_1"), 1) == [0]
    with pytest.raises(UsageError, match="partitions 0 to 3; there is no 4"):
        _select_partitions(TailRequest(topic=EVENTS_TOPIC, partition=4), 4)


def test_the_partition_of_an_aggregate_follows_from_its_id_in_the_topics_of_entities():
    request = TailRequest(topic=ENTITY_TOPIC, run_id="counter:acme/hits")
    assert _select_partitions(request, 4) == [partition_of(b"acme/hits", 4)]
    assert _select_partitions(TailRequest(topic="loom.dead-letter", run_id="counter:acme/hits"), 1) == [0]


def test_the_records_of_an_aggregate_are_those_of_the_entity_events(monkeypatch, tmp_path):
    asked = []

    async def given(cli, request):
        asked.append(request.topic)
        yield view(3, run_id="counter:acme/hits", type_="CounterIncremented")
        yield view(4, run_id="counter:acme/misses", type_="CounterIncremented")

    monkeypatch.setattr(events, "_tail_records", given)
    arguments = ["events", "tail", "--json", "--run", "counter:acme/hits"]
    result = CliRunner().invoke(app, arguments, env={"LOOMLOG_HOME": str(tmp_path)})
    assert (offsets(result), asked) == ([3], [ENTITY_TOPIC])


def view(
    offset: int, *, run_id: str = "r_1", at_ms: int = 0, type_: str = "InputReceived", kind: str = "legal"
) -> RecordView:
    return RecordView(
        topic=EVENTS_TOPIC, partition=0, offset=offset, at_ms=at_ms or offset, kind=kind, type=type_, run_id=run_id
    )


@pytest.fixture
def tail(monkeypatch, tmp_path):
    """Runs `events tail` over the given records."""

    def run(records: list[RecordView], *arguments: str):
        async def given(cli, wanted):
            for record in records:
                yield record

        monkeypatch.setattr(events, "_tail_records", given)
        return CliRunner().invoke(app, ["events", "tail", "--json", *arguments], env={"LOOMLOG_HOME": str(tmp_path)})

    return run


def offsets(result) -> list[int]:
    assert result.exit_code == 0, result.output
    return [json.loads(line)["offset"] for line in result.stdout.splitlines()]


def test_of_a_run_only_its_own_records_are_shown_until_it_ends(tail):
    records = [view(1), view(2, run_id="r_2"), view(3, type_="RunCompleted"), view(4)]
    assert offsets(tail(records, "--run", "r_1")) == [1, 3]


def test_a_stale_ending_is_no_end(tail):
    records = [view(1, type_="RunCompleted", kind="stale"), view(2), view(3, type_="RunFailed")]
    assert offsets(tail(records, "--run", "r_1")) == [1, 2, 3]


def test_types_may_be_written_short_or_in_full(tail):
    records = [view(1), view(2, type_="RunStarted")]
    assert offsets(tail(records, "--type", "RunStarted")) == [2]
    assert offsets(tail(records, "--type", "loom.run.events.RunStarted")) == [2]


def test_a_limit_ends_it(tail):
    assert offsets(tail([view(n) for n in range(9)], "--limit", "2")) == [0, 1]


def test_what_has_an_end_is_shown_in_the_order_of_its_times(tail):
    records = [view(1, at_ms=30), view(2, at_ms=10), view(3, at_ms=20)]
    assert offsets(tail(records)) == [1, 2, 3]
    assert offsets(tail(records, "--no-follow")) == [2, 3, 1]


@pytest.mark.parametrize("known", [True, False])
async def test_the_first_offset_of_a_run_is_that_of_the_audit_index(monkeypatch, tmp_path, known):
    async def opened(*_, **__):
        return MemoryReader()

    async def found(*_):
        return SimpleNamespace(first_offset=7) if known else None

    monkeypatch.setattr(events, "open_reader", opened)
    monkeypatch.setattr(events, "find_run", found)
    cli = load_cli_settings({"LOOMLOG_POSTGRES": "postgresql://nowhere/x"}, working_directory=tmp_path)
    wanted = TailRequest(topic=EVENTS_TOPIC, run_id="r_typo")
    assert await events._find_first_offset(cli, wanted) == (7 if known else None)


class MemoryReader:
    """Read models that are asked by functions which a test replaces."""

    async def close(self):
        """Nothing is open."""


def served(monkeypatch, tmp_path, place: str, answer: Scripted | None = None):
    fake = FakeApi()
    if answer is not None:
        fake.answers["GET", "/v1/events/loom.run.events/2/17"] = answer
    monkeypatch.setattr(events, "ApiClient", lambda url, token: fake.client(token))
    result = CliRunner().invoke(app, ["events", "get", place, "--json"], env={"LOOMLOG_HOME": str(tmp_path)})
    return result, fake


@pytest.mark.parametrize("place", ["loom.run.events/2:17", "loom.run.events/2/17", "run.events/2:17"])
def test_a_record_is_named_by_its_place_in_any_of_the_usual_ways(monkeypatch, tmp_path, place):
    result, _ = served(monkeypatch, tmp_path, place, Scripted(body={"position": "loom.run.events/2:17", "payload": {}}))
    assert json.loads(result.stdout)["position"] == "loom.run.events/2:17"


@pytest.mark.parametrize("place", ["", "run.events", "loom.run.events/2", "loom.run.events/2:x", "run events/2:1"])
def test_anything_else_is_no_place(monkeypatch, tmp_path, place):
    result, _ = served(monkeypatch, tmp_path, place)
    assert result.exit_code == 2
    assert "is no place in the log" in result.stderr


def test_a_record_that_is_not_there_is_1(monkeypatch, tmp_path):
    result, _ = served(monkeypatch, tmp_path, "loom.run.events/2:17")
    assert (result.exit_code, result.stdout) == (4, "")
    assert "--direct" in result.stderr


def test_a_topic_the_api_does_not_serve_needs_the_broker(monkeypatch, tmp_path):
    result, fake = served(monkeypatch, tmp_path, "loom.dead-letter/0/0")
    assert fake.asked == []
    assert result.exit_code == 3
    assert "Nothing runs in" in result.stderr
