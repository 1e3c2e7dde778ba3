"""The stacks of `make bench-channels` have what its parts use, and a circuit counts only with a score."""

import time
from pathlib import Path
from typing import Any

import pytest

from loomlog.connectors.configuration.load import load
from tests.benchmarks import channels_webhooks
from tests.benchmarks.channels import configuration
from tests.benchmarks.channels_circuit_client import Circuit, Driver, _is_score
from tests.benchmarks.channels_schedules import AGENT_TEXT, LEAD_S, due_at, schedules_blocks
from tests.benchmarks.workload import CONFIGURATION, ENVIRONMENT


def loaded(folder: Path, text: str) -> Any:
    (folder / "loomlog.yaml").write_text(text)
    environ = {**ENVIRONMENT, "LOOMLOG_HOME": str(folder), "LOOMLOG_CONFIG_FILES": str(folder / "loomlog.yaml")}
    if channels_webhooks.SECRET_ENV in text:
        environ[channels_webhooks.SECRET_ENV] = channels_webhooks.SECRET
    tools = ("Channel", "Memory", "Context", "Evaluation")
    return load(environ, working_directory=folder, family_tools=tools).configuration


def test_the_channels_of_all_parts_are_declared(tmp_path: Path) -> None:
    here = loaded(tmp_path, configuration(3))
    circuits = {f"{stage}/c{number}" for stage in ("research-done", "editing-done") for number in (1, 2, 3)}
    assert {*circuits, "bench-queue", "waits/0", "waits/p99", "bench-webhooks"} <= set(here.channels)
    assert "research-done/c4" not in here.channels
    assert {"researcher", "editor", "evaluator", "waiting", "bench"} <= set(here.agents)


def test_a_secret_of_a_webhook_has_no_spaces_because_they_part_two() -> None:
    assert len(channels_webhooks.SECRET.split()) == 1


def test_all_schedules_are_for_one_minute_that_leaves_time_to_arm_them(tmp_path: Path) -> None:
    due = due_at(500)
    assert due.second == 0
    assert due.timestamp() > time.time() + LEAD_S
    here = loaded(tmp_path, CONFIGURATION + AGENT_TEXT + schedules_blocks(5, due)[0])
    assert {block.schedule for block in here.scheduled_runs.values()} == {
        f"{due.minute} {due.hour} {due.day} {due.month} *"
    }
    assert all(block.enabled for block in here.scheduled_runs.values())


@pytest.mark.parametrize(
    ("value", "is_score"),
    [({"score": 0.7}, True), ('{"score": 1}', True), ({"score": "0.7"}, False), ({}, False), ([0.7], False)],
)
def test_only_a_number_is_a_score(value: Any, is_score: bool) -> None:
    assert _is_score(value) is is_score


async def test_a_circuit_whose_key_is_missing_is_not_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"research": {"text": "x"}, "research-edited": None, "research-scored": {"score": 0.5}}

    async def value(self: Driver, circuit: Circuit, key: str) -> Any:
        return values[key]

    monkeypatch.setattr(Driver, "_value", value)
    driver = Driver(None, at_once=1, poll_s=0)  # type: ignore[arg-type]  # it sends nothing
    circuit = Circuit(name="c1", user="user-0")
    await driver.check(circuit)
    assert circuit.problem == "c1-research-edited does not exist"
    values["research-edited"] = {"text": "x"}
    circuit.problem = ""
    await driver.check(circuit)
    assert not circuit.problem
