"""Callbacks in a runtime: the attempts of those that are owned here. Other processes make none.

Before: services/families/opening.py. After: posts.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.connectors.configuration.secret_registry import NO_SECRETS, SecretRegistry
from loomlog.connectors.http.signed_callbacks import CallbackClient
from loomlog.services.families.callback.posts import OUTCOMES, CallbackPosts
from loomlog.services.families.callback.sends import RECEIVER
from loomlog.services.families.opening import FamilyContext, FamilyServices, OutcomeCounts, OwnedPartitions


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackOptions:
    """What the configuration says of callbacks."""

    secrets: SecretRegistry = NO_SECRETS
    """The variables that sign them."""
    private_hosts: Sequence[str] = ()
    """Private addresses that they may go to."""


def read_options(loaded: ProcessConfiguration) -> CallbackOptions:
    """Return the options of a process."""
    return CallbackOptions(secrets=loaded.secret_registry, private_hosts=loaded.settings.http_private_host_allowlist)


def open_family(context: FamilyContext) -> FamilyServices:
    """Open the attempts of this process."""
    if context.find(OwnedPartitions) is None:
        return FamilyServices()
    options = context.options(CallbackOptions)
    client = CallbackClient(private_hosts=options.private_hosts)
    posts = CallbackPosts(
        context.commands,
        context.reads,
        client,
        decrypt=context.decrypt,
        secrets=options.secrets,
        clock_ms=context.clock_ms,
    )
    return FamilyServices(
        tasks={"callbacks": posts.run},
        receivers={RECEIVER: posts.receive},
        outcomes=(
            OutcomeCounts(
                name="callback_attempts",
                summary="Attempts of callbacks, by outcome.",
                outcomes=OUTCOMES,
                counts=posts.ended,
            ),
        ),
        close=client.close,
    )
