"""What calls show of models reaches every runtime; and a run that falls back, through all the pieces of one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.models.mock.model import MockModel, MockOptions
from loomlog.schemas.generated.run_events import ModelReplied, ModelSwitched, RunCompleted
from loomlog.schemas.generated.stream_records import ModelMarked, ProviderProbed
from loomlog.schemas.generated.values import AgentDefinition, ModelChoice, RunOptions
from loomlog.schemas.records import replace
from loomlog.services.core.admission import PROVIDER_FULL
from loomlog.services.core.run.commands import Alternative, CommandRefusal
from loomlog.services.core.run.state import AwaitingModel
from loomlog.services.runtime.models.availability import AvailabilityTracker, ModelTraits
from loomlog.services.runtime.models.model_calls import RuntimeProvider
from loomlog.services.runtime.models.provider_keys import OPERATOR_KEY, ProviderKey
from loomlog.services.runtime.telemetry.tracing import NO_TRACING
from loomlog.services.stream.global_tables.global_table import GlobalTable
from loomlog.services.stream.global_tables.providers import PROVIDERS
from tests.services.core.run.given import NOW, begun, erred
from tests.services.runtime.fakes import OneAgent
from tests.services.runtime.small_runtime import TOPICS, SmallRuntime, Stage, running
from tests.services.stream.given import CODEC

TOPIC = "providers"
WAIT_S = 30.0
CANDIDATES = tuple(ModelChoice(provider=name, model="large", effort="low") for name in ("acme", "blind", "deep"))
THEIRS = ProviderKey(source="run", scope="r_1", value="sk-1")
TRAITS = {
    "acme": ModelTraits(supports_vision=lambda model: True, has_prompt_cache=True),
    "blind": ModelTraits(supports_vision=lambda model: False),
    "deep": ModelTraits(supports_vision=lambda model: False, non_thinking_sibling=lambda model: "chat"),
}


def definition(**more: Any) -> AgentDefinition:
    inputs = {"candidates": CANDIDATES, "fallback_on_error": True, **more}
    return AgentDefinition(name="helper", provider="acme", model="large", **inputs)


def state(**more: Any) -> AwaitingModel:
    actual = begun(definition(**more)).state
    assert isinstance(actual, AwaitingModel)
    return actual


class Replica:
    """A runtime's board and what it says about models, over a log that others write to as well."""

    def __init__(self, log: MemoryLog, name: str, traits: Mapping[str, ModelTraits] = TRAITS) -> None:
        self.log = log
        self.board = GlobalTable(CODEC, TOPIC, PROVIDERS)
        self.availability = AvailabilityTracker(
            self.board, traits, codec=CODEC, appender=log, clock_ms=lambda: NOW, name=name
        )

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator["Replica"]:
        await self.board.catch_up(self.log)
        tasks = [
            asyncio.create_task(self.board.follow(self.log.tail(TOPIC, {0: 0}))),
            asyncio.create_task(self.availability.run()),
        ]
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def why_not(self, provider: str = "acme", model: str = "large") -> str:
        return self.board.table.availability(provider, model, NOW).unavailable_reason

    def written(self) -> list[Any]:
        return [CODEC.decode(record.value or b"").record for record in self.log.records[TOPIC, 0]]


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog({TOPIC: 1})


async def test_two_runtimes_see_what_the_other_has_met(log: MemoryLog) -> None:
    async with Replica(log, "one").working() as one, Replica(log, "two").working() as two:
        one.availability.on_failure(state(), erred(state(), "unavailable", transient=True))
        assert one.why_not() == "it is stalled", "what a process has seen counts for it at once"
        assert await two.board.wait_for(lambda: two.why_not() == "it is stalled", timeout_s=WAIT_S)
        two.availability.on_success("acme", "large")
        assert not two.why_not()
        assert await one.board.wait_for(lambda: not one.why_not(), timeout_s=WAIT_S)
        assert [(record.mark, record.by) for record in one.written()] == [("stalled", "one"), ("recovered", "two")]


async def test_a_rate_limit_reaches_the_others_with_its_end(log: MemoryLog) -> None:
    async with Replica(log, "one").working() as one, Replica(log, "two").working() as two:
        limited = state(rate_limit_cooldown_ms=5_000)
        one.availability.on_failure(limited, erred(limited, "rate_limited", transient=True, retries_rate_limits=False))
        assert await two.board.wait_for(lambda: bool(two.why_not()), timeout_s=WAIT_S)
        assert two.board.table.status("acme", "large").limited_until_ms == NOW + 5_000


