import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.generated.stream_records import ModelMarked, ProbeRequested, ProviderProbed
from loomlog.services.core.availability import AvailabilityTable
from loomlog.services.runtime.models import provider_probe as prober_module
from loomlog.services.runtime.models.provider_probe import (
    INTERVAL_RANGE_S,
    MODELS_MAX,
    NAME_MAX,
    UNHEALTHY_INTERVAL_S,
    ProviderProber,
    probe_provider,
)
from loomlog.services.stream.global_tables.global_table import GlobalTable
from loomlog.services.stream.global_tables.providers import PROVIDERS
from tests.services.stream.given import CODEC

TOPIC = "providers"
NOW = 10_000_000_000
WAIT_S = 30.0
AWAY = Transient("p 503: away", kind="unavailable", status=503)


@dataclass
class Asked:
    """A provider that answers what it was told to."""

    lists: tuple[str, ...] | Exception = ("m",)
    probes: Exception | None = None
    calls: int = 0
    hangs: asyncio.Event | None = None
    provider: str = "p"
    capabilities: Any = None
    seen: list[str] = field(default_factory=list)

    async def probe(self) -> None:
        self.calls += 1
        if self.hangs is not None:
            await self.hangs.wait()
        if self.probes is not None:
            raise self.probes

    async def list_models(self) -> list[str]:
        if isinstance(self.lists, Exception):
            raise self.lists
        return list(self.lists)

    def stream(self, request: Any) -> Any:
        raise AssertionError("a probe asks for no turn")

    async def close(self) -> None:
        """Nothing is open."""


def prober(
    board: GlobalTable[AvailabilityTable], log: MemoryLog, *, interval_s: float = 900, **models: Asked
) -> ProviderProber:
    return ProviderProber(
        board, models, codec=CODEC, appender=log, clock_ms=lambda: NOW, name="one", interval_s=interval_s
    )


def said(log: MemoryLog) -> list[Any]:
    return [CODEC.decode(record.value or b"").record for record in log.records[TOPIC, 0]]


async def answer(model: Asked) -> ProviderProbed:
    return await probe_provider("p", model, request_id="r", by="one", clock_ms=lambda: NOW)


# --- one provider ----------------------------------------------------------------------------------------------------


async def test_a_provider_that_answers_is_told_with_its_models_in_order() -> None:
    assert await answer(Asked(lists=("b", "a", "b"))) == ProviderProbed(
        provider="p", reachable=True, models=("a", "b"), request_id="r", by="one", at_ms=NOW
    )


@pytest.mark.parametrize(
    ("failure", "is_of_key"),
    [
        (AWAY, False),
        (Permanent("p 401: no", kind="unauthorised", status=401), True),
        (Transient("p 429: later", kind="rate_limited", status=429), True),
    ],
)
async def test_a_provider_that_refuses_is_away_and_says_why(failure: Exception, is_of_key: bool) -> None:
    actual = await answer(Asked(probes=failure))
    assert (actual.reachable, actual.models, actual.error, actual.key_refused) == (False, (), str(failure), is_of_key)


async def test_a_provider_that_answers_and_cannot_list_is_there() -> None:
    actual = await answer(Asked(lists=AWAY))
    assert (actual.reachable, actual.models, actual.error) == (True, (), str(AWAY))
    assert not (await answer(Asked(lists=Permanent("p 403: no", kind="forbidden", status=403)))).key_refused


async def test_a_provider_that_does_not_answer_in_time_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prober_module, "PROBE_WAIT_S", 0.0)
    actual = await answer(Asked(hangs=asyncio.Event()))
    assert (actual.reachable, "within" in actual.error) == (False, True)


async def test_what_a_list_may_hold_is_bounded() -> None:
    actual = await answer(Asked(lists=("x" * (NAME_MAX + 1), *(f"m{number}" for number in range(MODELS_MAX + 5)))))
    assert len(actual.models) == MODELS_MAX
    assert all(len(name) <= NAME_MAX for name in actual.models)


# --- when ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("interval_s", "wait_s"),
    [(900, 900), (0, INTERVAL_RANGE_S[0]), (59, 60), (3_601, 3_600), (10**9, INTERVAL_RANGE_S[1])],
)
def test_a_provider_is_due_after_the_interval_within_its_bounds(interval_s: float, wait_s: float) -> None:
    board = GlobalTable(CODEC, TOPIC, PROVIDERS)
    one = prober(board, MemoryLog({TOPIC: 1}), interval_s=interval_s, p=Asked())
    assert one.due_probes(NOW) == ("", ("p",)), "nobody has asked it yet"
    board.apply_locally(ProviderProbed(provider="p", reachable=True, at_ms=NOW))
    wait_ms = int(wait_s * 1000)
    assert one.due_probes(NOW + wait_ms - 1) == ("", ())
    assert one.due_probes(NOW + wait_ms) == ("", ("p",))


