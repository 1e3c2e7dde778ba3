"""Webhooks in a process: opened once, for requests and for the reader of loom.ingress.

Before: services/families/opening.py. After: handlers.py, ingress.py.
"""

from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.services.families.definition.table import DefinitionTable
from loomlog.services.families.opening import FamilyContext, FamilyServices
from loomlog.services.families.webhook.definition import WebhookDefinitions
from loomlog.services.families.webhook.deliveries import DeliveryRows
from loomlog.services.families.webhook.handlers import WebhookHandlers
from loomlog.services.families.webhook.ingress import IngressLog, WebhookOptions, WebhookServices

NEEDS = ("definition",)


def read_options(loaded: ProcessConfiguration) -> WebhookOptions:
    """Return the options of a process."""
    settings = loaded.settings
    return WebhookOptions(
        enabled=settings.webhooks_enabled,
        allow_unauthenticated=settings.webhooks_allow_unauthenticated,
        files=loaded.configuration.webhooks,
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
    handlers = WebhookHandlers(
        services,
        context.provided.get(IngressLog),
        context.parts.replicas,
        codec=context.codec,
        decrypt=context.decrypt,
        clock_ms=context.clock_ms,
    )
    return FamilyServices(handlers=handlers.by_operation())
