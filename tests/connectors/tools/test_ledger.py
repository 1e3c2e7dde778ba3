import asyncio
from pathlib import Path

import pytest

from loomlog.connectors.errors import Transient
from loomlog.connectors.protocols import EffectClass, NoEffect
from loomlog.connectors.tools.ledger import LedgerTool, ReconcilingLedgerTool
from loomlog.connectors.tools.thread_pool import ThreadPool
from tests.connectors.tools.given import context
from tests.sleeps import noted_sleeps


def ledger(path: Path, effect: EffectClass = EffectClass.UNSAFE) -> LedgerTool:
    return LedgerTool(ThreadPool(), path=str(path), effect=effect)


async def test_each_call_is_one_line_also_when_many_come_at_once(tmp_path: Path) -> None:
    tool = ledger(tmp_path / "ledger")
    results = await asyncio.gather(
        *(tool.call({}, context(idempotency_key=f"k{n}", run_id=f"r{n}")) for n in range(50))
    )
    assert not [result for result in results if result.is_error]
    assert sorted((tmp_path / "ledger").read_text().splitlines()) == sorted(f"k{n} r{n}" for n in range(50))


async def test_a_repeated_call_is_visible_as_a_second_line(tmp_path: Path) -> None:
    tool = ledger(tmp_path / "ledger")
    for _ in range(2):
        assert (await tool.call({}, context())).text == "Recorded key-1."
    assert (tmp_path / "ledger").read_text() == "key-1 run-1\n" * 2


async def test_a_call_that_takes_a_while_has_its_line_in_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger"
    waits: list[tuple[float, bool]] = []
    noted_sleeps(monkeypatch, "loomlog.connectors.tools.ledger", lambda delay: waits.append((delay, path.exists())))
    assert not (await ledger(path).call({"wait_ms": 120}, context())).is_error
    assert waits == [(0.06, False), (0.06, True)]


async def test_a_call_stopped_before_its_line_has_no_effect(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await ledger(path).call({"wait_ms": 10_000}, context())
    assert not path.exists()


async def test_a_ledger_that_cannot_be_written_is_an_error_result(tmp_path: Path) -> None:
    result = await ledger(tmp_path / "gone" / "ledger").call({}, context())
    assert result.is_error
    assert "No such file" in result.text


@pytest.mark.parametrize(("key", "run"), [("", "r"), ("k", ""), ("a b", "r"), ("k\nk", "r")])
async def test_a_key_that_would_break_the_line_is_refused(tmp_path: Path, key: str, run: str) -> None:
    assert (await ledger(tmp_path / "ledger").call({}, context(idempotency_key=key, run_id=run))).is_error
    assert not (tmp_path / "ledger").exists()


@pytest.mark.parametrize("wrong", [{"key": "mine"}, {"wait_ms": -1}, {"wait_ms": 10_001}, {"wait_ms": "1"}])
async def test_arguments_that_make_no_sense_are_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    assert (await ledger(tmp_path / "ledger").call(wrong, context())).is_error
    assert not (tmp_path / "ledger").exists()


def test_the_effect_class_is_the_operators_choice(tmp_path: Path) -> None:
    assert ledger(tmp_path, EffectClass.IDEMPOTENT).effect_class({}) is EffectClass.IDEMPOTENT
    with pytest.raises(AssertionError):
        ledger(tmp_path, EffectClass.PURE)


async def test_a_ledger_that_is_asked_knows_the_lines_of_this_call_alone(tmp_path: Path) -> None:
    tool = ReconcilingLedgerTool(ThreadPool(), path=str(tmp_path / "ledger"), effect=EffectClass.UNSAFE)
    assert isinstance(await tool.reconcile({}, context()), NoEffect)
    await tool.call({}, context(idempotency_key="key-10"))
    assert isinstance(await tool.reconcile({}, context()), NoEffect)
    called = await tool.call({}, context())
    assert await tool.reconcile({}, context()) == called


async def test_a_ledger_that_cannot_be_read_does_not_say_that_nothing_happened(tmp_path: Path) -> None:
    tool = ReconcilingLedgerTool(ThreadPool(), path=str(tmp_path), effect=EffectClass.UNSAFE)
    with pytest.raises(Transient):
        await tool.reconcile({}, context())