@pytest.mark.parametrize("kind", ["rate_limited", "unauthorised", "forbidden", "refused"])
async def test_what_is_wrong_with_the_key_of_a_run_shuts_a_model_for_nobody(log: MemoryLog, kind: str) -> None:
    one, failing = Replica(log, "one"), state()
    order = erred(failing, kind, transient=kind == "rate_limited", retries_rate_limits=False)
    actual = one.availability.on_failure(failing, order, key=THEIRS)
    assert not one.why_not()
    assert [alternative.choice.provider for alternative in actual.alternatives] == ["acme", "blind", "deep"]


async def test_a_provider_that_is_down_is_down_for_everybody_whosever_key_it_was(log: MemoryLog) -> None:
    one = Replica(log, "one")
    one.availability.on_failure(state(), erred(state(), "unavailable", transient=True), key=THEIRS)
    assert one.why_not() == "it is stalled"


@pytest.mark.parametrize(("key", "is_open"), [(THEIRS, False), (OPERATOR_KEY, True)])
async def test_an_answer_to_the_key_of_a_run_does_not_open_what_refuses_the_operators(
    log: MemoryLog, key: ProviderKey, is_open: bool
) -> None:
    one = Replica(log, "one")
    one.board.apply_locally(ProviderProbed(provider="acme", reachable=False, key_refused=True, at_ms=1))
    one.availability.on_success("acme", "large", key=key)
    assert (not one.why_not()) is is_open


async def test_healthy_calls_write_nothing(log: MemoryLog) -> None:
    async with Replica(log, "one").working() as one:
        for _ in range(3):
            one.availability.on_success("acme", "large")
        await asyncio.sleep(0)
        assert one.written() == []


async def test_a_failure_that_is_retried_shuts_a_model_for_nobody(log: MemoryLog) -> None:
    one, failing = Replica(log, "one"), state(retry_attempts=1)
    order = erred(failing, "unavailable", transient=True)
    assert one.availability.on_failure(failing, order) is order
    waits = erred(failing, "rate_limited", transient=True)
    assert one.availability.on_failure(failing, waits) is waits
    assert not one.why_not()


async def test_a_call_without_a_place_marks_nothing_and_goes_to_another_provider_once_its_waits_are_over(
    log: MemoryLog,
) -> None:
    both = (*CANDIDATES, ModelChoice(provider="acme", model="small"))
    one, crowded = Replica(log, "one"), state(candidates=both)
    waits = erred(crowded, PROVIDER_FULL, transient=True, retry_after_ms=5_000)
    assert one.availability.on_saturated(crowded, waits) is waits
    late = erred(crowded, PROVIDER_FULL, transient=True, retry_after_ms=400_000)
    actual = one.availability.on_saturated(crowded, late)
    assert [alternative.choice.provider for alternative in actual.alternatives] == ["blind", "deep"]
    assert not one.why_not()


async def test_many_failures_of_one_model_are_one_record(log: MemoryLog) -> None:
    one = Replica(log, "one")
    for _ in range(5):
        one.availability.on_failure(state(), erred(state(), "unavailable", transient=True))
    async with one.working():
        assert await one.board.wait_for(lambda: one.board.next_offset == 1, timeout_s=WAIT_S)
        assert len(one.written()) == 1


