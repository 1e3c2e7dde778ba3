"""Webhooks in a process: opened once, for requests and for the reader of loom.ingress.

Before: services/families/opening.py. After: handlers.py, ingress.py.
"""

from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.connectors.kafka.group_reader import KafkaGroupReader
from loomlog.services.core.operations import Handlers
from loomlog.services.families.channel.services import ChannelServices
from loomlog.services.families.definition.table import DefinitionTable
from loomlog.services.families.identity.credentials import CredentialReader
from loomlog.services.families.opening import FamilyContext, FamilyServices, StartedRuns
from loomlog.services.families.ports.ingress import IngressLog
from loomlog.services.families.webhook.api import PUBLISH_EVENTS
from loomlog.services.families.webhook.cloud_event_endpoints import CloudEventEndpoint
from loomlog.services.families.webhook.definition import WebhookDefinitions
from loomlog.services.families.webhook.deliveries import DeliveryRows
from loomlog.services.families.webhook.delivery_builder import DeliveryBuilder
from loomlog.services.families.webhook.endpoints import WebhookEndpoints
from loomlog.services.families.webhook.handlers import WebhookHandlers
from loomlog.services.families.webhook.ingress import WebhookOptions, WebhookServices
from loomlog.services.families.webhook.ingress_group import IngressGroup
from loomlog.services.families.webhook.ingress_reader import IngressReader
from loomlog.services.families.webhook.receiving import WebhookReceiver
from loomlog.services.families.webhook.rejections import RejectionLog

NEEDS = ("channel", "definition", "identity")


def read_options(loaded: ProcessConfiguration) -> WebhookOptions:
    """Return the options of a process."""
    settings = loaded.settings
    return WebhookOptions(
        enabled=settings.webhooks_enabled,
        allow_unauthenticated=settings.webhooks_allow_unauthenticated,
        files=loaded.configuration.webhooks,
        secrets=loaded.secret_registry,
    )


def open_family(context: FamilyContext) -> FamilyServices:
    """Open webhooks; where nothing appends to loom.ingress, no delivery is given again."""
    options = context.options(WebhookOptions)
    services = WebhookServices(
        options=options,
        definitions=WebhookDefinitions(context.get(DefinitionTable), options.files),
        rows=DeliveryRows(context.reads),
    )
    context.provide(services)
    ingress = context.find(IngressLog)
    handlers = WebhookHandlers(
        services,
        ingress,
        context.parts.replicas,
        codec=context.codec,
        decrypt=context.decrypt,
        clock_ms=context.clock_ms,
    )
    started, by_operation = context.find(StartedRuns), handlers.by_operation()
    if ingress is not None:
        return _take_requests(context, ingress, services, by_operation)
    if started is None:
        return FamilyServices(handlers=by_operation)
    member = _join_group(context, started, services)
    lags = {started.ingress_topic: lambda: member.group.lag}
    return FamilyServices(handlers=by_operation, tasks={"webhooks": member.run}, lags=lags)


def _take_requests(
    context: FamilyContext, ingress: IngressLog, services: WebhookServices, by_operation: Handlers
) -> FamilyServices:
    """Return what a process with requests has."""
    channels = context.get(ChannelServices)
    rejections = RejectionLog(context.commands, services.own, clock_ms=context.clock_ms, new_token=ingress.new_token)
    receiver = WebhookReceiver(
        context,
        services,
        ingress,
        rejections,
        declarations=channels.declarations,
        channel_value_bytes=channels.operations.limits.value_bytes_max,
    )
    endpoints = {
        **WebhookEndpoints(receiver).by_endpoint(),
        PUBLISH_EVENTS: CloudEventEndpoint(receiver).publish,
    }
    return FamilyServices(handlers=by_operation, endpoints=endpoints, tasks={"refused deliveries": rejections.run})


def _join_group(context: FamilyContext, started: StartedRuns, services: WebhookServices) -> IngressGroup:
    """Return the reader of loom.ingress of this runtime."""
    channels = context.get(ChannelServices).operations
    builder = DeliveryBuilder(
        blobs=context.blobs,
        encryption=started.encryption,
        secrets=services.options.secrets,
        channel_value_bytes=channels.limits.value_bytes_max,
        credentials=started.credentials,
        secret=started.secret,
        stored=context.get(CredentialReader),
    )
    group = KafkaGroupReader(
        started.kafka, started.ingress_topic, started.ingress_group, session_timeout_ms=started.session_timeout_ms
    )
    reader = IngressReader(
        group,
        context.codec,
        context.commands,
        definitions=services.definitions,
        builder=builder,
        rows=services.rows,
        replicas=context.parts.replicas,
        channels=channels,
        dead_letters=started.dead_letters,
        clock_ms=context.clock_ms,
    )
    return IngressGroup(topic=started.ingress_topic, reader=reader, group=group)
