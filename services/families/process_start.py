"""The configuration that a process starts with: read, and tried on everything for which the process would not start.

The mains of the services, `loomlog up`, `loomlog doctor` and `loomlog agents check` come through here, so that nothing
that passes the check stops a service. What is tried is what the services build of the configuration, and building it
opens nothing.

Before: connectors/configuration/load.py. After: the main of each service; services/cli.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Literal

from loomlog.connectors.configuration.driver_options import encryption_keys, installation_key
from loomlog.connectors.configuration.findings import ConfigurationError, ConfigurationFinding
from loomlog.connectors.configuration.issuer_check import read_client_secrets
from loomlog.connectors.configuration.load import ProcessConfiguration, load
from loomlog.connectors.configuration.principals import build_token_table, is_loopback_listen_addr
from loomlog.connectors.configuration.providers import build_providers, run_key_provider_ids, usable_provider_ids
from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.configuration.tier_check import check_tiers
from loomlog.connectors.configuration.tree import KeyPath, find_mark
from loomlog.connectors.configuration.volumes import check_volumes
from loomlog.connectors.crypto.content_encryption import KeyEncryptionKeys
from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.errors import Permanent
from loomlog.connectors.models.catalog import build_model
from loomlog.services.core.refusals import StartProblem
from loomlog.services.families.registry import all_families, family_tools

Service = Literal["api", "runtime"]
SERVICES: tuple[Service, ...] = ("api", "runtime")
Check = Callable[[ProcessConfiguration, Mapping[str, str]], Sequence[ConfigurationFinding]]
"""Returns warnings. Raises ConfigurationError with every mistake that it finds."""


def load_for_start(
    environ: Mapping[str, str],
    *,
    working_directory: Path,
    services: Sequence[Service] = SERVICES,
    open_on_this_machine: bool = False,
) -> ProcessConfiguration:
    """Return the configuration with which those services start. Raises ConfigurationError with every mistake, and
    FamilyProblem for a family that cannot be loaded.

    `open_on_this_machine`: as `loomlog up` starts them, which needs no token here.
    """
    loaded = load(environ, working_directory=working_directory, family_tools=family_tools())
    if open_on_this_machine and opens_by_default(loaded):
        loaded = replace(loaded, settings=replace(loaded.settings, open_mode=True))
    return replace(loaded, warnings=(*loaded.warnings, *check_start(loaded, environ, services)))


def require_for_start(settings: Settings) -> tuple[KeyEncryptionKeys | None, SecretKey | None]:
    """Return the keys of content, and those of the installation. Raises StartProblem, also if no server is named."""
    for name, value in (("LOOMLOG_KAFKA", settings.kafka), ("LOOMLOG_POSTGRES", settings.postgres)):
        if not value:
            raise StartProblem(f"{name} is not set: start everything with `loomlog up`, or name a server")
    try:
        return encryption_keys(settings), installation_key(settings)
    except Permanent as error:
        raise StartProblem(str(error)) from error


def check_start(
    loaded: ProcessConfiguration, environ: Mapping[str, str], services: Sequence[Service] = SERVICES
) -> list[ConfigurationFinding]:
    """Return warnings about the start of those services. Raises ConfigurationError with all that would end it."""
    checks = dict.fromkeys(check for service in services for check in CHECKS[service])
    if "runtime" in services:
        checks.pop(check_tiers_of_api, None)  # that of the runtime is the stricter one
    return apply_checks(tuple(checks), loaded, environ)


def apply_checks(
    checks: Sequence[Check], loaded: ProcessConfiguration, environ: Mapping[str, str]
) -> list[ConfigurationFinding]:
    """Return the warnings of all checks. Raises ConfigurationError with the mistakes that all of them found."""
    warnings: list[ConfigurationFinding] = []
    errors: list[ConfigurationFinding] = []
    for check in checks:
        try:
            warnings += check(loaded, environ)
        except ConfigurationError as problem:
            errors += problem.findings
    if errors:
        raise ConfigurationError(errors)
    return warnings


def opens_by_default(loaded: ProcessConfiguration) -> bool:
    """Return whether `loomlog up` lets everybody in: there is no token, and only this machine reaches the address.

    Without a token there is no access otherwise; on this machine alone, open access is what a first start needs.
    """
    settings = loaded.settings
    has_tokens = bool(settings.auth_token or loaded.configuration.principals or loaded.configuration.issuers)
    return settings.open_mode or (not has_tokens and all(map(is_loopback_listen_addr, settings.listen_addrs)))


def check_families(loaded: ProcessConfiguration, environ: Mapping[str, str]) -> Sequence[ConfigurationFinding]:
    """Refuse what families cannot take."""
    checks = [import_module(family.start_check) for family in all_families() if family.start_check]
    _refuse(loaded, [problem for module in checks for problem in module.find_start_problems(loaded, environ)])
    return ()


def check_models(loaded: ProcessConfiguration, environ: Mapping[str, str]) -> Sequence[ConfigurationFinding]:
    """Refuse the providers whose drivers cannot be built."""
    problems: list[tuple[KeyPath, str]] = []
    providers = build_providers(loaded.configuration, loaded.settings, environ)
    for_runs = run_key_provider_ids(providers.values(), loaded.settings)
    for name in sorted(usable_provider_ids(providers.values()) | for_runs):
        try:
            build_model(providers[name])
        except Permanent as error:
            problems.append((("providers", name), f"providers.{error}"))
    _refuse(loaded, problems)
    return ()


def check_tiers_of_api(loaded: ProcessConfiguration, environ: Mapping[str, str]) -> Sequence[ConfigurationFinding]:
    """Refuse tiers that lead nowhere, whatever keys the runtimes have: an api may know none of them."""
    providers = build_providers(loaded.configuration, loaded.settings, environ)
    usable = [name for name, one in providers.items() if one.is_usable or one.needs_key]
    check_tiers(loaded.configuration, usable, tree=loaded.tree)
    return ()


def check_tiers_of_runtime(loaded: ProcessConfiguration, environ: Mapping[str, str]) -> Sequence[ConfigurationFinding]:
    """Return warnings about tiers, and refuse those that lead nowhere with the keys that are there."""
    providers = build_providers(loaded.configuration, loaded.settings, environ).values()
    for_runs = run_key_provider_ids(providers, loaded.settings)
    return check_tiers(loaded.configuration, usable_provider_ids(providers), for_runs, tree=loaded.tree)


def check_tokens(loaded: ProcessConfiguration, environ: Mapping[str, str]) -> Sequence[ConfigurationFinding]:
    """Refuse tokens that are missing or held by two, and a sign-in that lacks a secret."""
    build_token_table(loaded.configuration, loaded.settings, environ)
    read_client_secrets(loaded.configuration.issuers, environ, has_key=bool(loaded.settings.secret_key))
    return ()


def check_folders(loaded: ProcessConfiguration, environ: Mapping[str, str]) -> Sequence[ConfigurationFinding]:
    """Return warnings about missing folders of volumes, and refuse those that cannot be made."""
    return check_volumes(loaded.configuration)


CHECKS_OF_CONTENT: tuple[Check, ...] = (check_families, check_models, check_tiers_of_runtime)
"""Those of what the files say; folders and tokens are matters of the machine."""
CHECKS: Mapping[Service, tuple[Check, ...]] = {
    "api": (check_families, check_tiers_of_api, check_tokens),
    "runtime": (*CHECKS_OF_CONTENT, check_folders),
}


def _refuse(loaded: ProcessConfiguration, problems: Iterable[tuple[KeyPath, str]]) -> None:
    findings: list[ConfigurationFinding] = []
    for path, message in problems:
        mark = find_mark(loaded.tree, path)
        findings.append(ConfigurationFinding(message=message, file=mark.file, line=mark.line))
    if findings:
        raise ConfigurationError(findings)
