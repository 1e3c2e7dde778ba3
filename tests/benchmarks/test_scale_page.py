"""docs/SCALE.md: what was measured is told, what was not says so, and the arithmetic is that of the figures."""

import json
from copy import deepcopy
from typing import Any

import pytest

from tests.benchmarks.cluster_text import UNKNOWN, size
from tests.benchmarks.curve_texts import SHOWN
from tests.benchmarks.plots import PICTURES
from tests.benchmarks.scale_page import NAMES, page, read

MACHINE = {"cores": 2, "system": "Linux 6", "python": "3.11.7", "load": 0.1, "python_ms": 15.0}
KILL = {"claimed_s": 3.1, "serving_s": 0.010, "recovered_s": 0.030}


def spread(p50: float, p99: float) -> dict[str, float]:
    return {"p50": p50, "p99": p99}


def measured(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"at": "2026-01-01T00:00:00+00:00", "commit": "abc", "machine": MACHINE, "rows": rows}


def load(runtimes: int, partitions: int, runs_per_s: float, **cpu: float) -> dict[str, Any]:
    actual = {"runtimes": runtimes, "partitions": partitions, "runs_per_s": runs_per_s, "p50_ms": 20.0, "p99_ms": 40.0}
    return {**actual, "cpu_ms_per_run": cpu, **({"flushes_per_run": 0.4} if runtimes == 1 else {})}


def peer(system: str, api: float) -> dict[str, Any]:
    cpu = {"runtime": 1.4, "projector": 0.65, "api": api, "kafka": 0.6, "postgres": 0.3}
    return {
        "system": system,
        "runs_per_s": 400.0,
        "cpu_ms_per_run": cpu,
        "log_bytes_per_run": 9_000.0,
        "wal_bytes_per_run": 19_000.0,
    }


def stream(streams: int, ended_early: int) -> dict[str, Any]:
    return {
        "streams": streams,
        "inputs_per_s": 50.0,
        "event_to_client_ms": spread(9.0, 31.5),
        "frames": 4_000,
        "errors": 0,
        "ended_early": ended_early,
        "api_uss_bytes": 1e8 + 2e4 * streams,
    }


def waiting(runs: int) -> dict[str, Any]:
    names = ("runtime", "api", "projector")
    return {
        "runs": runs,
        "uss_bytes": dict.fromkeys(names, 1e8 + 1e4 * runs),
        "idle_cpu_percent": dict.fromkeys(names, 1.0),
    }


def flight(in_flight: int, runs_per_s: float) -> dict[str, Any]:
    times = {"first_text_ms": spread(10, 20), "end_ms": spread(25, 50)}
    return {"in_flight": in_flight, "runs_per_s": runs_per_s, "errors": 0, **times}


FIGURES: dict[str, Any] = {
    "scaling-partitions": measured(
        [
            load(1, 1, 300, runtime=1.5, kafka=0.5),
            load(1, 8, 400, runtime=1.4, kafka=0.6),
            load(2, 8, 350, runtime=1.1, **{"runtime-2": 0.9}),
        ]
    ),
    "scaling-in_flight": measured([flight(1, 20), flight(64, 310), flight(256, 320), flight(1_000, 322)]),
    "scaling-streams": measured([stream(500, 0), stream(5_000, 0)]),
    "scaling-parked": measured([waiting(100), waiting(10_000)]),
    "scaling-live": measured([{"live": 10, "kills": [KILL]}, {"live": 1_000, "kills": [KILL, KILL]}]),
    "scaling-history": measured([{"events": n, "live": 100, "kills": [KILL]} for n in (10_000, 500_000)]),
    "scaling-replay": measured(
        [
            {
                "events": 12_000,
                **{f"{way}_events_per_s": 20_000.0 for way in ("rebuild", "lost", "fold", "proof")},
                "rows_written": {"steps": 5_000, "runs": 1_000},
                "table_bytes": {"steps": 6_000_000, "runs": 2_000_000},
            }
        ]
    ),
    "peers": {"at": "2026-01-01T00:00:00+00:00", "rows": [peer("http", 1.4), peer("topic", 0.2)]},
    "profile": {
        "at": "2026-01-01T00:00:00+00:00",
        "machine": MACHINE,
        "in_flight": 16,
        "runs_per_s": 250.0,
        "rate": 200,
        "seconds": 20,
        "processes": {
            "runtime": {"busy_percent": 61.0, "areas": {"folding": 12.5}, "functions": {"evolve (a.py)": 3.0}}
        },
    },
}


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in FIGURES.items() if name not in names}


