"""The secrets of webhooks: environment variables that a definition names, and that it may name.

A definition is written by any operator of a tenant, and a signature tells whether a guess of a secret is right, so it
may not name just any variable: those with our prefixes that are no secrets of the installation, the usual names of
third parties, those that the operator of the installation lists, and those that the files name.

While a secret is rotated its variable has both, with a space between: either is taken. A secret has no spaces.

Before: the environment of an api, at its start. After: signatures.py.
"""

from collections.abc import Collection, Mapping, Sequence

from loomlog.connectors.configuration.webhook_block import WebhookBlock

PREFIXES = ("LOOMLOG_", "LOOMCYCLE_")
THIRD_PARTY = frozenset(
    {
        "GITHUB_WEBHOOK_SECRET",
        "GITLAB_WEBHOOK_TOKEN",
        "LINEAR_WEBHOOK_SECRET",
        "SHOPIFY_WEBHOOK_SECRET",
        "SLACK_SIGNING_SECRET",
        "STRIPE_WEBHOOK_SECRET",
        "SVIX_WEBHOOK_SECRET",
    }
)
"""Verification secrets under the names that their senders' manuals use."""


class SecretMissing(Exception):
    """The secret cannot be used: `name` is the variable, the text says what to do."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class WebhookSecrets:
    """The secrets of a process. `protected` are the names of the installation's own secrets."""

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        protected: Collection[str],
        allowed: Collection[str] = (),
        files: Collection[WebhookBlock] = (),
    ) -> None:
        self._environ = environ
        self._protected = frozenset(protected)
        named = (name for block in files for name in names_of(block))
        self._allowed = THIRD_PARTY | frozenset(allowed) | frozenset(named)

    def may_use(self, name: str) -> bool:
        """Return whether a definition may name a variable."""
        return name not in self._protected and (name in self._allowed or name.startswith(PREFIXES))

    def of(self, block: WebhookBlock) -> Sequence[bytes]:
        """Return the secrets that prove a request; none for kind none. Raises SecretMissing."""
        if block.auth.kind == "none":
            return ()
        name = (block.auth.signing_secret_env if block.auth.kind == "hmac" else block.auth.bearer_token_env) or ""
        return [secret.encode("utf-8", "surrogateescape") for secret in self._value(name).split()]

    def credentials(self, block: WebhookBlock) -> Mapping[str, str]:
        """Return the credentials of runs that come from the environment. Raises SecretMissing."""
        return {name: self._value(variable) for name, variable in block.user_credentials_from_env.items()}

    def _value(self, name: str) -> str:
        if not self.may_use(name):
            advice = "list it in LOOMLOG_WEBHOOKS_ENV_ALLOWLIST, or use a name that begins with LOOMLOG_"
            raise SecretMissing(name, f"a webhook may not use the variable {name}: {advice}")
        value = self._environ.get(name, "")
        if not value.strip():
            raise SecretMissing(name, f"the variable {name} is not set")
        return value


def names_of(block: WebhookBlock) -> list[str]:
    """Return the variables that a definition names."""
    named = (block.auth.signing_secret_env, block.auth.bearer_token_env, *block.user_credentials_from_env.values())
    return [name for name in named if name]
