"""Which variable of the environment may be used for what, by which tenant and towards which host: one registry.

    secret_uses       every use that settings and blocks give, in one list
    SecretRegistry    built once at the start; `resolve` is the only way from a name in a definition or a request to a
                      value (a test looks for every other reader of the environment)

Nothing is allowed by what a name begins with. A variable that no entry gives to a tenant for a purpose is refused, set
or not, so a token of a principal or the secret of one tenant's webhook is of no use to anything else. Entries come from

    the block that names a variable    for that purpose alone, for its tenant, towards the host that it has
    the block `secrets`                what definitions made at run time and hooks of callers may name
    the lists of the settings          NAME for all tenants, or tenant:NAME
    names of the reference             usual names of senders; LOOMCYCLE_* that nothing else names, for the tenant
                                       default; MEMORY_BACKEND_KEY_<tenant> for that tenant. The names that are set are
                                       looked up once, here

What a webhook of the files gives its runs is of no use to one made at run time, so these are two purposes.

Before: model.py, settings.py. After: services/families/webhook/secrets.py, services/runtime/run/callback_posts.py.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import urlsplit

from loomlog.connectors.configuration.approvals_block import ApprovalsBlock
from loomlog.connectors.configuration.environment import is_setting, secret_names
from loomlog.connectors.configuration.findings import ConfigurationFinding
from loomlog.connectors.configuration.memory_block import (
    EMBEDDER_KEYS,
    TENANT_PLACEHOLDER,
    MemoryBackendBlock,
    MemoryBackendConfig,
)
from loomlog.connectors.configuration.model import Configuration
from loomlog.connectors.configuration.principals import DEFAULT_TENANT
from loomlog.connectors.configuration.secret_block import ALL_TENANTS, WORDS_WITH_HOSTS
from loomlog.connectors.configuration.settings import OLD_PREFIX, Settings
from loomlog.connectors.configuration.shape import format_path
from loomlog.connectors.configuration.tree import KeyPath, MappingNode, find_mark
from loomlog.connectors.configuration.trigger_block import CompletionHook

ANY = "*"
"""Any tenant, or any host."""
NO_HOST = "(none)"
"""Host of an address without one; no entry has it."""
TENANT_KEY_VARIABLE = "MEMORY_BACKEND_KEY_"
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
"""Secrets of webhooks under the names that their senders' manuals use."""


class Purpose(StrEnum):
    """What a variable is used for."""

    INSTALLATION = "installation"
    PRINCIPAL_TOKEN = "principal"
    ISSUER_SECRET = "issuer"
    PROVIDER_KEY = "provider"
    EMBEDDER_KEY = "embedder"
    BASH_VARIABLE = "bash"
    FEED_SIGNATURE = "change_subscription"
    FILE_CREDENTIAL = "webhook_file_credentials"
    WEBHOOK_PROOF = "webhook"
    WEBHOOK_CREDENTIAL = "webhook_credentials"
    SCHEDULE_CREDENTIAL = "schedule_credentials"
    CALLBACK_SIGNATURE = "callback"
    BACKEND_KEY = "memory_backend"
    CREDENTIAL = "credential"
    CREDENTIAL_STORE = "credential_store"


EXCLUSIVE: Mapping[Purpose, str] = {
    Purpose.INSTALLATION: "a secret of the installation",
    Purpose.PRINCIPAL_TOKEN: "the token of a principal",
    Purpose.ISSUER_SECRET: "the secret of a sign-in",
    Purpose.CREDENTIAL_STORE: "the key of a credential store",
}
"""Purposes whose variables have no other; what a person calls them."""
_ALLOW = {
    Purpose.FILE_CREDENTIAL: "name it in a webhook of the files",
    Purpose.WEBHOOK_PROOF: "list it in LOOMLOG_WEBHOOKS_ENV_ALLOWLIST, or in the block secrets with the use webhook",
    Purpose.WEBHOOK_CREDENTIAL: "list it in LOOMLOG_WEBHOOKS_ENV_ALLOWLIST, or in the block secrets with the use "
    "webhook_credentials",
    Purpose.SCHEDULE_CREDENTIAL: "list it in LOOMLOG_SCHEDULER_ENV_ALLOWLIST, or in the block secrets with the use "
    "schedule_credentials",
    Purpose.CALLBACK_SIGNATURE: "list it in the block secrets with the use callback and the host",
    Purpose.BACKEND_KEY: f"a backend that a tenant made takes {TENANT_KEY_VARIABLE}<tenant>; list others in the block "
    "secrets with the use memory_backend and the host",
    Purpose.FEED_SIGNATURE: "name it in the block change_subscriptions",
    Purpose.CREDENTIAL_STORE: "name it in the block credential_stores",
    Purpose.CREDENTIAL: "list it in the block secrets with the use credential",
}
"""What an operator does to allow a use."""


