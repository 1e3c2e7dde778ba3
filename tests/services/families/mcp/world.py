"""Servers of a process without a log: what is recorded is folded at once."""

import time
from collections.abc import Mapping

from loomlog.connectors.configuration.mcp_block import McpServerBlock
from loomlog.connectors.protocols import ToolContext
from loomlog.schemas.generated.entity_events import CommandHadNoEffect
from loomlog.services.core.families import At, aggregate_id
from loomlog.services.families.definition.files import server_content
from loomlog.services.families.definition.table import DefinitionTable, file_definition
from loomlog.services.families.identity.credentials import CredentialReader
from loomlog.services.families.mcp.decide import decide
from loomlog.services.families.mcp.servers import McpOptions, McpServers
from loomlog.services.families.mcp.state import NAME, ServerTools, evolve
from loomlog.services.stream.entities.answers import Answer


class Log:
    """Replicas and commands of the family in one."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self._states: dict[str, ServerTools] = {}
        self._folded: list = []

    def on_fold(self, family: str, folded) -> None:
        if family == NAME:
            self._folded.append(folded)

    def state(self, aggregate: str) -> ServerTools:
        return self._states.get(aggregate, ServerTools())

    async def wait(self, partition: int, offset: int, *, timeout_s: float) -> int:
        return 0

    async def ask(self, command, *, wait_s: float) -> Answer:
        aggregate = aggregate_id(NAME, command.envelope.tenant, command.server)
        events = decide(self.state(aggregate), command, At(1))
        for event in events:
            self._states[aggregate] = evolve(self.state(aggregate), event, 1)
        self.events += events
        for folded in self._folded:
            folded(aggregate)
        return Answer(events=tuple(events) or (CommandHadNoEffect(),), topic="t", partition=0, offset=0)


class World:
    """Servers of the files, by name."""

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        credentials: CredentialReader | None = None,
        **blocks: McpServerBlock,
    ) -> None:
        self.log = Log()
        files = {
            ("mcpserver", name): file_definition("mcpserver", name, server_content(block))
            for name, block in blocks.items()
        }
        table = DefinitionTable(self.log, files, blobs=None, reads=None)
        options = McpOptions(blocks=blocks, environment=environment or {})
        self.servers = McpServers(
            table, self.log, self.log, options, clock_ms=lambda: 1, now_s=time.monotonic, credentials=credentials
        )

    def server(self, name: str, tenant: str = "acme"):
        server = self.servers.find(tenant, name)
        assert server is not None
        return server


def context(tenant: str = "acme", **credentials: str) -> ToolContext:
    """Return the context of a call."""
    return ToolContext(
        run_id="r_1",
        session_id="s_1",
        agent_id="a_1",
        agent="helper",
        tenant=tenant,
        subject="ann",
        user_id="ann",
        user_tier="",
        provider="mock",
        model="m",
        tools=(),
        root_run_id="r_0",
        idempotency_key="r_1:1:0",
        credentials=credentials,
    )