def test_a_provider_with_a_stalled_model_is_due_sooner() -> None:
    board = GlobalTable(CODEC, TOPIC, PROVIDERS)
    one = prober(board, MemoryLog({TOPIC: 1}), p=Asked(), q=Asked())
    for name in ("p", "q"):
        board.apply_locally(ProviderProbed(provider=name, reachable=True, at_ms=NOW))
    board.apply_locally(ModelMarked(provider="p", model="m", mark="stalled", at_ms=NOW))
    assert one.due_probes(NOW + int(UNHEALTHY_INTERVAL_S * 1000)) == ("", ("p",))


def test_a_provider_that_is_away_is_due_sooner() -> None:
    board = GlobalTable(CODEC, TOPIC, PROVIDERS)
    one = prober(board, MemoryLog({TOPIC: 1}), p=Asked(), q=Asked())
    for name in ("p", "q"):
        board.apply_locally(ProviderProbed(provider=name, reachable=name == "q", at_ms=NOW))
    assert one.due_probes(NOW + int(UNHEALTHY_INTERVAL_S * 1000) - 1) == ("", ())
    assert one.due_probes(NOW + int(UNHEALTHY_INTERVAL_S * 1000)) == ("", ("p",))


def test_whoever_asks_has_every_provider_probed_at_once() -> None:
    board = GlobalTable(CODEC, TOPIC, PROVIDERS)
    one = prober(board, MemoryLog({TOPIC: 1}), p=Asked(), q=Asked())
    for name in ("p", "q"):
        board.apply_locally(ProviderProbed(provider=name, reachable=True, at_ms=NOW))
    board.apply_locally(ProbeRequested(request_id="r"))
    assert one.due_probes(NOW) == ("r", ("p", "q"))
    board.apply_locally(ProviderProbed(provider="p", reachable=True, at_ms=NOW, request_id="r"))
    assert one.due_probes(NOW) == ("r", ("q",))
    board.apply_locally(ProviderProbed(provider="q", reachable=True, at_ms=NOW, request_id="r"))
    assert one.due_probes(NOW) == ("", ())


# --- at work ---------------------------------------------------------------------------------------------------------


async def test_only_the_one_whose_turn_it_is_probes_and_all_hear_of_it() -> None:
    log = MemoryLog({TOPIC: 1})
    mine, idle = Asked(), Asked()
    boards = [GlobalTable(CODEC, TOPIC, PROVIDERS) for _ in range(2)]
    tasks = [asyncio.create_task(board.follow(log.tail(TOPIC, {0: 0}))) for board in boards]
    tasks.append(asyncio.create_task(prober(boards[0], log, p=mine).run(lambda: True)))
    tasks.append(asyncio.create_task(prober(boards[1], log, p=idle).run(lambda: False)))
    assert await boards[1].wait_for(lambda: "p" in boards[1].table.providers, timeout_s=WAIT_S)
    log.put(TOPIC, 0, [ProducerRecord(key=None, value=CODEC.encode(ProbeRequested(request_id="r")))])
    assert await boards[1].wait_for(lambda: boards[1].table.has_answered("r", "p"), timeout_s=WAIT_S)
    assert (mine.calls, idle.calls) == (2, 0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_a_probe_heals_a_stall_for_everybody() -> None:
    log = MemoryLog({TOPIC: 1})
    board = GlobalTable(CODEC, TOPIC, PROVIDERS)
    board.apply_locally(ModelMarked(provider="p", model="m", mark="stalled", at_ms=1))
    await prober(board, log, p=Asked()).probe(("p",))
    assert not board.table.status("p", "m").is_stalled
    assert [(record.provider, record.reachable) for record in said(log)] == [("p", True)]


async def test_a_broker_that_is_away_does_not_stop_the_prober() -> None:
    log = MemoryLog({TOPIC: 1})
    log.lose_acks = 1
    board = GlobalTable(CODEC, TOPIC, PROVIDERS)
    await prober(board, log, p=Asked()).probe(("p",))
    assert board.table.providers["p"].reachable, "what was found out counts here all the same"
