"""The report, as JSON and as metrics."""

import json

from prometheus_client.parser import text_string_to_metric_families

from loomlog.schemas.generated.stream_records import ModelTally, ModelTimes, ToolTally
from loomlog.services.insights.minute_windows import EMPTY, MINUTE_MS, MinuteTotals, minute_of, minute_start_ms
from loomlog.services.insights.report import ReportData, render_json, render_metrics
from tests.services.insights.given import NOW_MS, tally

RUNNING = minute_start_ms(NOW_MS)


def view(cells: dict[tuple[int, int], MinuteTotals], **changes: object) -> ReportData:
    fields: dict[str, object] = {
        "now_ms": NOW_MS,
        "history_minutes": 15,
        "cells": cells,
        "records": {"counted": 3, "stale": 1},
        "parked": {"undecodable": 2},
        "lag_records": 4,
        "is_whole": True,
    }
    return ReportData(**(fields | changes))  # type: ignore[arg-type]  # a wrong field fails in the test at once


def runs(count: int, **changes: object) -> MinuteTotals:
    total = EMPTY
    for _ in range(count):
        total = total.plus(minute_of(tally(**changes)))
    return total


def samples(data: ReportData) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(render_metrics(data).decode())
        for sample in family.samples
    }


def test_a_rate_divides_by_the_time_the_window_covers() -> None:
    window = render_json(view({(0, RUNNING): runs(3)}))["windows"]["1m"]
    assert window["covered_s"] == 90.0
    assert window["runs_per_minute"] == 2.0
    assert window["input_tokens_per_minute"] == 200.0
    assert window["cost_micros_per_minute"] == {"USD": 600.0}


def test_a_window_ends_where_it_should() -> None:
    cells = {(0, RUNNING - n * MINUTE_MS): runs(1) for n in range(16)}
    windows = render_json(view(cells))["windows"]
    assert {name: window["runs"] for name, window in windows.items()} == {"1m": 2, "5m": 6, "15m": 16}


def test_no_window_is_longer_than_the_history() -> None:
    assert list(render_json(view({}, history_minutes=6))["windows"]) == ["1m", "5m"]


def test_rows_have_their_names_and_the_busiest_is_first() -> None:
    busy = runs(3, agent="busy", status="failed", tools=(ToolTally(name="Bash", calls=4, errors=1),))
    window = render_json(view({(0, RUNNING): runs(1), (1, RUNNING): busy}))["windows"]["5m"]
    assert window["agents"] == [
        {"tenant": "acme", "agent": "busy", "runs": 3, "errors": 3, "error_ratio": 1.0},
        {"tenant": "acme", "agent": "writer", "runs": 1, "errors": 0, "error_ratio": 0.0},
    ]
    assert window["tools"] == [{"tool": "Bash", "calls": 12, "errors": 3, "error_ratio": 0.25}]
    assert window["models"] == [
        {
            "provider": "mock",
            "model": "m1",
            "calls": 8,
            "errors": 0,
            "error_ratio": 0.0,
            "timed_calls": 0,
            "duration_ms": {"p50": None, "p95": None},
        }
    ]
    assert window["partitions"] == {"0": 1, "1": 3}
    assert window["error_ratio"] == 0.75


def test_the_minutes_come_one_by_one_over_all_partitions() -> None:
    cells = {(0, RUNNING): runs(1), (1, RUNNING): runs(2, status="failed"), (0, RUNNING - MINUTE_MS): runs(1)}
    assert render_json(view(cells))["minutes"] == [
        {
            "start_ms": RUNNING - MINUTE_MS,
            "runs": 1,
            "completed": 1,
            "failed": 0,
            "cancelled": 0,
            "tokens": 120,
            "input_tokens": 100,
            "output_tokens": 20,
            "cost_micros": {"USD": 300},
            "duration_ms": {"p50": 1750.0, "p95": 1975.0},
            "models": [],
            "model_calls": 2,
            "model_errors": 0,
            "tool_calls": 0,
            "tool_errors": 0,
        },
        {
            "start_ms": RUNNING,
            "runs": 3,
            "completed": 1,
            "failed": 2,
            "cancelled": 0,
            "tokens": 360,
            "input_tokens": 300,
            "output_tokens": 60,
            "cost_micros": {"USD": 900},
            "duration_ms": {"p50": 1750.0, "p95": 1975.0},
            "models": [],
            "model_calls": 6,
            "model_errors": 0,
            "tool_calls": 0,
            "tool_errors": 0,
        },
    ]


