"""Each variable of the environment is of the use that was given to it, and of no other."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest

from loomlog.connectors.configuration.field_types import EnvName
from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.configuration.model import Configuration, validate
from loomlog.connectors.configuration.secret_registry import (
    TENANT_KEY_VARIABLE,
    THIRD_PARTY,
    Purpose,
    SecretRefused,
    SecretRegistry,
    SecretUnset,
    build_secret_registry,
    require_signature,
    secret_uses,
    signature_secrets,
)
from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.configuration.webhook_block import WebhookAuth, WebhookBlock
from loomlog.services.core.refusals import Refused
from loomlog.services.families.memory.backends import _Tenancy
from loomlog.services.families.webhook.definition import WebhookDefinition
from loomlog.services.families.webhook.secrets import environment_credentials, proof_secrets
from tests.connectors.configuration.conftest import Folder

TENANTS = ("acme", "globex", "default")
URL = "https://crm.example.com/done"
HOOK = {"kind": "http", "url": URL, "secret_env": "PLANTED_HOOK"}
BACKEND = {"kind": "remote", "config": {"base_url": "https://memory.example.com", "api_key_env": "PLANTED_BACKEND"}}
BLOCKS: Mapping[str, Any] = {
    "principals": {"ann": {"tenant": "acme", "subject": "a", "scopes": ["runs:read"], "token_env": "LOOMLOG_PLANTED"}},
    "credential_stores": {
        "vault": {"type": "vault", "url": "https://vault.example", "tenants": "acme", "token_env": "STORE_TOKEN"},
        "aws": {"type": "aws", "region": "eu-central-1", "tenants": "acme"},
    },
    "issuers": {
        "company": {
            "issuer": "https://login.example.com",
            "audience": ["loomlog"],
            "tenant": "acme",
            "default_access": "tenant",
            "client_id": "page",
            "client_secret_env": "PLANTED_LOGIN",
        }
    },
    "providers": {"gate": {"driver": "openai", "base_url": "https://llm.example.com", "api_key_env": "PLANTED_MODEL"}},
    "memory": {"embedder": {"provider": "openai", "api_key_env": "PLANTED_EMBEDDER"}},
    "memory_backends": {
        "own": {**BACKEND, "tenancy_strategy": None},
        "each": {
            **BACKEND,
            "tenancy_strategy": {"kind": "key_per_tenant", "env_pattern": "PLANTED_{tenant_id}_KEY"},
        },
    },
    "change_subscriptions": {"crm": {"callback_url": URL, "secret_env": "PLANTED_FEED"}},
    "webhooks": {
        "signed": {
            "agent": "a",
            "tenant_id": "acme",
            "auth": {"kind": "hmac", "signing_secret_env": "PLANTED_SIGNING"},
            "user_credentials_from_env": {"token": "PLANTED_CREDENTIAL"},
            "on_complete": [HOOK],
        },
        "token": {"agent": "a", "auth": {"kind": "bearer", "bearer_token_env": "PLANTED_BEARER"}},
    },
    "scheduled_runs": {
        "nightly": {
            "agent": "a",
            "schedule": "@hourly",
            "tenant_id": "acme",
            "user_credentials_from_env": {"token": "PLANTED_OF_SCHEDULE"},
            "on_complete": [{**HOOK, "secret_env": "PLANTED_END"}],
        }
    },
    "secrets": {
        "PLANTED_CRM": {"tenants": ["acme"], "uses": ["callback"], "hosts": ["crm.example.com"]},
        "PLANTED_ALL": {"tenants": ["*"], "uses": ["schedule_credentials"]},
    },
}
"""A variable in each field of each block that names one."""
LISTED = Settings(
    webhooks_env_allowlist=("globex:LISTED_WEBHOOK",),
    scheduler_env_allowlist=("LISTED_SCHEDULE",),
    bash_allowed_creds=("LISTED_BASH",),
)
OTHERS = (
    "LOOMLOG_AUTH_TOKEN",
    "LOOMLOG_LISTEN_ADDR",
    "LOOMLOG_ENCRYPTION_KEY",
    "LOOMCYCLE_AUTH_TOKEN",
    "LOOMCYCLE_OLD_HOOK",
    "GITHUB_WEBHOOK_SECRET",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "HOME",
    "CALLBACK_SECRET_T",
    "LISTED_WEBHOOK",
    "LISTED_SCHEDULE",
    "LISTED_BASH",
    "PLANTED_acme_KEY",
    *(TENANT_KEY_VARIABLE + tenant for tenant in TENANTS),
)
ALLOWED = {
    ("webhook proof", "PLANTED_SIGNING", "acme"),
    ("webhook proof", "PLANTED_BEARER", "default"),
    ("webhook proof", "LISTED_WEBHOOK", "globex"),
    ("webhook proof", "LOOMCYCLE_OLD_HOOK", "default"),
    *(("webhook proof", name, tenant) for name in THIRD_PARTY for tenant in TENANTS),
    ("webhook credential", "LISTED_WEBHOOK", "globex"),
    *(("schedule credential", "LISTED_SCHEDULE", tenant) for tenant in TENANTS),
    *(("schedule credential", "PLANTED_ALL", tenant) for tenant in TENANTS),
    ("callback", "PLANTED_CRM", "acme"),
    ("callback", "PLANTED_HOOK", "acme"),
    ("callback", "PLANTED_END", "acme"),
    *(("backend", TENANT_KEY_VARIABLE + tenant, tenant) for tenant in TENANTS),
}
"""All that is allowed of every field, variable and tenant, for definitions made at run time and hooks of callers."""


def configuration() -> Configuration:
    made, mistakes = validate(BLOCKS)
    assert made is not None, mistakes
    return made


def variables() -> list[str]:
    """Every variable that a block names, and others that are set."""
    planted = {use.variable for use in secret_uses(configuration(), LISTED, {})}
    return sorted(planted | set(OTHERS) | {"PLANTED_OF_SCHEDULE"})


def registry() -> SecretRegistry:
    environ = {name: f"value-of-{name}" for name in variables()}
    return build_secret_registry(configuration(), LISTED, environ)


def made_webhook(tenant: str, **block: Any) -> WebhookDefinition:
    made = WebhookBlock(**{"agent": "a", "auth": WebhookAuth(kind="none"), **block})
    return WebhookDefinition(tenant=tenant, name="made", def_id="d", is_of_file=False, block=made)


def use_as_proof(secrets: SecretRegistry, variable: str, tenant: str) -> Any:
    hmac, bearer = (
        made_webhook(tenant, auth=WebhookAuth(kind="hmac", signing_secret_env=variable)),
        made_webhook(tenant, auth=WebhookAuth(kind="bearer", bearer_token_env=variable)),
    )
    values = proof_secrets(secrets, hmac)
    assert values == proof_secrets(secrets, bearer)
    return values[0].decode()


def use_as_webhook_credential(secrets: SecretRegistry, variable: str, tenant: str) -> Any:
    webhook = made_webhook(tenant, user_credentials_from_env={"key": variable})
    return environment_credentials(secrets, webhook)["key"]


def use_as_schedule_credential(secrets: SecretRegistry, variable: str, tenant: str) -> Any:
    return secrets.resolve(variable, Purpose.SCHEDULE_CREDENTIAL, tenant=tenant)


def use_as_callback(secrets: SecretRegistry, variable: str, tenant: str) -> Any:
    for url in ("https://evil.example/x", "https://crm.example.com.evil.example", "https:///x", ""):
        with pytest.raises(SecretRefused):
            require_signature(secrets, variable, url, tenant)
        with pytest.raises(SecretRefused):
            signature_secrets(secrets, variable, url, tenant)
    require_signature(secrets, variable, URL.upper().replace("HTTPS", "https"), tenant)
    return signature_secrets(secrets, variable, URL, tenant)[0]


def use_as_backend_key(secrets: SecretRegistry, variable: str, tenant: str) -> Any:
    content = {"kind": "remote", "config": {"base_url": "https://evil.example", "api_key_env": variable}}
    pattern = {"kind": "key_per_tenant", "env_pattern": variable.replace(tenant, "{tenant_id}")}
    keys = []
    for strategy in (None, pattern):
        made, mistakes = validate({"memory_backends": {"b": {**content, "tenancy_strategy": strategy}}})
        if made is None:  # a name that is no name of a variable in capitals
            content["config"].pop("api_key_env")
            assert mistakes
            continue
        keys.append(_Tenancy("b", made.memory_backends["b"], secrets, owner=tenant).key(tenant))
    return keys[-1]


FIELDS: Mapping[str, Callable[[SecretRegistry, str, str], Any]] = {
    "webhook proof": use_as_proof,
    "webhook credential": use_as_webhook_credential,
    "schedule credential": use_as_schedule_credential,
    "callback": use_as_callback,
    "backend": use_as_backend_key,
}
"""Every field of a definition made at run time, or of a request, that takes the name of a variable."""


@pytest.mark.parametrize("tenant", TENANTS)
@pytest.mark.parametrize("field", FIELDS)
def test_a_secret_of_one_use_is_refused_in_every_other_field(field: str, tenant: str) -> None:
    secrets, usable, refusals = registry(), set(), []
    for variable in variables():
        try:
            value = FIELDS[field](secrets, variable, tenant)
        except (SecretRefused, Refused) as refused:
            refusals.append(str(refused))
            continue
        assert value == f"value-of-{variable}"
        usable.add(variable)
    assert all("may not use it" in text and "value-of" not in text for text in refusals)
    assert usable == {variable for of, variable, owner in ALLOWED if (of, owner) == (field, tenant)}


def test_what_a_file_gives_its_webhook_is_for_that_webhook_alone() -> None:
    block = configuration().webhooks["signed"]
    file = WebhookDefinition(tenant="acme", name="signed", def_id="d", is_of_file=True, block=block)
    assert environment_credentials(registry(), file) == {"token": "value-of-PLANTED_CREDENTIAL"}
    made = WebhookDefinition(tenant="acme", name="signed", def_id="d", is_of_file=False, block=block)
    with pytest.raises(SecretRefused):
        environment_credentials(registry(), made)


def test_a_variable_without_a_value_is_told_apart_only_where_it_may_be_used() -> None:
    secrets = build_secret_registry(configuration(), LISTED, {"HOME": "x"})
    with pytest.raises(SecretUnset):
        secrets.resolve("PLANTED_SIGNING", Purpose.WEBHOOK_PROOF, tenant="acme")
    texts = set()
    for name in ("HOME", "NONE"):
        with pytest.raises(SecretRefused) as refused:
            secrets.resolve(name, Purpose.WEBHOOK_PROOF, tenant="acme")
        assert not isinstance(refused.value, SecretUnset)
        texts.add(str(refused.value).replace(name, ""))
    assert len(texts) == 1


# --- the entries -----------------------------------------------------------------------------------------------------


def env_fields(hint: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every field of the blocks that takes the name of a variable."""
    if hint == EnvName:
        yield path
    elif get_origin(hint) is Annotated:
        yield from env_fields(get_args(hint)[0], path)
    elif dataclasses.is_dataclass(hint):
        for name, of in get_type_hints(hint, include_extras=True).items():
            yield from env_fields(of, (*path, name))
    else:
        for part in get_args(hint):
            yield from env_fields(part, path)


