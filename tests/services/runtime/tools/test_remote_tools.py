"""Tools of other microservices, from a file to what an agent may call."""

from pathlib import Path

import pytest

from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.configuration.load import load
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import EffectClass, Tool
from loomlog.connectors.tools.remote_calls import REQUESTS_TOPIC, RemoteCallClient
from loomlog.connectors.tools.remote_tool import RemoteTool
from loomlog.schemas.codec import local_codec
from loomlog.services.runtime.tools.remote_tools import build_remote_tools
from loomlog.services.runtime.tools.toolset import ProcessToolset

TEXT = """\
remote_tools:
  add_to_order:
    description: Adds an item to an order.
    input_schema:
      type: object
      properties: {item: {type: string}, count: {type: number, minimum: 0.5}}
      required: [item]
    effect: idempotent
    timeout_seconds: 7
    topic: shop.requests
  weigh: {description: Weighs it.}
agents:
  seller: {provider: mock, model: m, tools: [add_to_order, "wei*"]}
"""


def tools(folder: Path, text: str = TEXT) -> dict[str, Tool]:
    (folder / "loomlog.yaml").write_text(text)
    configuration = load({}, working_directory=folder, paths=[]).configuration
    log = MemoryLog({})
    calls = RemoteCallClient(local_codec(), log, log, clock_ms=lambda: 0, source="test")
    return build_remote_tools(configuration, calls, clock_ms=lambda: 0)


def test_a_tool_is_what_the_file_says(tmp_path: Path) -> None:
    tool = tools(tmp_path)["add_to_order"]
    assert isinstance(tool, RemoteTool)
    assert (tool.name, tool.description, tool.timeout_s) == ("add_to_order", "Adds an item to an order.", 7.0)
    assert tool.input_schema == {
        "type": "object",
        "properties": {"item": {"type": "string"}, "count": {"type": "number", "minimum": 0.5}},
        "required": ["item"],
    }
    assert (tool.effect_class({}), tool._topic) == (EffectClass.IDEMPOTENT, "shop.requests")


def test_what_is_not_said_is_careful(tmp_path: Path) -> None:
    tool = tools(tmp_path)["weigh"]
    assert isinstance(tool, RemoteTool)
    assert (tool.effect_class({}), tool.timeout_s, tool._topic) == (EffectClass.UNSAFE, 60.0, REQUESTS_TOPIC)
    assert tool.input_schema == {"type": "object"}


def test_a_model_is_shown_what_its_agent_was_granted(tmp_path: Path) -> None:
    shelf = ProcessToolset(tools(tmp_path))
    assert [spec.name for spec in shelf.specs(("add_to_order", "wei*"))] == ["add_to_order", "weigh"]
    assert shelf.is_reconcilable("weigh")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("remote_tools: {Read: {description: x}}", "is the name of another tool"),
        ("remote_tools: {mcp__a__b: {description: x}}", "begins like those of another kind"),
        ("remote_tools: {client__a: {description: x}}", "begins like those of another kind"),
        ("remote_tools: {a: {description: ' '}}", "needs a description"),
        ("remote_tools: {a: {}}", "description is missing"),
        ("remote_tools: {a: {description: x, input_schema: {type: array}}}", "type: object"),
        ("remote_tools: {a: {description: x, timeout_seconds: 0}}", "timeout_seconds"),
        ("remote_tools: {a: {description: x, timeout_seconds: 1801}}", "timeout_seconds"),
        ("remote_tools: {a: {description: x, effect: maybe}}", "effect"),
        ("remote_tools: {'a b': {description: x}}", "not a usable name"),
        (
            "remote_tools: {add_it: {description: x}}\nagents: {s: {provider: mock, model: m, tools: [ad_it]}}",
            "did you mean add_it?",
        ),
    ],
)
def test_what_cannot_work_is_said_at_the_start(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words.replace("?", r"\?")):
        tools(tmp_path, text)