class SecretUse(NamedTuple):
    """An entry: a variable may be used for a purpose, by a tenant, towards a host."""

    variable: str
    purpose: Purpose
    tenant: str
    host: str
    path: KeyPath
    """Where it is given: keys of the files, or the name of a setting."""


class SecretRefused(Exception):
    """The variable may not be used so; the text says what to do. It is the same whether the variable is set or not."""

    def __init__(self, variable: str, message: str) -> None:
        super().__init__(message)
        self.variable = variable


class SecretUnset(SecretRefused):
    """The variable may be used, and has no value in this process."""


class SecretRegistry:
    """The entries, with the environment of this process."""

    def __init__(self, uses: Iterable[SecretUse], environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._allowed: dict[tuple[str, Purpose], set[tuple[str, str]]] = {}
        uses = list(uses)
        exclusive = {use.variable for use in uses if use.purpose in EXCLUSIVE}
        for use in uses:
            if use.variable not in exclusive or use.purpose in EXCLUSIVE:
                self._allowed.setdefault((use.variable, use.purpose), set()).add((use.tenant, use.host))

    @property
    def variables(self) -> Collection[str]:
        """The names of all entries."""
        return {variable for variable, _ in self._allowed}

    def allows(self, variable: str, purpose: Purpose, *, tenant: str, host: str = "") -> bool:
        """Return whether a tenant may use a variable for a purpose, towards a host if it has one."""
        places = self._allowed.get((variable, purpose), ())
        return any(of in (ANY, tenant) and to in (ANY, host) for of, to in places)

    def require(self, variable: str, purpose: Purpose, *, tenant: str, host: str = "") -> None:
        """Raise SecretRefused unless the use is allowed."""
        if not self.allows(variable, purpose, tenant=tenant, host=host):
            towards = f" towards {host[:80]}" if host else ""
            text = f"{variable} is not set, or the tenant {tenant[:64]} may not use it{towards}: {_ALLOW[purpose]}"
            raise SecretRefused(variable, text)

    def resolve(self, variable: str, purpose: Purpose, *, tenant: str, host: str = "") -> str:
        """Return the value of a variable. Raises SecretRefused; SecretUnset if it is allowed, and empty here."""
        self.require(variable, purpose, tenant=tenant, host=host)
        value = self._environ.get(variable, "")
        if not value.strip():
            raise SecretUnset(variable, f"the variable {variable} is not set in the environment of this process")
        return value


NO_SECRETS = SecretRegistry((), {})


def host_of(url: str) -> str:
    """Return the host of an address as entries have it; empty for one without a host."""
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return ""


def require_signature(registry: SecretRegistry, variable: str, url: str, tenant: str) -> None:
    """Raise SecretRefused unless a tenant may have callbacks to an address signed with a variable."""
    registry.require(variable, Purpose.CALLBACK_SIGNATURE, tenant=tenant, host=host_of(url) or NO_HOST)


def signature_secrets(registry: SecretRegistry, variable: str, url: str, tenant: str) -> list[str]:
    """Return the secrets that sign the callbacks of a tenant to an address. Raises SecretRefused."""
    host = host_of(url) or NO_HOST
    return registry.resolve(variable, Purpose.CALLBACK_SIGNATURE, tenant=tenant, host=host).split()


def build_secret_registry(
    configuration: Configuration, settings: Settings, environ: Mapping[str, str]
) -> SecretRegistry:
    """Return the registry of a process."""
    return SecretRegistry(secret_uses(configuration, settings, environ), environ)


def secret_uses(configuration: Configuration, settings: Settings, environ: Mapping[str, str]) -> list[SecretUse]:
    """Return every entry of a configuration."""
    uses = [*_of_installation(settings), *_of_blocks(configuration, environ)]
    claimed = {use.variable for use in uses}
    listed = [*_of_block_secrets(configuration), *_of_lists(settings)]
    return [*uses, *listed, *_of_names(environ, claimed | {use.variable for use in listed})]


def iter_secret_problems(uses: Iterable[SecretUse], root: MappingNode) -> Iterator[ConfigurationFinding]:
    """Yield each further use of a variable that has one use alone. A setting is one before a principal is."""
    uses = list(uses)
    owners = {use.variable: use.purpose for use in reversed(uses) if use.purpose in EXCLUSIVE}
    said_by_the_kind = (Purpose.INSTALLATION, Purpose.BACKEND_KEY)
    for use in uses:
        owner = owners.get(use.variable)
        if owner is None or owner == use.purpose or (owner, use.purpose) == said_by_the_kind:
            continue
        mark = find_mark(root, use.path)
        message = f"{format_path(use.path)}: {use.variable} is {EXCLUSIVE[owner]} and of no other use"
        yield ConfigurationFinding(message=message, file=mark.file, line=mark.line)


# --- entries ---------------------------------------------------------------------------------------------------------


def _of_installation(settings: Settings) -> Iterator[SecretUse]:
    for name in sorted(secret_names()):
        yield SecretUse(name, Purpose.INSTALLATION, ANY, ANY, (name,))
    for key, names in (
        ("LOOMLOG_BASH_ALLOWED_ENV", settings.bash_allowed_env),
        ("LOOMLOG_BASH_ALLOWED_CREDS", settings.bash_allowed_creds),
    ):
        for name in names:
            yield SecretUse(name, Purpose.BASH_VARIABLE, ANY, ANY, (key,))


def _of_blocks(configuration: Configuration, environ: Mapping[str, str]) -> Iterator[SecretUse]:
    """Yield what the operator has written: a variable, and what it is for."""
    for name, principal in configuration.principals.items():
        path: KeyPath = ("principals", name, "token_env")
        yield SecretUse(principal.token_env, Purpose.PRINCIPAL_TOKEN, principal.tenant, ANY, path)
    for name, issuer in configuration.issuers.items():
        if issuer.client_secret_env:
            path = ("issuers", name, "client_secret_env")
            yield SecretUse(issuer.client_secret_env, Purpose.ISSUER_SECRET, ANY, ANY, path)
    for name, store in configuration.credential_stores.items():
        for key, variable in store.variables:
            yield SecretUse(variable, Purpose.CREDENTIAL_STORE, ANY, ANY, ("credential_stores", name, key))
    for name, provider in configuration.providers.items():
        if provider.api_key_env:
            path = ("providers", name, "api_key_env")
            yield SecretUse(provider.api_key_env, Purpose.PROVIDER_KEY, ANY, host_of(provider.base_url) or ANY, path)
    if (embedder := configuration.memory.embedder) is not None:
        path = ("memory", "embedder", "api_key_env")
        for variable in [embedder.api_key_env] if embedder.api_key_env else sorted(EMBEDDER_KEYS):
            yield SecretUse(variable, Purpose.EMBEDDER_KEY, ANY, host_of(embedder.base_url) or ANY, path)
    for name, backend in configuration.memory_backends.items():
        yield from _of_backend(("memory_backends", name), backend, environ)
    for name, feed in configuration.change_subscriptions.items():
        path = ("change_subscriptions", name, "secret_env")
        yield SecretUse(
            feed.secret_env, Purpose.FEED_SIGNATURE, feed.tenant_id or ANY, host_of(feed.callback_url), path
        )
    for name, webhook in configuration.webhooks.items():
        tenant, path = webhook.tenant_id or DEFAULT_TENANT, ("webhooks", name)
        for key in ("signing_secret_env", "bearer_token_env"):
            if variable := getattr(webhook.auth, key):
                yield SecretUse(variable, Purpose.WEBHOOK_PROOF, tenant, ANY, (*path, "auth", key))
        for key, variable in webhook.user_credentials_from_env.items():
            place = (*path, "user_credentials_from_env", key)
            yield SecretUse(variable, Purpose.FILE_CREDENTIAL, tenant, ANY, place)
        yield from _of_hooks(path, webhook.on_complete, tenant)
    for name, schedule in configuration.scheduled_runs.items():
        yield from _of_hooks(("scheduled_runs", name), schedule.on_complete, schedule.tenant_id or DEFAULT_TENANT)
    yield from _of_rules(("approvals",), configuration.approvals)
    for name, agent in configuration.agents.items():
        yield from _of_rules(("agents", name, "approvals"), agent.approvals)


def _of_hooks(path: KeyPath, hooks: Iterable[CompletionHook], tenant: str) -> Iterator[SecretUse]:
    for number, hook in enumerate(hooks):
        if hook.secret_env:
            place = (*path, "on_complete", number, "secret_env")
            yield SecretUse(hook.secret_env, Purpose.CALLBACK_SIGNATURE, tenant, host_of(hook.url), place)


def _of_rules(path: KeyPath, block: ApprovalsBlock) -> Iterator[SecretUse]:
    """Yield the secrets of the addresses that rules tell; a rule of the files holds for runs of any tenant."""
    for number, rule in enumerate(block.rules):
        notify = rule.get("ask", {}).get("notify", {})
        if notify.get("secret_env"):
            place = (*path, "rules", number, "ask", "notify", "secret_env")
            yield SecretUse(notify["secret_env"], Purpose.CALLBACK_SIGNATURE, ANY, host_of(notify["url"]), place)


def _of_backend(path: KeyPath, backend: MemoryBackendBlock, environ: Mapping[str, str]) -> Iterator[SecretUse]:
    config, strategy = backend.config or MemoryBackendConfig(), backend.tenancy_strategy
    host = host_of(config.base_url)
    if config.api_key_env:
        tenant = DEFAULT_TENANT if strategy is None else ANY
        yield SecretUse(config.api_key_env, Purpose.BACKEND_KEY, tenant, host, (*path, "config", "api_key_env"))
    if strategy is not None and TENANT_PLACEHOLDER in strategy.env_pattern:
        beginning, _, end = strategy.env_pattern.partition(TENANT_PLACEHOLDER)
        for name, tenant in _tenants_of_names(environ, beginning, end):
            yield SecretUse(name, Purpose.BACKEND_KEY, tenant, host, (*path, "tenancy_strategy", "env_pattern"))


def _tenants_of_names(environ: Mapping[str, str], beginning: str, end: str = "") -> Iterator[tuple[str, str]]:
    """Yield the variables that are set and have a tenant's name between two texts, with that tenant."""
    for name in sorted(environ):
        if name.startswith(beginning) and name.endswith(end) and len(name) > len(beginning) + len(end):
            yield name, name[len(beginning) : len(name) - len(end)]


def _of_block_secrets(configuration: Configuration) -> Iterator[SecretUse]:
    for variable, block in configuration.secrets.items():
        for word in block.uses:
            for tenant in block.tenants:
                for host in block.hosts if word in WORDS_WITH_HOSTS else (ANY,):
                    of = ANY if tenant == ALL_TENANTS else tenant
                    yield SecretUse(variable, Purpose(word), of, host, ("secrets", variable))


def _of_lists(settings: Settings) -> Iterator[SecretUse]:
    webhooks = (Purpose.WEBHOOK_PROOF, Purpose.WEBHOOK_CREDENTIAL)
    for setting, entries, purposes in (
        ("LOOMLOG_WEBHOOKS_ENV_ALLOWLIST", settings.webhooks_env_allowlist, webhooks),
        ("LOOMLOG_SCHEDULER_ENV_ALLOWLIST", settings.scheduler_env_allowlist, (Purpose.SCHEDULE_CREDENTIAL,)),
    ):
        for entry in entries:
            tenant, _, variable = entry.rpartition(":")
            for purpose in purposes:
                yield SecretUse(variable.strip(), purpose, tenant.strip() or ANY, ANY, (setting,))


def _of_names(environ: Mapping[str, str], claimed: Collection[str]) -> Iterator[SecretUse]:
    """Yield the names of the reference that are set, and that nothing else has."""
    for name in sorted(THIRD_PARTY - set(claimed)):
        yield SecretUse(name, Purpose.WEBHOOK_PROOF, ANY, ANY, (name,))
    for name in sorted(environ):
        if name.startswith(OLD_PREFIX) and name not in claimed and not is_setting(name):
            yield SecretUse(name, Purpose.WEBHOOK_PROOF, DEFAULT_TENANT, ANY, (name,))
    for name, tenant in _tenants_of_names(environ, TENANT_KEY_VARIABLE):
        if name not in claimed:
            yield SecretUse(name, Purpose.BACKEND_KEY, tenant, ANY, (name,))
