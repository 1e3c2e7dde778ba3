import copy
from typing import Any

import pytest

from tests.benchmarks.peers.environments import HERE, pinned, pinned_server
from tests.benchmarks.peers.goals import goals, losses, ratio
from tests.benchmarks.peers.main import SYSTEMS, chosen, summary, turned
from tests.benchmarks.peers.page import page
from tests.benchmarks.peers.systems import IDLE


def row(system: str, in_flight: int, runs_per_s: float, p50_ms: float, **more: Any) -> dict[str, Any]:
    """What three repetitions, a tenth apart, become."""
    taken = [
        {
            "in_flight": in_flight, "seconds": 8.0, "runs": int(rate * 8), "runs_per_s": rate, "errors": 0,
            "p50_ms": p50_ms, "p99_ms": p50_ms * 2, "client_cpu_s": 1.0, "cpu_ms_per_run": {"client": 1.0, IDLE: 0.25},
            **more,
        }
        for rate in (runs_per_s * 0.9, runs_per_s, runs_per_s * 1.1)
    ]  # fmt: skip
    return {"system": system, "in_flight": in_flight, **summary(taken), "taken": taken}


def system(name: str, kind: str) -> dict[str, str]:
    return {
        "name": name, "title": name.upper(), "kind": kind, "runs_on": "cores", "durable": "it", "not_durable": "that",
    }  # fmt: skip


FIGURES: dict[str, Any] = {
    "at": "2026-01-02T03:04:05+00:00",
    "commit": "abc",
    "machine": {
        "cores": 2, "memory_gib": 23.5, "system": "Linux 6", "python": "3.11.7",
        "fdatasync_ms": {"p50": 0.1, "p99": 0.2},
    },
    "seconds": 8.0,
    "warm_up_s": 4.0,
    "repetitions": 3,
    "payload_bytes": 5_000,
    "kafka": {"version": "4.1.1"},
    "postgres": {"server_version": "18.4", "fsync": "on"},
    "loomlog": {"aiokafka": "0.14"},
    "systems": [
        system("topic", "ours"), system("http", "ours"), system("kafka-floor", "floor"), system("dbos", "peer"),
    ],
    "left_out": [],
    "rows": [
        row("topic", 16, 900.0, 17.0, log_bytes_per_run=7_000.0),
        row("http", 16, 600.0, 26.0, log_bytes_per_run=7_500.0),
        row("kafka-floor", 16, 1_800.0, 8.0),
        row("dbos", 16, 50.0, 300.0, wal_bytes_per_run=14_000.0, versions={"dbos": "3.4.0"}),
    ],
}  # fmt: skip


def changed(**more: Any) -> dict[str, Any]:
    return copy.deepcopy(FIGURES) | more


def met() -> dict[str, bool | None]:
    return {f"{one.text}: {one.goal}": one.met for one in goals(FIGURES)}


def test_a_short_run_says_that_it_is_one():
    assert "**A short run" not in page(FIGURES, None)
    assert "**A short run" in page(changed(repetitions=1), None)
    assert "**A short run" in page(changed(seconds=2.0), None)


def test_without_figures_the_page_says_that_nothing_was_measured():
    text = page(None, None)
    assert "Not measured." in text
    assert "No baseline was measured." in text


def test_errors_stand_beside_the_figure_they_spoil():
    rows = [row("topic", 16, 900.0, 17.0, errors=7, log_bytes_per_run=7_000.0)]
    assert "(810-990, 7 errors)" in page(changed(rows=rows), None)


def test_a_peer_that_ended_nothing_divides_nothing_and_says_so():
    rows = [row("topic", 1, 100.0, 9.0), row("dbos", 1, 0.0, 0.0)]
    figures = changed(rows=rows)
    assert ratio(figures, "topic", "dbos", 1) is None
    assert losses(figures) == []
    assert "| DBOS | no run ended |" in page(figures, None)


def test_goals_are_met_missed_or_not_measured():
    actual = met()
    assert actual["topic, 16 in flight: at least 800 runs/s"] is True
    assert actual["topic, 16 in flight: p99 under 50 ms"] is True
    assert actual["topic, 64 in flight: at least 2,000 runs/s"] is None
    assert actual["topic, against the best Python peer, where that is least: at least 10 times the runs/s"] is True
    assert actual["http, against Restate, where that is least: at least 4 times the runs/s"] is None
    assert actual["log of a run with 5,000 bytes of payload: at most 8,192 bytes"] is True


def test_the_best_python_peer_is_the_one_that_counts():
    rows = [*FIGURES["rows"], row("langgraph", 16, 100.0, 150.0)]
    (goal,) = (one for one in goals(changed(rows=rows)) if one.text.startswith("topic, against the best Python"))
    assert goal.measured == "9.0 (16 in flight)"
    assert goal.met is False


def test_a_missed_goal_is_shouted():
    rows = [row("topic", 16, 100.0, 170.0, log_bytes_per_run=9_000.0)]
    text = page(changed(rows=rows), None)
    assert "| topic, 16 in flight | at least 800 runs/s | 100 | **missed** |" in text
    assert "| at most 8,192 bytes | 9,000 | **missed** |" in text


def test_who_was_left_out_is_told_with_the_reason():
    left_out = [{"title": "Restate", "reason": "not installed: npm is\nnot there"}]
    assert "* Restate: not installed: npm is not there\n" in page(changed(left_out=left_out), None)


def test_each_repetition_begins_with_another_system():
    four = SYSTEMS[:4]
    begun = [turned(four, repetition)[0].name for repetition in range(5)]
    assert begun == [*(system.name for system in four), four[0].name]
    assert sorted(system.name for system in turned(four, 3)) == sorted(system.name for system in four)


def test_a_system_that_does_not_exist_is_refused_by_name():
    with pytest.raises(SystemExit, match="temporal"):
        chosen(["topic", "temporal"])


def test_pins_are_exact_versions_of_what_is_told():
    versions = {**pinned("restate", "restate-sdk", "hypercorn"), "server": pinned_server()}
    assert all(version[0].isdigit() for version in versions.values())


@pytest.mark.parametrize("peer", ["dbos", "langgraph", "restate"])
def test_requirements_name_no_index_and_have_hashes(peer):
    lines = (HERE / peer / "requirements.txt").read_text().splitlines()
    assert not [line for line in lines if "://" in line or line.startswith("-")]
    assert sum("==" in line for line in lines) <= sum("--hash=" in line for line in lines)
