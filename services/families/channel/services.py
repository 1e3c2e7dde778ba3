"""Channels in a process: opened once, for requests, tools, waits of runs and the publishers of the system.

Before: services/families/opening.py. After: handlers.py, operations.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.services.families.channel.api import FOLLOW
from loomlog.services.families.channel.call_waits import ChannelWaits
from loomlog.services.families.channel.caller import FAMILY_NAME, Declaration
from loomlog.services.families.channel.declaration_operations import DeclarationOperations
from loomlog.services.families.channel.declarations import ChannelDeclarations, configured_channels
from loomlog.services.families.channel.handlers import ChannelHandlers
from loomlog.services.families.channel.message_cache import MessageCache
from loomlog.services.families.channel.operations import ChannelLimits, ChannelOperations
from loomlog.services.families.channel.run_messages import RunMessages
from loomlog.services.families.channel.store import ChannelStore
from loomlog.services.families.channel.stream import ChannelStreams
from loomlog.services.families.channel.system_channels import SystemChannels
from loomlog.services.families.definition.operations import DefinitionOperations
from loomlog.services.families.definition.table import DefinitionTable
from loomlog.services.families.opening import FamilyContext, FamilyServices, OwnedPartitions
from loomlog.services.families.pause import FAMILY as PAUSE
from loomlog.services.families.ports.availability import ProviderAvailability
from loomlog.services.families.ports.call_waits import CallWaits
from loomlog.services.families.ports.isolation import Isolation
from loomlog.services.families.ports.publishing import PublishRights
from loomlog.services.families.ports.run_ends import MessagePublisher
from loomlog.services.families.ports.visible_channels import VisibleChannels

NEEDS = ("definition",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelOptions:
    """What the configuration says of channels. `files`: see declarations.configured_channels."""

    files: Mapping[str, Declaration] = field(default_factory=dict)
    limits: ChannelLimits = ChannelLimits()  # noqa: RUF009 - frozen


def read_options(loaded: ProcessConfiguration) -> ChannelOptions:
    """Return the options of a process."""
    settings = loaded.settings
    return ChannelOptions(
        files=configured_channels(loaded.configuration),
        limits=ChannelLimits(
            value_bytes_max=settings.channels_max_value_bytes, longpoll_cap_ms=settings.channels_longpoll_cap_ms
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelServices:
    """What others use of channels."""

    declarations: ChannelDeclarations
    declared: DeclarationOperations
    operations: ChannelOperations


def open_family(context: FamilyContext) -> FamilyServices:
    """Open channels over the entities of this process, and follow the messages that it reads."""
    options = context.options(ChannelOptions)
    of_channels = context.parts.of(f"{FAMILY_NAME}:")
    cache = MessageCache(context.codec, topic=of_channels.topics.events)
    of_channels.replicas.on_event(FAMILY_NAME, cache.read, at_once=True)
    declarations = ChannelDeclarations(context.get(DefinitionTable), options.files)
    declared = DeclarationOperations(context.get(DefinitionOperations), declarations)
    store = ChannelStore(context.commands, context.reads, cache, clock_ms=context.clock_ms, decrypt=context.decrypt)
    operations = ChannelOperations(declarations, store, limits=options.limits, clock_ms=context.clock_ms)
    context.provide(ChannelServices(declarations=declarations, declared=declared, operations=operations))
    context.provide_as(VisibleChannels, declarations)
    context.provide_as(CallWaits, ChannelWaits(operations, clock_ms=context.clock_ms))
    handlers = ChannelHandlers(operations, declared, clock_ms=context.clock_ms)
    context.provide_as(PublishRights, handlers)
    services = FamilyServices(
        handlers=handlers.by_operation(),
        endpoints={FOLLOW: ChannelStreams(operations).answer},
        start_positions=lambda tenant, agent, user_id: declared.written_positions(tenant),
        close=operations.close,
    )
    owned = context.find(OwnedPartitions)
    if owned is None:
        return services
    context.provide_as(MessagePublisher, RunMessages(operations, context.get(Isolation)))
    system = SystemChannels(
        operations,
        declarations,
        codec=context.codec,
        decrypt=context.decrypt,
        availability=context.get(ProviderAvailability).table,
        is_active=owned.is_first,
        clock_ms=context.clock_ms,
    )
    context.parts.replicas.on_event(PAUSE.name, system.on_pause_event)
    return replace(
        services,
        tasks={"channels of the system": system.run},
        on_question=system.on_question,
        on_approval=system.on_asked,
    )