def test_every_field_that_names_a_variable_gives_an_entry() -> None:
    fields = set(env_fields(Configuration))
    uses = secret_uses(configuration(), LISTED, {})
    given = {tuple(step for step in use.path if isinstance(step, str)) for use in uses}
    for path in fields - {("secrets",), ("scheduled_runs", "user_credentials_from_env")}:
        assert any(set(path) <= set(place) for place in given), path
    assert len(fields) == 17


def test_a_schedule_of_the_files_needs_the_list_too() -> None:
    assert not registry().allows("PLANTED_OF_SCHEDULE", Purpose.SCHEDULE_CREDENTIAL, tenant="acme")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("webhooks: {h: {agent: a, auth: {kind: bearer, bearer_token_env: %s}}}", "webhooks.h.auth.bearer_token_env"),
        ("providers: {p: {driver: openai, api_key_env: %s}}", "providers.p.api_key_env"),
        ("memory: {embedder: {provider: openai, api_key_env: %s}}", "memory.embedder.api_key_env"),
        ("change_subscriptions: {c: {callback_url: 'https://a.example', secret_env: %s}}", "change_subscriptions.c"),
        ("secrets: {%s: {tenants: ['*'], uses: [webhook]}}", "secrets."),
    ],
)
@pytest.mark.parametrize(
    ("variable", "owner"),
    [("LOOMLOG_AUTH_TOKEN", "a secret of the installation"), ("LOOMLOG_ANN", "the token")],
)
def test_tokens_have_no_other_use(folder: Folder, text: str, message: str, variable: str, owner: str) -> None:
    principals = "principals: {ann: {tenant: t, subject: s, scopes: [runs:read], token_env: LOOMLOG_ANN}}\n"
    agents = "agents: {a: {model: m, provider: mock}}\n"
    (line,) = folder.problems(agents + principals + text % variable)
    assert message in line
    assert f"{variable} is {owner}" in line


