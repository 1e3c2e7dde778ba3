import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from loomlog.connectors.errors import Transient
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import local_codec
from loomlog.services.core.admission import AdmissionLimits, Slot
from loomlog.services.core.shares import Holder
from loomlog.services.families.opening import OutcomeCounts
from loomlog.services.runtime.admission.queue import AdmissionQueue
from loomlog.services.runtime.models.provider_queues import ProviderQueue, ProviderQueueLimits
from loomlog.services.runtime.run.run_end_actions import RunEndActions
from loomlog.services.runtime.telemetry.exposition import build_exposition
from loomlog.services.runtime.telemetry.metrics import RunMetrics
from loomlog.services.runtime.telemetry.tracing import NO_TRACING
from tests.services.runtime.small_runtime import TOPICS, Stage
from tests.services.stream.entities.world import EntityWorld, Process

WANTED = {
    "loomlog_runs_started_total",
    "loomlog_runs_ended_total",
    "loomlog_model_calls_total",
    "loomlog_model_call_seconds_bucket",
    "loomlog_tool_calls_total",
    "loomlog_tool_call_seconds_bucket",
    "loomlog_tokens_total",
    "loomlog_flushes_total",
    "loomlog_flush_records_bucket",
    "loomlog_flush_seconds_bucket",
    "loomlog_claims_total",
    "loomlog_take_over_seconds_bucket",
    "loomlog_fenced_total",
    "loomlog_unknown_outcomes_total",
    "loomlog_stale_records_total",
    "loomlog_commands_total",
    "loomlog_dead_letters_total",
    "loomlog_checkpoint_failures_total",
    "loomlog_partitions_owned",
    "loomlog_partitions_warm",
    "loomlog_live_runs",
    "loomlog_resting_runs",
    "loomlog_quarantined_runs",
    "loomlog_calls_under_way",
    "loomlog_event_loop_lag_seconds_bucket",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
}

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def samples(page: bytes) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def value(found: Samples, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


async def test_a_scrape_tells_what_the_process_did_and_holds() -> None:
    stage, metrics = Stage(), RunMetrics()
    async with stage.owner("a", metrics.instrument(NO_TRACING)) as runtime:
        page = build_exposition(metrics, runtime.host, runtime.calls, runtime.dead_letters, ingress_lag=lambda: 3)
        stage.start()
        await stage.until(lambda: metrics.runs_ended.total() == 1)
        stage.model.held = True
        stage.start(run_id="r_two")
        await stage.until(stage.model.holding.is_set)
        stage.log.put(TOPICS.commands, 0, [ProducerRecord(key=b"x", value=b"not a command")])
        await stage.until(lambda: runtime.dead_letters.parked == 1)
        actual = samples(page())
    names = {name for name, _ in actual}
    assert names >= WANTED, WANTED - names
    assert value(actual, "loomlog_runs_started_total") == 2
    assert value(actual, "loomlog_runs_ended_total", status="completed") == 1
    assert value(actual, "loomlog_model_calls_total", provider="mock", model="m-1", outcome="ok") == 3
    assert value(actual, "loomlog_tool_calls_total", tool="Echo", outcome="ok") == 2
    assert value(actual, "loomlog_tokens_total", kind="input") == 40
    assert value(actual, "loomlog_claims_total", family="run", reason="assigned") == 1
    assert value(actual, "loomlog_commands_total", family="run") == 3
    assert value(actual, "loomlog_dead_letters_total") == 1
    assert value(actual, "loomlog_partitions_owned") == 1
    assert value(actual, "loomlog_live_runs") == 1
    assert value(actual, "loomlog_ingress_lag_records") == 3
    assert value(actual, "loomlog_resting_runs") == 0
    assert value(actual, "loomlog_quarantined_runs") == 0
    assert value(actual, "loomlog_calls_under_way") == 1
    assert value(actual, "loomlog_take_over_seconds_count", family="run") == 1
    flushes = value(actual, "loomlog_flushes_total")
    assert flushes == value(actual, "loomlog_flush_seconds_count") == value(actual, "loomlog_flush_records_count") > 0
    assert value(actual, "loomlog_flush_records_sum") == 14


async def test_buckets_count_everything_below_their_bound() -> None:
    stage, metrics = Stage(), RunMetrics()
    for seconds in (0.01, 0.2, 7.0, 1000.0):
        metrics.record_tool_call("Echo", "ok", seconds)
    async with stage.owner("a") as runtime:
        actual = samples(build_exposition(metrics, runtime.host, runtime.calls, runtime.dead_letters)())
    name = "loomlog_tool_call_seconds_bucket"
    by_bound = {dict(labels)["le"]: count for (found_name, labels), count in actual.items() if found_name == name}
    assert by_bound["0.005"] == 0
    assert by_bound["0.025"] == 1
    assert by_bound["0.25"] == 2
    assert by_bound["10.0"] == 3
    assert by_bound["+Inf"] == 4
    assert value(actual, "loomlog_tool_call_seconds_sum", tool="Echo") == 1007.21


async def test_who_waits_for_a_place_shows_at_the_door_and_at_the_providers() -> None:
    stage, metrics = Stage(), RunMetrics()
    queue = ProviderQueue("acme", slots=1, limits=ProviderQueueLimits(depth=1))
    door = AdmissionQueue(AdmissionLimits(runs=1, queue=1), wait_s=30.0, provider_wait_s=30.0)
    somebody = Slot(tenant="acme", user_id="ada")
    door.mark_active("r_one", somebody)
    ada = Holder(tenant="acme", principal="ada")
    held = await queue.acquire(ada)
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(queue.acquire(ada)), loop.create_task(door.wait_for_slot("r_two", somebody))]
    await asyncio.sleep(0)
    with pytest.raises(Transient):
        await queue.acquire(ada)
    assert await door.wait_for_slot("r_three", somebody) is not None
    async with stage.owner("a") as runtime:
        page = build_exposition(
            metrics, runtime.host, runtime.calls, runtime.dead_letters, queues={"acme": queue}, admission_queue=door
        )
        actual = samples(page())
        held.release()
        door.mark_ended("r_one")
        await asyncio.wait(tasks)
        later = samples(page())
    of = {"provider": "acme"}
    assert value(actual, "loomlog_provider_places", **of) == value(actual, "loomlog_provider_places_in_use", **of) == 1
    assert value(actual, "loomlog_provider_queue_depth", **of) == 1
    assert value(actual, "loomlog_provider_queue_turned_away_total", reason="full", **of) == 1
    assert (value(actual, "loomlog_runs_at_work"), value(actual, "loomlog_starts_waiting")) == (1, 1)
    assert value(actual, "loomlog_starts_turned_away_total", code="backpressure") == 1
    assert value(later, "loomlog_provider_queue_depth", **of) == value(later, "loomlog_starts_waiting") == 0
    assert value(later, "loomlog_provider_queue_wait_seconds_count", **of) == 1
    assert value(later, "loomlog_start_wait_seconds_count") == 1


