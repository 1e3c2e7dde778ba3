"""Checks of the block `webhooks`: the rules of definitions of webhooks, and what only files can be checked for.

Before: webhook_block.py. After: check.py.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from loomlog.connectors.configuration.findings import did_you_mean
from loomlog.connectors.configuration.tree import KeyPath
from loomlog.connectors.configuration.webhook_block import WebhookBlock


def iter_webhook_errors(
    webhooks: Mapping[str, WebhookBlock], agents: Mapping[str, Any], secrets: Collection[str]
) -> Iterator[tuple[KeyPath, str]]:
    """Yield the place and the text of each mistake. `secrets`: names of the secrets of the installation."""
    # Here, because the package of definitions is made of the blocks of this one.
    from loomlog.connectors.definitions import DefinitionProblem
    from loomlog.connectors.definitions.webhook import check_webhook

    for name, webhook in webhooks.items():
        path: KeyPath = ("webhooks", name)
        try:
            check_webhook(webhook)
        except DefinitionProblem as problem:
            yield path, str(problem)
        if webhook.agent and webhook.agent not in agents:
            yield (*path, "agent"), f"there is no agent {webhook.agent}{did_you_mean(webhook.agent, agents)}"
        for key in ("signing_secret_env", "bearer_token_env"):
            if (variable := getattr(webhook.auth, key)) in secrets:
                message = f"{variable} is a secret of the installation: give the webhook one of its own"
                yield (*path, "auth", key), message