async def test_marks_wait_for_the_broker(log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loomlog.services.runtime.models.availability.RETRY_S", 0.0)
    log.lose_acks = 1
    async with Replica(log, "one").working() as one, Replica(log, "two").working() as two:
        one.availability.on_failure(state(), erred(state(), "unavailable", transient=True))
        assert await two.board.wait_for(lambda: two.board.next_offset == 2, timeout_s=WAIT_S)
        assert two.why_not() == "it is stalled"


# --- what else could be called ---------------------------------------------------------------------------------------


def alternatives(one: Replica, **more: Any) -> tuple[Alternative, ...]:
    failing = state(**more)
    return one.availability.on_failure(failing, erred(failing, "unavailable", transient=True)).alternatives


async def test_the_other_candidates_are_told_with_what_they_are_like(log: MemoryLog) -> None:
    one = Replica(log, "one")
    assert alternatives(one) == (
        Alternative(choice=CANDIDATES[1], sees_images=False),
        Alternative(choice=CANDIDATES[2], sees_images=False, sibling="chat"),
    )


async def test_what_cannot_be_called_is_no_alternative(log: MemoryLog) -> None:
    one = Replica(log, "one")
    one.board.apply_locally(ModelMarked(provider="blind", model="large", mark="stalled", at_ms=1))
    assert [item.choice.provider for item in alternatives(one)] == ["deep"]


async def test_who_may_not_use_the_operators_keys_goes_only_where_it_has_one_or_needs_none(log: MemoryLog) -> None:
    keyed = {
        "blind": ModelTraits(supports_vision=lambda model: False, api_key_env="BLIND_API_KEY"),
        "deep": ModelTraits(supports_vision=lambda model: False, api_key_env="DEEP_API_KEY"),
        "acme": ModelTraits(supports_vision=lambda model: True),
    }
    one, failing = Replica(log, "one", keyed), state()

    def left(**facts: Any) -> list[str]:
        here = replace(failing, facts=replace(failing.facts, options=RunOptions(**facts)))
        actual = one.availability.on_failure(here, erred(here, "rate_limited", retries_rate_limits=False), key=THEIRS)
        return [alternative.choice.provider for alternative in actual.alternatives]

    assert left() == ["acme", "blind", "deep"]
    assert left(operator_key_restricted=True) == ["acme"]
    assert left(operator_key_restricted=True, credentials=("DEEP_API_KEY",)) == ["acme", "deep"]


async def test_a_provider_this_process_has_no_driver_for_is_no_alternative(log: MemoryLog) -> None:
    one = Replica(log, "one", {"acme": TRAITS["acme"]})
    assert alternatives(one) == ()


async def test_without_fallback_nobody_looks_for_one(log: MemoryLog) -> None:
    assert alternatives(Replica(log, "one"), fallback_on_error=False) == ()


async def test_a_cache_that_would_be_left_is_told(log: MemoryLog) -> None:
    actual = Replica(log, "one").availability.on_failure(state(), erred(state(), "unavailable", transient=True))
    assert actual.leaves_cache
    plain = {name: ModelTraits(supports_vision=traits.supports_vision) for name, traits in TRAITS.items()}
    actual = Replica(log, "two", plain).availability.on_failure(state(), erred(state(), "unavailable", transient=True))
    assert not actual.leaves_cache


# --- a whole run -----------------------------------------------------------------------------------------------------


class Tiered(OneAgent):
    """Definitions with one agent on two providers."""

    def resolve(self, agent: str, **_: object) -> AgentDefinition | CommandRefusal:
        choices = tuple(ModelChoice(provider=name, model="mock-generic") for name in ("mock", "mock-stable"))
        return AgentDefinition(
            name="helper",
            provider="mock",
            model="mock-generic",
            retry_attempts=1,
            candidates=choices,
            fallback_on_error=True,
        )


async def test_a_run_on_a_provider_that_always_fails_is_finished_by_the_stable_one() -> None:
    stage = Stage()
    stage.log = MemoryLog({TOPICS.commands: 1, TOPICS.events: 1, TOPIC: 1})
    traits = dict.fromkeys(("mock", "mock-stable"), ModelTraits(supports_vision=lambda model: True))
    knobs = MockOptions(latency_ms=0, latency_jitter_ms=0, rate_500=1.0)
    commands = stage.log.tail(TOPICS.commands, {0: 0})
    commands.pause([0])
    async with Replica(stage.log, "one", traits).working() as one, Replica(stage.log, "two", traits).working() as two:
        runtime = SmallRuntime(
            stage.log,
            stage.log,
            commands,
            partitions=1,
            topics=TOPICS,
            model=stage.model,
            tracing=NO_TRACING,
            name="one",
            definitions=Tiered(),
            providers={
                "mock": RuntimeProvider(model=MockModel(options=knobs), retries_rate_limits=False),
                "mock-stable": RuntimeProvider(
                    model=MockModel(provider="mock-stable", options=knobs, stable=True), retries_rate_limits=False
                ),
            },
            availability=one.availability,
        )
        async with running(runtime):
            stage.start()
            await stage.until(lambda: stage.has(RunCompleted))
        assert await two.board.wait_for(lambda: bool(two.why_not("mock", "mock-generic")), timeout_s=WAIT_S)
    names = [type(event).__name__ for event in stage.events()]
    assert names == [
        "RunStarted",
        "ModelCallRequested",
        "ModelCallFailed",
        "ModelCallRequested",
        "ModelCallFailed",
        "ModelSwitched",
        "ModelCallRequested",
        "ModelReplied",
        "RunCompleted",
    ]
    (switched,) = (event for event in stage.events() if isinstance(event, ModelSwitched))
    assert (switched.provider, switched.reason, switched.cause) == (
        "mock-stable",
        "retryable",
        "mock 500: synthetic server error",
    )
    (replied,) = (event for event in stage.events() if isinstance(event, ModelReplied))
    assert replied.provider == "mock-stable"