async def test_a_quarantined_run_shows() -> None:
    stage, metrics = Stage(), RunMetrics()
    stage.model.held = True
    async with stage.owner("a") as runtime:
        stage.start()
        await stage.until(stage.model.holding.is_set)
        partition = runtime.host.owners[0].partition
        assert partition is not None
        partition.aggregates["r_one"].quarantined = "broken"
        actual = samples(build_exposition(metrics, runtime.host, runtime.calls, runtime.dead_letters)())
    assert value(actual, "loomlog_quarantined_runs") == 1


async def test_what_entities_do_shows_by_family_and_beside_runs() -> None:
    world = EntityWorld(partitions=1)
    try:
        process = await world.process()
        await world.ask(process, world.increment("hits", "c1", also="to"))
        await world.until(lambda: process.entities.outbox.pending_count() == 0)
        page = exposition_of(process)
        actual = samples(page())
        partition = process.entities.topic_set.owners[0].partition
        assert partition is not None
        partition.aggregates["counter:acme/hits"].quarantined = "broken"
        later = samples(page())
    finally:
        await world.close()
    assert value(actual, "loomlog_claims_total", family="entity", reason="assigned") == 1
    assert value(actual, "loomlog_take_over_seconds_count", family="entity") == 1
    assert value(actual, "loomlog_entities_hot", family="counter") == 2
    assert value(actual, "loomlog_quarantined_entities", family="counter") == 0
    assert value(later, "loomlog_quarantined_entities", family="counter") == 1
    assert value(actual, "loomlog_deliveries_sent_total") == 1
    assert value(actual, "loomlog_deliveries_pending") == 0
    assert value(actual, "loomlog_entities_loaded_total") == value(actual, "loomlog_entities_refolded_total") == 0


async def test_a_checkpoint_that_cannot_be_made_shows_with_its_reason_until_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("loomlog.services.stream.entities.checkpoints.PROJECTOR_WAIT_S", 0)
    world = EntityWorld(partitions=1)
    try:
        process = await world.process()
        answer = await world.ask(process, world.increment("hits", "c1"))
        world.rows.behind = {0: answer.offset}
        topic_set = process.entities.topic_set
        await topic_set.checkpoints.make(topic_set.owners[0])
        page = exposition_of(process)
        failed = samples(page())
        world.rows.behind = {}
        await topic_set.checkpoints.make(topic_set.owners[0])
        mended = samples(page())
    finally:
        await world.close()
    reason = "the projector has reached N, N is needed"
    assert value(failed, "loomlog_checkpoints_failing", family="entity", reason=reason) == 1
    assert value(failed, "loomlog_checkpoint_failures_total", family="entity") == 1
    assert not any(name == "loomlog_checkpoints_failing" for name, _ in mended)
    assert value(mended, "loomlog_checkpoint_failures_total", family="entity") == 1


async def test_a_scrape_tells_what_is_left_of_the_ends_of_runs() -> None:
    nothing: Any = None  # it is not asked
    actions = RunEndActions(nothing, nothing, nothing, local_codec(), triggers={})
    posted = OutcomeCounts(
        name="callback_attempts", summary="Attempts.", outcomes=("failed", "delivered"), counts=Counter(failed=2)
    )
    actions.counts["done"] = 3
    world = EntityWorld(partitions=1)
    try:
        process = await world.process()
        context = process.host.context
        actual = samples(
            build_exposition(
                RunMetrics(),
                process.host,
                context.effect_runner,
                context.dead_letters,
                end_actions=actions,
                outcomes=[posted],
            )()
        )
    finally:
        await world.close()
    assert value(actual, "loomlog_run_end_actions_total", outcome="done") == 3
    assert value(actual, "loomlog_run_end_actions_total", outcome="refused") == 0
    assert value(actual, "loomlog_run_ends_pending") == 0
    assert value(actual, "loomlog_callback_attempts_total", outcome="failed") == 2


def exposition_of(process: Process) -> Callable[[], bytes]:
    context = process.host.context
    return build_exposition(
        RunMetrics(), process.host, context.effect_runner, context.dead_letters, entities=[process.entities]
    )
