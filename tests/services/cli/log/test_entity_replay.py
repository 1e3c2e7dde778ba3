"""Replays of aggregates of the entity topics, over a log in memory and rows made from it."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from docs.examples.counter.counter import Counter
from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.projections.entities import EntityRow
from loomlog.schemas.codec import local_codec
from loomlog.services.cli.errors import Unreachable
from loomlog.services.cli.log import entity_replay
from loomlog.services.cli.main import app
from loomlog.services.core.families import Family
from loomlog.services.families.registry import all_families
from loomlog.services.stream.entities.families import EntityFamilies, FamilySet
from loomlog.services.stream.entities.replay import replay_aggregate
from tests.projections.counters import FAMILY, TOPIC, Counters, counter, folded, records_of, restated, with_rules

Change = Callable[[EntityRow], EntityRow]


def partition() -> Counters:
    """A counter with four events, one of a replaced owner between them, and another counter."""
    written = Counters()
    written.claim("first")
    written.raise_("hits", 1, 2, cause_id="c1")
    written.raise_("other", 7)
    written.claim("second")
    seq = written.seqs[counter("hits")]
    written.raise_("other", 8)
    written.add(counter("hits"), restated(9), tenant="acme", term=0)
    written.seqs[counter("hits")] = seq
    written.raise_("hits", 3, 4, cause_id="c2")
    return written


class Rows:
    """A reader of rows, by full id."""

    def __init__(self, rows: Mapping[str, EntityRow]) -> None:
        self.rows = dict(rows)
        self.away = False

    async def close(self) -> None: ...


def rows_of(written: Counters) -> Rows:
    return Rows(folded([records_of(written)[0]]).entities)


def replay(
    monkeypatch: pytest.MonkeyPatch,
    written: Counters,
    aggregate: str,
    *arguments: str,
    rows: Rows | None = None,
    family: Family[Any, Any, Any] = FAMILY,
    deleted_before: int = 0,
) -> Result:
    """Run the command with this log as the broker; without rows, Postgres is away."""
    topic = f"loom.{family.topics}.events"
    log = MemoryLog({topic: 1})
    log.put(topic, 0, written.outgoing())
    log.delete_before(topic, 0, deleted_before)

    async def count(options: Any, topic: str) -> int:
        return 1

    @asynccontextmanager
    async def ranges(options: Any) -> AsyncIterator[MemoryLog]:
        yield log

    async def reader(options: Any, **more: Any) -> Rows:
        if rows is None:
            raise Unreachable("Postgres does not answer.")
        return rows

    async def load(reader: Rows, ids: list[str]) -> list[EntityRow]:
        if reader.away:
            raise Transient("Postgres is away", kind="unavailable")
        return [reader.rows[name] for name in ids if name in reader.rows]

    monkeypatch.setattr(entity_replay, "count_partitions", count)
    monkeypatch.setattr(entity_replay, "open_ranges", ranges)
    monkeypatch.setattr(entity_replay, "open_reader", reader)
    monkeypatch.setattr(entity_replay, "load_entities", load)
    monkeypatch.setattr(entity_replay, "all_families", lambda: (family,))
    monkeypatch.setattr(entity_replay, "ROW_WAIT_S", 0.0)
    env = {"LOOMLOG_KAFKA": "127.0.0.1:1", "LOOMLOG_POSTGRES": "postgresql://nowhere/x"}
    return CliRunner().invoke(app, ["replay", aggregate, *arguments], env=env)


def test_an_aggregate_is_proven_and_shown_with_its_state_and_equal_to_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    written = partition()
    result = replay(monkeypatch, written, counter("hits"), rows=rows_of(written))
    assert result.exit_code == 0, result.output
    assert "counter:acme/hits  in loom.entity.events/0" in result.stdout
    assert result.stdout.count("CounterIncremented") == 4
    assert "history   4 events, sequence complete, hash chain valid" in result.stdout
    assert "stale     1 record of replaced owners, ignored" in result.stdout
    assert '"value": 4' in result.stdout
    assert "row       at seq 4, equal" in result.stdout
    assert "CounterIncremented" not in replay(monkeypatch, written, counter("hits"), "--no-timeline").stdout


def test_up_to_a_seq_the_state_is_that_of_then(monkeypatch: pytest.MonkeyPatch) -> None:
    written = partition()
    report = json.loads(replay(monkeypatch, written, counter("hits"), "--to", "2", "--json").stdout)
    assert (report["seq"], report["state"]["state"]["value"], report["compared"]) == (2, 2, False)
    assert [event["seq"] for event in report["events"]] == [1, 2]
    later = replay(monkeypatch, written, counter("hits"), "--to", "5")
    assert later.exit_code == 1
    assert later.stderr == "counter:acme/hits has 4 events; there is no seq 5 yet.\n"


def test_without_postgres_it_is_proven_from_the_log_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    result = replay(monkeypatch, partition(), counter("hits"))
    assert result.exit_code == 0
    assert "row       not compared: Postgres does not answer." in result.stdout
    rows = rows_of(partition())
    rows.away = True
    assert "not compared: Postgres is away" in replay(monkeypatch, partition(), counter("hits"), rows=rows).stdout


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda row: row._replace(state=row.state.replace('"value":4', '"value":5')), "the row has another state"),
        (lambda row: row._replace(digest=b"x" * 16), "the row says last digest 7878"),
        (lambda row: row._replace(version=9), "the row says version of the fold 9, the log says 1"),
        (lambda row: row._replace(last_offset=99), "the row says last offset 99, the log says"),
        (
            lambda row: row._replace(halted_offset=3, quarantine="torn"),
            "the row was halted at offset 3, at seq 4: torn",
        ),
    ],
)
def test_a_row_that_says_something_else_is_drift(
    monkeypatch: pytest.MonkeyPatch, change: Change, sentence: str
) -> None:
    written = partition()
    rows = rows_of(written)
    rows.rows[counter("hits")] = change(rows.rows[counter("hits")])
    result = replay(monkeypatch, written, counter("hits"), rows=rows)
    assert result.exit_code == 1
    assert sentence in result.stdout
    assert "equal" not in result.stdout


def test_a_row_that_lags_or_is_ahead_is_said_and_is_no_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    written = partition()
    rows = rows_of(written)
    row = rows.rows[counter("hits")]
    rows.rows[row.aggregate] = row._replace(seq=3)
    assert "the row is at seq 3 of 4" in replay(monkeypatch, written, row.aggregate, rows=rows).stdout
    rows.rows[row.aggregate] = row._replace(seq=5)
    result = replay(monkeypatch, written, row.aggregate, rows=rows)
    assert (result.exit_code, "continued meanwhile, to seq 5" in result.stdout) == (0, True)


CHANNEL: Family[Any, Any, Any] = replace(FAMILY, topics="channel")


def test_an_aggregate_of_the_channel_topics_is_proven_from_their_log(monkeypatch: pytest.MonkeyPatch) -> None:
    written = partition()
    result = replay(monkeypatch, written, counter("hits"), rows=rows_of(written), family=CHANNEL)
    assert result.exit_code == 0, result.output
    assert "counter:acme/hits  in loom.channel.events/0" in result.stdout
    assert "row       at seq 4, equal" in result.stdout


def test_an_aggregate_whose_first_events_are_deleted_is_not_proven_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = partition()
    for name, deleted in (("hits", 2), ("hits", len(written.records)), ("other", 4)):
        result = replay(
            monkeypatch, written, counter(name), rows=rows_of(written), family=CHANNEL, deleted_before=deleted
        )
        assert result.exit_code == 1
        assert f"The events of counter:acme/{name} before offset {deleted} of loom.channel.events/0 are deleted" in (
            result.stderr
        )
    whole = replay(monkeypatch, written, counter("other"), rows=rows_of(written), family=CHANNEL, deleted_before=2)
    assert whole.exit_code == 0, whole.output
    unknown = replay(monkeypatch, written, counter("none"), rows=rows_of(written), family=CHANNEL, deleted_before=2)
    assert "There is no aggregate" in unknown.stderr


def test_a_row_that_names_a_later_first_offset_hides_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    written = partition()
    rows = rows_of(written)
    row = rows.rows[counter("hits")]
    rows.rows[row.aggregate] = row._replace(first_offset=row.last_offset)
    report = json.loads(replay(monkeypatch, written, row.aggregate, "--json", rows=rows).stdout)
    assert (report["seq"], report["drift"]) == (4, [])


def test_a_changed_event_is_drift_at_its_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    written = partition()
    value = written.records[2]
    written.records[2] = value[:-1] + bytes([value[-1] ^ 2])
    result = replay(monkeypatch, written, counter("hits"))
    assert result.exit_code == 1
    assert "the chain is broken" in result.stdout
    assert "drift  first at seq 3" in result.stdout


def test_a_missing_event_is_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    written = partition()
    written.seqs[counter("hits")] += 1
    written.raise_("hits", 9)
    result = replay(monkeypatch, written, counter("hits"))
    assert result.exit_code == 1
    assert "seq 5 was expected, so the history has a gap or a repetition" in result.stdout


@pytest.mark.parametrize(
    ("aggregate", "sentence"),
    [
        ("counter:acme", "expected FAMILY:TENANT/NAME"),
        ("counter:acme/", "expected FAMILY:TENANT/NAME"),
        (":acme/x", "there is no family '' here"),
        ("nothing:acme/x", "there is no family 'nothing' here. LOOMLOG_FAMILIES adds to these: counter."),
        (f"counter:acme/{'x' * 513}", "1 to 512 bytes"),
    ],
)
def test_what_is_no_id_is_wrong_use_and_says_what_one_is(
    monkeypatch: pytest.MonkeyPatch, aggregate: str, sentence: str
) -> None:
    result = replay(monkeypatch, partition(), aggregate)
    assert result.exit_code == 2
    assert sentence in result.stderr


def test_an_aggregate_without_events_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    result = replay(monkeypatch, partition(), counter("missing"))
    assert result.exit_code == 4
    assert result.stderr == "There is no aggregate counter:acme/missing in loom.entity.events/0, where it would lie.\n"


def test_every_family_of_the_installation_can_be_replayed() -> None:
    known = FamilySet(all_families())
    for name in known.by_name:
        entity_replay.check_aggregate_id(f"{name}:acme/x", known)


# --- the fold ---------------------------------------------------------------------------------------------------------


def fold(written: Counters, name: str, family: Family[Any, Any, Any] = FAMILY) -> Any:
    log = MemoryLog({TOPIC: 1})
    log.put(TOPIC, 0, written.outgoing())
    families = EntityFamilies(FamilySet([family]))

    async def replayed() -> Any:
        events, _ = await entity_replay.read_events(log, 0, name, local_codec())
        return replay_aggregate(families, name, events, codec=local_codec())

    return replayed()


async def test_an_event_that_cannot_be_folded_is_drift_until_the_aggregate_is_restated() -> None:
    def evolve(state: Any, event: Any, at_ms: int) -> Any:
        if getattr(event, "value", 0) == 13:
            raise ZeroDivisionError("a bug in evolve")
        return FAMILY.rules.evolve(state, event, at_ms)

    written = Counters()
    written.claim()
    written.raise_("hits", 1, 13, 14)
    broken = await fold(written, counter("hits"), with_rules(evolve=evolve))
    assert (broken.seq, broken.state.seq, broken.state.state.value, broken.first_drift_seq) == (3, 1, 1, 2)
    assert "it cannot be folded: ZeroDivisionError: a bug in evolve" in broken.drift[0]
    written.add(counter("hits"), restated(20), tenant="acme")
    written.raise_("hits", 21)
    mended = await fold(written, counter("hits"), with_rules(evolve=evolve))
    assert (mended.drift, mended.state.seq, mended.state.state.value) == ((), 5, 21)
    assert len(mended.repaired) == 1


async def test_a_state_that_does_not_survive_its_encoding_is_drift() -> None:
    made: list[Counter] = []

    def evolve(state: Any, event: Any, at_ms: int) -> Any:
        is_same_object = any(state is one for one in made)  # something that an encoding leaves out
        made.append(Counter(value=event.value + 100 * is_same_object))
        return made[-1]

    written = Counters()
    written.claim()
    written.raise_("hits", 1, 2)
    replayed = await fold(written, counter("hits"), with_rules(evolve=evolve))
    assert "folding through the bytes of each state gives" in replayed.drift[0]
