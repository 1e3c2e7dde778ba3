"""The arithmetic of a cluster: what grows with the load, what cannot be known, what breaks first."""

from dataclasses import replace

import pytest

from tests.benchmarks.cluster import Assumptions, cluster, limits, sensitivities
from tests.benchmarks.run_costs import Measured, measured

GIVEN = Assumptions(use=0.5, replication=3, run_s=10.0, partitions_of_a_runtime=4, broker_bytes_per_s=1e6)
FOUND = Measured(
    runtime_ms=1.0,
    standby_ms=1.0,
    projector_ms=0.5,
    api_ms=1.0,
    api_reading_ms=0.1,
    kafka_ms=0.5,
    postgres_ms=0.25,
    log_bytes=9_000.0,
    wal_bytes=20_000.0,
    rows=25.0,
    table_bytes=30_000.0,
    flushes=0.5,
    partition_runs_per_s=200.0,
    streams=5_000.0,
    live_run_bytes=10_000.0,
)


def row(system: str, runs_per_s: float, **cpu: float) -> dict[str, object]:
    return {
        "system": system,
        "runs_per_s": runs_per_s,
        "cpu_ms_per_run": cpu,
        "log_bytes_per_run": 9_000.0,
        "wal_bytes_per_run": 20_000.0,
    }


def test_a_thousand_runs_a_second() -> None:
    actual = cluster(FOUND, 1_000, GIVEN)
    assert actual.runtimes == 4, "2 ms a run, standby included, at half a core each"
    assert actual.partitions == 16, "four for each runtime are more than the ten that the rate needs"
    assert actual.live_runs == 10_000
    assert actual.runtime_bytes == 25e6
    assert actual.written_bytes_per_s == 27e6
    assert actual.brokers == 27, "a megabyte a second each"
    assert actual.read_bytes_per_s == 9e6 * (3 + 3), "standbys, projectors, auditor and three apis"
    assert actual.log_bytes_per_day == 27e6 * 86_400
    assert actual.rows_per_s == 25_000
    assert actual.apis_by_streams == 2
    assert actual.apis_by_cpu == 3, "1 core of answers in what reading leaves of half a core each"
    assert not actual.reads_too_much


def test_where_reading_takes_all_of_an_api_process_no_number_of_them_is_enough() -> None:
    actual = cluster(FOUND, 100_000, GIVEN)
    assert actual.reads_too_much
    assert actual.apis_by_cpu is None
    assert actual.apis_reading_their_own == 220


def test_a_slow_partition_asks_for_more_of_them() -> None:
    assert cluster(replace(FOUND, partition_runs_per_s=20.0), 1_000, GIVEN).partitions == 100


@pytest.mark.parametrize(
    ("missing", "unknown"),
    [
        ("runtime_ms", "runtimes"),
        ("log_bytes", "brokers"),
        ("wal_bytes", "databases"),
        ("api_reading_ms", "apis_by_cpu"),
        ("streams", "apis_by_streams"),
        ("partition_runs_per_s", "partitions"),
    ],
)
def test_what_was_not_measured_is_not_invented(missing: str, unknown: str) -> None:
    actual = cluster(replace(FOUND, **{missing: None}), 1_000, GIVEN)
    assert getattr(actual, unknown) is None


def test_what_is_full_first_comes_first() -> None:
    first, second, third = limits(FOUND, GIVEN)
    assert first.name.startswith("an api process")
    assert [first.runs_per_s, second.runs_per_s] == [5_000, 5_000]
    assert third.runs_per_s == 32_000
    slow_log = replace(FOUND, wal_bytes=200_000.0)
    assert limits(slow_log, GIVEN)[0].name.startswith("one Postgres, by the write-ahead log")


def test_half_of_a_cost_is_told_with_what_it_changes() -> None:
    actual = {one.figure: one.changes for one in sensitivities(FOUND, 1_000, GIVEN)}
    assert actual["log_bytes"] == {"brokers": (27, 14)}
    assert actual["runtime_ms"]["runtimes"] == (4, 3)
    was, now = actual["runtime_ms"]["cores"]
    assert was - now == pytest.approx(1.0), "half a millisecond of a thousand runs, at half a core each"


def test_a_process_that_carries_twice_as_much_is_told() -> None:
    actual = {one.figure: one.changes for one in sensitivities(FOUND, 100_000, GIVEN)}
    assert actual["streams"]["apis_by_streams"] == (200, 100)


def test_what_saves_most_comes_first() -> None:
    saved = [one.saved for one in sensitivities(FOUND, 100_000, GIVEN)]
    assert saved == sorted(saved, reverse=True)
    assert 0 < saved[-1] < 1


def test_a_figure_that_was_not_measured_changes_nothing() -> None:
    actual = sensitivities(replace(FOUND, kafka_ms=None), 1_000, GIVEN)
    assert "kafka_ms" not in {one.figure for one in actual}
    assert "cores" not in {name for one in actual for name in one.changes}, "without the broker's nobody knows them"


def test_costs_of_a_run_are_those_of_the_row_with_most_runs() -> None:
    rows = [row("http", 100, runtime=3.0, api=3.0), row("http", 300, runtime=1.5, api=1.4), row("topic", 400, api=0.2)]
    actual = measured({"peers": {"rows": rows}})
    assert actual.runtime_ms == 1.5
    assert actual.api_ms == pytest.approx(1.2), "what the api takes for its clients, reading left out"
    assert actual.api_reading_ms == 0.2
    assert actual.partition_runs_per_s is None


def test_a_standby_costs_what_two_runtimes_use_beyond_one() -> None:
    rows = [
        {"runtimes": 1, "partitions": 1, "runs_per_s": 100, "cpu_ms_per_run": {"runtime": 9.0}, "flushes_per_run": 1.0},
        {"runtimes": 1, "partitions": 8, "runs_per_s": 300, "cpu_ms_per_run": {"runtime": 2.0}, "flushes_per_run": 0.3},
        {"runtimes": 2, "partitions": 8, "runs_per_s": 250, "cpu_ms_per_run": {"runtime": 1.5, "runtime-2": 1.2}},
    ]
    actual = measured({"scaling-partitions": {"rows": rows}})
    assert actual.standby_ms == pytest.approx(0.7)
    assert actual.partition_runs_per_s == 100
    assert actual.flushes == 0.3


def test_streams_that_broke_are_not_counted_as_held() -> None:
    rows = [{"streams": 500, "ended_early": 0, "errors": 0}, {"streams": 5_000, "ended_early": 3, "errors": 0}]
    assert measured({"scaling-streams": {"rows": rows}}).streams == 500


def test_nothing_measured_is_nothing_known() -> None:
    assert measured({}) == Measured()