@pytest.mark.parametrize("setting", ["LOOMLOG_WEBHOOKS_ENV_ALLOWLIST", "LOOMLOG_BASH_ALLOWED_ENV"])
def test_tokens_cannot_be_listed(folder: Folder, setting: str) -> None:
    principals = "principals: {ann: {tenant: t, subject: s, scopes: [runs:read], token_env: LOOMLOG_ANN}}\n"
    with pytest.raises(ConfigurationError, match="LOOMLOG_ANN is the token of a principal"):
        folder.load(principals, {setting: "OTHER,LOOMLOG_ANN", "LOOMLOG_ANN": "x" * 20})


def test_callbacks_and_backends_need_hosts(folder: Folder) -> None:
    (line,) = folder.problems("secrets: {CRM: {tenants: [acme], uses: [callback]}}")
    assert "secrets.CRM.hosts: is missing" in line
    (line,) = folder.problems("secrets: {CRM: {tenants: [acme], uses: [callback], hosts: ['https://a.example/']}}")
    assert "a host name in lower case" in line


def test_a_listed_variable_is_known_and_masked(folder: Folder) -> None:
    text = "secrets: {LOOMLOG_CRM: {tenants: [acme], uses: [callback], hosts: [crm.example.com]}}"
    loaded = folder.load(text, {"LOOMLOG_CRM": "hush" * 8})
    assert loaded.secrets["LOOMLOG_CRM"] == "hush" * 8
    assert loaded.secret_registry.allows(
        "LOOMLOG_CRM", Purpose.CALLBACK_SIGNATURE, tenant="acme", host="crm.example.com"
    )


def test_a_rule_for_calls_signs_for_any_tenant_towards_its_address_alone() -> None:
    notify = {"url": "https://pager.example.com/calls", "secret_env": "PLANTED_PAGER"}
    rule = {"name": "pay", "then": "ask", "ask": {"subjects": ["ann"], "notify": notify}}
    blocks = ({"approvals": {"rules": [rule]}}, {"agents": {"teller": {"approvals": {"rules": [rule]}}}})
    for block in blocks:
        made, _ = validate(block)
        registry = build_secret_registry(made, Settings(), {"PLANTED_PAGER": "quiet"})
        assert signature_secrets(registry, "PLANTED_PAGER", notify["url"], "globex") == ["quiet"]
        with pytest.raises(SecretRefused):
            signature_secrets(registry, "PLANTED_PAGER", "https://other.example.com", "globex")