def test_a_minute_has_the_errors_of_models_and_tools() -> None:
    erring = runs(
        2,
        models=(ModelTally(provider="mock", model="m1", calls=3, errors=1),),
        tools=(ToolTally(name="Bash", calls=4, errors=2), ToolTally(name="Read", calls=1, errors=0)),
    )
    (minute,) = render_json(view({(0, RUNNING): erring}))["minutes"]
    assert (minute["model_calls"], minute["model_errors"]) == (6, 2)
    assert (minute["tool_calls"], minute["tool_errors"]) == (10, 4)


def test_latencies_are_by_model_also_of_calls_whose_runs_go_on() -> None:
    timed = runs(
        2,
        model_times=(
            ModelTimes(provider="mock", model="m1", durations_ms=(400, 900)),
            ModelTimes(provider="mock", model="m2", durations_ms=(60_000,)),
        ),
    )
    report = render_json(view({(0, RUNNING): timed}))
    rows = {row["model"]: row for row in report["windows"]["5m"]["models"]}
    assert (rows["m1"]["calls"], rows["m1"]["timed_calls"]) == (4, 4)
    assert rows["m1"]["duration_ms"] == {"p50": 500.0, "p95": 970.0}
    assert (rows["m2"]["calls"], rows["m2"]["timed_calls"], rows["m2"]["duration_ms"]["p50"]) == (0, 2, 60_000.0)
    (minute,) = report["minutes"]
    assert [(row["model"], row["timed_calls"]) for row in minute["models"]] == [("m1", 4), ("m2", 2)]
    assert minute["models"][0]["duration_ms"] == rows["m1"]["duration_ms"]


def test_a_minute_has_the_busiest_models_only() -> None:
    times = tuple(
        ModelTimes(provider="mock", model=f"m{number}", durations_ms=(10,) * (number + 1)) for number in range(20)
    )
    (minute,) = render_json(view({(0, RUNNING): runs(1, model_times=times)}))["minutes"]
    assert [row["timed_calls"] for row in minute["models"]] == [20, 19, 18, 17, 16, 15, 14, 13]


def test_an_empty_report_is_a_report() -> None:
    empty = render_json(view({}))
    assert json.loads(json.dumps(empty)) == empty
    assert empty["windows"]["1m"]["duration_ms"] == {"p50": None, "p95": None}
    assert samples(view({}))["loomlog_insights_run_error_ratio", (("window", "1m"),)] == 0.0


def test_metrics_and_json_have_equal_values() -> None:
    data = view(
        {
            (0, RUNNING): runs(2),
            (1, RUNNING): runs(
                1, status="failed", models=(ModelTally(provider="mock", model="m1", calls=3, errors=1),)
            ),
        }
    )
    metrics, window = samples(data), render_json(data)["windows"]["5m"]
    label = ("window", "5m")
    assert metrics["loomlog_insights_runs_per_minute", (("status", "failed"), label)] == 1 * 60 / window["covered_s"]
    assert (
        metrics["loomlog_insights_run_duration_seconds", (("quantile", "0.95"), label)] * 1000
        == (window["duration_ms"]["p95"])
    )
    assert metrics["loomlog_insights_agent_error_ratio", (("agent", "writer"), ("tenant", "acme"))] == 1 / 3
    assert metrics["loomlog_insights_model_calls", (("model", "m1"), ("provider", "mock"))] == 7
    assert metrics["loomlog_insights_records_total", (("outcome", "stale"),)] == 1
    assert metrics["loomlog_insights_parked_total", (("kind", "undecodable"),)] == 2
    assert metrics["loomlog_insights_lag_records", ()] == 4
    assert metrics["loomlog_insights_is_whole", ()] == 1


def test_every_metric_has_our_prefix_and_a_name_with_quotes_is_one_label() -> None:
    agent = 'a"b\\c\nd'
    metrics = samples(view({(0, RUNNING): runs(1, agent=agent)}))
    assert all(name.startswith("loomlog_insights_") for name, _ in metrics)
    assert metrics["loomlog_insights_agent_runs", (("agent", agent), ("tenant", "acme"))] == 1
