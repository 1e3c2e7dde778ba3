"""Channels in a runtime process: the Channel tool, results of calls that wait, and what they are made of.

Before: main.py. After: services/families/channel.
"""

from collections.abc import Callable
from dataclasses import dataclass

from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.connectors.configuration.principals import isolated_subjects
from loomlog.schemas.codec import Codec
from loomlog.services.families.channel.caller import FAMILY_NAME
from loomlog.services.families.channel.declarations import ChannelDeclarations, configured_channels
from loomlog.services.families.channel.message_cache import MessageCache
from loomlog.services.families.channel.operations import ChannelLimits, ChannelOperations
from loomlog.services.families.channel.store import ChannelStore, Decrypt
from loomlog.services.families.definition.table import DefinitionTable
from loomlog.services.runtime.run.channel_waits import ChannelWaits
from loomlog.services.runtime.tools.channel_tool import ChannelTool
from loomlog.services.stream.entities.hosting import EntityParts
from loomlog.services.stream.entities.reads import EntityReads


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSetup:
    """What a runtime has of channels."""

    declarations: ChannelDeclarations
    operations: ChannelOperations
    tool: ChannelTool
    waits: ChannelWaits

    async def close(self) -> None:
        """Give up what is under way: the queues ask again."""
        await self.operations.close()


def open_channels(
    loaded: ProcessConfiguration,
    parts: EntityParts,
    reads: EntityReads,
    definitions: DefinitionTable,
    codec: Codec,
    *,
    decrypt: Decrypt,
    clock_ms: Callable[[], int],
) -> ChannelSetup:
    """Build everything over the entities of this process, and follow the messages that it reads."""
    of_channels = parts.of(f"{FAMILY_NAME}:")
    cache = MessageCache(codec, topic=of_channels.topics.events)
    of_channels.replicas.on_event(FAMILY_NAME, cache.read, at_once=True)
    declarations = ChannelDeclarations(definitions, configured_channels(loaded.configuration))
    settings = loaded.settings
    operations = ChannelOperations(
        declarations,
        ChannelStore(parts.client, reads, cache, clock_ms=clock_ms, decrypt=decrypt),
        limits=ChannelLimits(
            value_bytes_max=settings.channels_max_value_bytes, longpoll_cap_ms=settings.channels_longpoll_cap_ms
        ),
        clock_ms=clock_ms,
    )
    isolated = isolated_subjects(loaded.configuration)

    def is_isolated(tenant: str, subject: str) -> bool:
        return (tenant, subject) in isolated

    return ChannelSetup(
        declarations=declarations,
        operations=operations,
        tool=ChannelTool(operations, is_isolated=is_isolated, clock_ms=clock_ms),
        waits=ChannelWaits(operations, is_isolated=is_isolated, clock_ms=clock_ms),
    )
