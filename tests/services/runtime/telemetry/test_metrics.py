import asyncio

from loomlog.connectors.protocols import Reply
from loomlog.schemas.generated.run_commands import CancelRun
from loomlog.schemas.generated.run_events import ModelReplied, RunCancelled, RunCompleted, RunRefused
from loomlog.schemas.generated.values import CommandEnvelope, ToolCall, Usage
from loomlog.services.runtime.telemetry.metrics import MAX_LABEL_SETS, RunMetrics
from loomlog.services.runtime.telemetry.tracing import NO_TRACING, read_traceparent
from tests.services.runtime.fakes import SECRET, TURNS
from tests.services.runtime.small_runtime import Stage
from tests.waiting import until

USAGE = Usage(input_tokens=1, output_tokens=2)


async def test_a_run_is_counted_when_its_events_are_in_the_log() -> None:
    stage, metrics = Stage(), RunMetrics()
    async with stage.owner("a", metrics.instrument(NO_TRACING)):
        stage.start()
        await stage.until(lambda: metrics.runs_ended.total() == 1)
    assert stage.has(RunCompleted)
    assert metrics.runs_started == 1
    assert metrics.runs_ended == {("completed",): 1}
    assert metrics.tokens == {("input",): 30, ("output",): 12, ("cache_creation",): 2, ("cache_read",): 3}
    assert metrics.model_calls == {("mock", "m-1", "ok"): 2}
    assert metrics.model_seconds["mock", "m-1"].total == 2
    assert metrics.tool_calls == {("Echo", "ok"): 1}
    assert metrics.tool_seconds["Echo",].total == 1


async def test_a_failed_call_counts_under_its_kind_and_the_run_as_failed() -> None:
    stage, metrics = Stage(), RunMetrics()
    stage.model.failures = 1
    async with stage.owner("a", metrics.instrument(NO_TRACING)):
        stage.start()
        await stage.until(lambda: metrics.runs_ended.total() == 1)
    assert metrics.model_calls == {("mock", "m-1", "unavailable"): 1}
    assert metrics.runs_ended == {("failed",): 1}


async def test_a_refused_run_ended_without_having_started() -> None:
    stage, metrics = Stage(), RunMetrics()
    async with stage.owner("a", metrics.instrument(NO_TRACING)):
        stage.start(agent="nobody")
        await stage.until(lambda: metrics.runs_ended.total() == 1)
    assert stage.has(RunRefused)
    assert (metrics.runs_started, metrics.runs_ended) == (0, {("refused",): 1})


async def test_a_cancelled_run_counts_its_call_as_cancelled() -> None:
    stage, metrics = Stage(), RunMetrics()
    stage.model.held = True
    async with stage.owner("a", metrics.instrument(NO_TRACING)):
        stage.start()
        await stage.until(stage.model.holding.is_set)
        envelope = CommandEnvelope(command_id="c-2", tenant="acme", issued_at_ms=1)
        stage.send(CancelRun(envelope=envelope, run_id="r_one", reason=SECRET))
        await stage.until(lambda: metrics.model_calls["mock", "m-1", "cancelled"] == 1)
    assert stage.has(RunCancelled)
    assert metrics.runs_ended == {("cancelled",): 1}


async def test_a_tool_the_agent_does_not_have_is_not_a_label() -> None:
    stage, metrics = Stage(), RunMetrics()
    asked = Reply(
        text="", tool_calls=(ToolCall(id="1", name=SECRET, input="{}"),), stop_reason="tool_use", usage=USAGE, model="m"
    )
    stage.model.turns = (asked, TURNS[1])
    async with stage.owner("a", metrics.instrument(NO_TRACING)):
        stage.start()
        await stage.until(lambda: metrics.runs_ended.total() == 1)
    assert metrics.tool_calls == {("unknown", "error"): 1}


async def test_what_a_new_owner_folds_is_not_counted_again() -> None:
    stage, first, second = Stage(), RunMetrics(), RunMetrics()
    stage.model.held = True
    async with stage.owner("a", first.instrument(NO_TRACING)):
        stage.start()
        await stage.until(stage.model.holding.is_set)
    stage.model.held = False
    async with stage.owner("b", second.instrument(NO_TRACING)):
        await stage.until(lambda: second.runs_ended.total() == 1)
    assert (first.runs_started, second.runs_started) == (1, 0)
    assert first.tokens["input",] + second.tokens["input",] == 30


def test_the_number_of_label_sets_is_bounded() -> None:
    metrics = RunMetrics()
    for number in range(MAX_LABEL_SETS + 10):
        metrics.record_model_call("provider", f"model-{number}", "ok", 0.1)
    assert len(metrics.model_seconds) == MAX_LABEL_SETS + 1
    assert metrics.model_calls["other", "other", "ok"] == 10
    metrics.record_model_call("provider", "model-1", "ok", 0.1)
    assert metrics.model_calls["provider", "model-1", "ok"] == 2


def test_cost_counts_by_currency_and_an_unpriced_turn_not_at_all() -> None:
    metrics = RunMetrics()
    turn = {"turn": 1, "attempt": 1, "stop_reason": "end_turn", "provider": "p", "model": "m", "duration_ms": 1}
    priced = ModelReplied(**turn, usage=USAGE, cost_micros=7, currency="EUR")
    metrics.record_events([priced, priced, ModelReplied(**turn, usage=USAGE)])
    assert metrics.cost_micros == {("EUR",): 14}
    assert metrics.tokens["output",] == 6


async def test_a_busy_loop_shows_as_lag() -> None:
    metrics = RunMetrics()
    watching = asyncio.create_task(metrics.measure_loop_lag())
    async with asyncio.timeout(30):
        await until(lambda: metrics.loop_lag_s.total >= 1)
    watching.cancel()
    await asyncio.wait([watching])
    assert metrics.loop_lag_s.sum >= 0


def test_a_trace_context_is_taken_from_the_headers_and_only_when_it_is_one() -> None:
    good = "00-0123456789abcdef0123456789abcdef-00000000000000aa-01"
    assert read_traceparent((("ce_id", b"1"), ("traceparent", good.encode()))) == good
    assert read_traceparent(()) == ""
    assert read_traceparent((("traceparent", good.upper().encode()),)) == ""
