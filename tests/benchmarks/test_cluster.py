"""The arithmetic of a cluster: what grows with the load, what cannot be known, what breaks first."""

from dataclasses import replace

import pytest

from tests.benchmarks.cluster import Assumptions, cluster, sensitivities
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


def test_a_figure_that_was_not_measured_changes_nothing() -> None:
    actual = sensitivities(replace(FOUND, kafka_ms=None), 1_000, GIVEN)
    assert "kafka_ms" not in {one.figure for one in actual}
    assert "cores" not in {name for one in actual for name in one.changes}, "without the broker's nobody knows them"


def test_streams_that_broke_are_not_counted_as_held() -> None:
    rows = [{"streams": 500, "ended_early": 0, "errors": 0}, {"streams": 5_000, "ended_early": 3, "errors": 0}]
    assert measured({"scaling-streams": {"rows": rows}}).streams == 500


def test_nothing_measured_is_nothing_known() -> None:
    assert measured({}) == Measured()
