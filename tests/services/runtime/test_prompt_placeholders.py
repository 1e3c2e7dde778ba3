"""Placeholders of prompts, from the configuration to what a run is pinned to."""

from pathlib import Path
from typing import Any

from loomlog.connectors.configuration.load import load
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.schemas.generated.values import AgentDefinition
from loomlog.services.runtime.content.encryption import PLAINTEXT
from loomlog.services.runtime.content.run_credentials import NO_CREDENTIALS
from loomlog.services.runtime.effects import build_effect_handlers
from loomlog.services.runtime.models.previews import Previews
from loomlog.services.runtime.models.routing import Routing
from loomlog.services.runtime.settings import build_runtime_settings
from loomlog.services.runtime.telemetry.tracing import NO_TRACING
from tests.services.core.run.given import NOW
from tests.services.stream.given import CODEC

TEXT = """\
providers:
  mock: { driver: mock, options: { enabled: true } }
agents:
  plain: {provider: mock, model: mock-generic, tools: [Read], system_prompt: 'Be kind.'}
  guided: {provider: mock, model: mock-generic, tools: [Read, Gr*], inject_tool_guide: true, disable_context: true}
"""


async def test_the_prompt_of_a_run_describes_the_tools_of_its_process(tmp_path: Path) -> None:
    (tmp_path / "loomlog.yaml").write_text(TEXT, encoding="utf-8")
    servers = {"LOOMLOG_KAFKA": "localhost:1", "LOOMLOG_POSTGRES": "postgresql://localhost:1/none"}
    loaded = load(servers, working_directory=tmp_path, paths=[])
    log = MemoryLog({"providers": 1, "deltas": 1})
    routing = Routing(loaded, {}, codec=CODEC, appender=log, clock_ms=lambda: NOW, name="one", topic="providers")
    hooks: Any = None
    effects = build_effect_handlers(
        loaded,
        build_runtime_settings(loaded.settings),
        codec=CODEC,
        appender=log,
        tracing=NO_TRACING,
        previews=Previews(CODEC, log, topic="deltas", partitions=1, term_of=lambda _: 0),
        encryption=PLAINTEXT,
        routing=routing,
        hooks=hooks,
        credentials=NO_CREDENTIALS,
    )
    prompts = {
        (agent, tools): definition.system_prompt
        for agent in ("plain", "guided")
        for tools in (None, ("Grep",))
        if isinstance(
            definition := routing.definitions.resolve(agent, tenant="t", user_tier="", tools=tools), AgentDefinition
        )
    }
    await effects.close()
    read = "- Read (filesystem; needs path): Read a file before you edit it; find the place in a long one with Grep."
    grep = "- Grep (filesystem; needs pattern): Search content first, then Read the files that matter."
    assert prompts == {
        ("plain", None): "Be kind.",
        ("plain", ("Grep",)): "Be kind.",
        ("guided", None): f"{read}\n{grep}",
        ("guided", ("Grep",)): grep,
    }
