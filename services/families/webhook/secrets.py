"""The secrets of webhooks: the values of variables that a definition names.

A definition is written by any operator of a tenant, and a signature tells whether a guess of a secret is right. So the
registry of the installation decides which variables it may name (connectors/configuration/secret_registry.py).

While a secret is rotated its variable has both, with a space between: either is taken. A secret has no spaces.

Before: the registry, built at the start of a process. After: signatures.py; the credentials of a run.
"""

from collections.abc import Mapping, Sequence

from loomlog.connectors.configuration.secret_registry import Purpose, SecretRegistry
from loomlog.services.families.webhook.definition import AddressedWebhook, WebhookDefinition


def proof_secrets(registry: SecretRegistry, webhook: AddressedWebhook) -> Sequence[bytes]:
    """Return the secrets that prove a request; none for kind none. Raises SecretRefused."""
    auth = webhook.webhook.auth
    if auth.kind == "none":
        return ()
    name = (auth.signing_secret_env if auth.kind == "hmac" else auth.bearer_token_env) or ""
    value = registry.resolve(name, Purpose.WEBHOOK_PROOF, tenant=webhook.tenant)
    return [secret.encode("utf-8", "surrogateescape") for secret in value.split()]


def environment_credentials(registry: SecretRegistry, webhook: WebhookDefinition) -> Mapping[str, str]:
    """Return the credentials of runs that come from the environment. Raises SecretRefused."""
    purpose = Purpose.FILE_CREDENTIAL if webhook.is_of_file else Purpose.WEBHOOK_CREDENTIAL
    named = webhook.webhook.user_credentials_from_env
    return {name: registry.resolve(variable, purpose, tenant=webhook.tenant) for name, variable in named.items()}