def test_every_curve_has_a_picture_and_words() -> None:
    assert set(SHOWN) == set(PICTURES)
    for name in PICTURES:
        assert f"![{SHOWN[name][0]}](figures/scaling-{name}.svg)" in page(FIGURES)


def test_a_page_of_nothing_says_of_every_curve_how_to_measure_it() -> None:
    text = page({})
    assert text.count("Not measured: `python -m tests.benchmarks.scaling --curves") == len(PICTURES)
    assert "Not measured: `make flame`." in text
    assert "](figures/" not in text, "no picture that is not there"
    assert f"| brokers | {UNKNOWN} | {UNKNOWN} |" in text


def test_a_thousand_runs_a_second_are_told_beside_a_hundred_thousand() -> None:
    text = page(FIGURES)
    assert "| live runs and open streams | 30,000 | 3,000,000 |" in text
    assert "| runtimes (owners and standbys) | 4 | 334 |" in text, "1.4 ms and 0.6 of the standby, at 0.6 of a core"
    assert "| bytes into the log a second | 9 MB | 900 MB |" in text
    assert "| api processes, by open streams | 6 | 600 |" in text


def test_an_api_that_reads_the_whole_log_breaks_first() -> None:
    text = page(FIGURES)
    assert "1. **an api process that reads the whole log**, at 3,000 runs/s" in text
    assert "| api processes, by CPU, each reading the whole log | 3 | **no number is enough** |" in text
    assert "* 1,000 runs/s: none of them is reached;" in text
    assert "an api process that reads the whole log, 33.3 times over" in text


def test_what_breaks_first_follows_the_figures() -> None:
    figures = deepcopy(FIGURES)
    for row in figures["peers"]["rows"]:
        row["wal_bytes_per_run"] = 500_000.0
    assert "1. **one Postgres, by the write-ahead log of its projections**, at 200 runs/s" in page(figures)


def test_a_missing_file_makes_unknown_what_needs_it_and_nothing_else() -> None:
    text = page(without("scaling-streams"))
    assert f"| api processes, by open streams | {UNKNOWN} | {UNKNOWN} |" in text
    assert "| runtimes (owners and standbys) | 4 | 334 |" in text


def test_where_the_curve_bends_is_told() -> None:
    assert "nine tenths of it are there at 64" in page(FIGURES)


def test_streams_that_ended_early_are_told() -> None:
    figures = {**FIGURES, "scaling-streams": measured([stream(500, 0), stream(5_000, 7)])}
    assert "7 streams ended early." in page(figures)


def test_areas_and_flame_graphs_of_a_profile_are_told() -> None:
    text = page(FIGURES)
    assert "![flame graph of the runtime](figures/flame-runtime.svg)" in text
    assert "| folding | 12.5 % |" in text


@pytest.mark.parametrize(
    ("value", "told"), [(None, UNKNOWN), (12.0, "12 bytes"), (9e6, "9 MB"), (2.33e12, "2.33 TB"), (2.5e15, "2.5 PB")]
)
def test_sizes_have_units(value: float | None, told: str) -> None:
    assert size(value) == told


def test_files_that_are_not_there_are_not_read(tmp_path: Any) -> None:
    (tmp_path / f"{NAMES[0]}.json").write_text(json.dumps({"rows": []}))
    assert set(read(tmp_path)) == {NAMES[0]}
