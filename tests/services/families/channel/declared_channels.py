"""A process with channels of a file and others that are declared at run time: the rules in memory."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from msgspec.structs import asdict

from loomlog.connectors.configuration.channel_block import ChannelBlock
from loomlog.connectors.configuration.model import Configuration
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.services.core.families import aggregate_id
from loomlog.services.core.operation_input import parse_input
from loomlog.services.families.channel.api import ChannelCreate, ChannelUpdate
from loomlog.services.families.channel.caller import Declaration
from loomlog.services.families.channel.declaration_operations import DeclarationOperations
from loomlog.services.families.channel.declarations import ChannelDeclarations, configured_channels
from loomlog.services.families.definition import FAMILY as DEFINITIONS
from loomlog.services.families.definition.author import Author
from loomlog.services.families.definition.operations import DefinitionOperations
from loomlog.services.families.definition.state import line_id
from loomlog.services.families.definition.table import DefinitionTable
from loomlog.services.stream.entities.answers import Answer
from tests.services.entities import NOW_MS, MemoryEntities
from tests.services.families.definition.volume_world import Replicas

MEMBER = Author(tenant="acme", subject="ann", command_id="c", issued_at_ms=NOW_MS)
ADMIN = replace(MEMBER, subject="op", is_admin=True)
PLAZA = ChannelBlock(scope="global", default_ttl=3_600, max_messages=500, publisher="any")
NEWS = ChannelBlock(scope="global")
INBOX = ChannelBlock(scope="user")
BEAT = ChannelBlock(scope="global", publisher="system", period=60)
FILE = {"plaza": PLAZA, "news": NEWS, "inbox": INBOX, "beat": BEAT, "research/c1": ChannelBlock(scope="tenant")}


def given(record: type[Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request that are not null, as its handler takes them."""
    asked = asdict(parse_input(record, fields, code="invalid_request"))
    return {name: value for name, value in asked.items() if value is not None}


class DeclaredChannels:
    """A process; `entities` is what others share with it."""

    def __init__(self, file: Mapping[str, ChannelBlock] = FILE, entities: MemoryEntities | None = None) -> None:
        self.entities = entities or MemoryEntities(DEFINITIONS)
        self.replicas = Replicas(self.entities)
        replicas = cast(Any, self.replicas)
        self.table = DefinitionTable(replicas, {}, blobs=MemoryBlobs(), reads=cast(Any, self.entities))
        self.declarations = ChannelDeclarations(self.table, configured_channels(Configuration(channels=file)))
        definitions = DefinitionOperations(cast(Any, self), replicas, self.table, blobs=MemoryBlobs())
        self.operations = DeclarationOperations(definitions, self.declarations)
        self.number = 0

    async def ask(self, command: Any, *, wait_s: float) -> Answer:
        """Return the answer; the lines that it changed are read here."""
        answer = await self.entities.ask(command, wait_s=wait_s)
        if not isinstance(answer.events[-1], CommandRefused):
            line = aggregate_id("definition", command.envelope.tenant, line_id(command.kind, command.name))
            for listener in self.replicas.listeners:
                listener(line)
        return answer

    def author(self, author: Author) -> Author:
        """Return the author with a command id of its own."""
        self.number += 1
        return replace(author, command_id=f"c{self.number}")

    async def create(self, author: Author = MEMBER, **fields: Any) -> Declaration:
        return (await self.operations.create(given(ChannelCreate, fields), self.author(author)))[0]

    async def update(self, name: str, author: Author = MEMBER, **fields: Any) -> Declaration:
        asked = given(ChannelUpdate, {"channel": name, **fields})
        del asked["channel"]
        return (await self.operations.update(name, asked, self.author(author)))[0]

    async def delete(self, name: str, author: Author = MEMBER) -> str:
        return await self.operations.delete(name, self.author(author))
