"""Parser of environment variables: LOOMLOG_* by the table of settings.py, LOOMCYCLE_* names as aliases.

Pure: takes the mapping (main() passes os.environ) and returns values. There are three separate functions, because the
last one needs the configuration files, which need the first:

    read_settings    the values                              all invalid ones are reported together
    check_names      check of every name                     an unknown LOOMLOG_ name is an error, with the nearest one
    secret_names     names whose values must never leave     expansion refuses them, redaction masks them

An unknown LOOMCYCLE_ name is only a warning: it may belong to an unknown version of the reference. Names that the
configuration itself refers to (`token_env: LOOMCYCLE_TEAM_TOKEN`) are chosen by the operator and always accepted.

Before: settings.py, unsupported_keys.py. After: load.py.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

from loomlog.connectors.configuration.findings import (
    ConfigurationError,
    ConfigurationFinding,
    did_you_mean,
    format_value,
)
from loomlog.connectors.configuration.settings import OLD_PREFIX, PREFIX, SettingRow, Settings, setting_rows
from loomlog.connectors.configuration.unsupported_keys import (
    RETIRED_SETTINGS,
    UNSUPPORTED_SECRETS,
    UNSUPPORTED_SETTINGS,
)

PREFIXES = (PREFIX, OLD_PREFIX)


def read_settings(
    environ: Mapping[str, str], *, working_directory: Path
) -> tuple[Settings, list[ConfigurationFinding]]:
    """Return the settings and the warnings. `working_directory` resolves relative paths. Raises ConfigurationError."""
    errors: list[ConfigurationFinding] = []
    warnings: list[ConfigurationFinding] = []
    values: dict[str, object] = {}
    for row in setting_rows():
        name, text = _select_value(row, environ, warnings)
        if not text:
            values[row.field] = (
                _resolve_paths(row.default, working_directory) if row.value_type.is_path else row.default
            )
            continue
        try:
            value = row.value_type.parse(text)
        except ValueError as error:
            shown_value = "its value (hidden, it is a secret)" if row.is_secret else format_value(text)
            errors.append(ConfigurationFinding(message=f"{name}: {shown_value} is not usable: {error}"))
            continue
        values[row.field] = _resolve_paths(value, working_directory) if row.value_type.is_path else value
    errors += _find_retired(environ)
    if errors:
        raise ConfigurationError(errors)
    settings = Settings(**values)  # type: ignore[arg-type]  # the table's parsers give the fields' types; a test checks each
    if problems := _find_contradictions(settings):
        raise ConfigurationError(problems)
    return settings, warnings


def check_names(
    environ: Mapping[str, str], referenced: Collection[str] = ()
) -> tuple[list[ConfigurationFinding], list[ConfigurationFinding]]:
    """Return (errors, warnings) about names with our prefixes that no setting has. `referenced`: names used in the
    files.
    """
    errors: list[ConfigurationFinding] = []
    warnings: list[ConfigurationFinding] = []
    current = {row.name for row in setting_rows()}
    known = current | {row.old_name for row in setting_rows()}
    renamed = {row.old_name.removeprefix(OLD_PREFIX): row.name for row in setting_rows() if row.old_name}
    expected = known | set(referenced) | _collect_listed_names(environ)
    for name in sorted(environ):
        if not name.startswith(PREFIXES) or name in expected or _strip_prefix(name) in RETIRED_SETTINGS:
            continue
        feature = UNSUPPORTED_SETTINGS.get(_strip_prefix(name))
        if name.startswith(OLD_PREFIX):
            if not feature:
                hint = did_you_mean(name, known | {OLD_PREFIX + later for later in UNSUPPORTED_SETTINGS})
                warnings.append(
                    ConfigurationFinding(message=f"{name} is not a setting of this version and is ignored{hint}")
                )
        elif feature:
            warnings.append(
                ConfigurationFinding(
                    message=f"{name} belongs to {feature}, which is not in this version; it is ignored"
                )
            )
        else:
            instead = renamed.get(_strip_prefix(name))
            hint = f"; did you mean {instead}?" if instead else did_you_mean(name, current)
            errors.append(ConfigurationFinding(message=f"{name} is not a setting{hint}"))
    return errors, warnings


def secret_names() -> frozenset[str]:
    """Return environment names whose values no file may expand and no provider or principal may use
    as its own secret.
    """
    rows = [row for row in setting_rows() if row.is_secret]
    later = {prefix + suffix for prefix in PREFIXES for suffix in UNSUPPORTED_SECRETS}
    return frozenset({row.name for row in rows} | {row.old_name for row in rows if row.old_name} | later)


def is_setting(name: str) -> bool:
    """Return whether a name is that of a setting of this or of another version."""
    known = {name for row in setting_rows() for name in (row.name, row.old_name)}
    return name in known or _strip_prefix(name) in UNSUPPORTED_SETTINGS or _strip_prefix(name) in RETIRED_SETTINGS


def _select_value(row: SettingRow, environ: Mapping[str, str], warnings: list[ConfigurationFinding]) -> tuple[str, str]:
    """Return the name that was used and its text; our own name wins, with a warning when the two differ."""
    ours = environ.get(row.name, "").strip()
    old = environ.get(row.old_name, "").strip() if row.old_name else ""
    if ours and old and ours != old:
        warnings.append(
            ConfigurationFinding(message=f"{row.name} and {row.old_name} are both set and differ; {row.name} is used")
        )
    return (row.name, ours) if ours or not old else (row.old_name, old)


def _resolve_paths(value: object, working_directory: Path) -> object:
    if isinstance(value, str | Path):
        return working_directory / value
    if isinstance(value, tuple):
        return tuple(working_directory / part for part in value)
    return value


def _find_retired(environ: Mapping[str, str]) -> list[ConfigurationFinding]:
    return [
        ConfigurationFinding(message=f"{prefix}{suffix} was replaced by volumes and must not be set; {hint}")
        for suffix, hint in RETIRED_SETTINGS.items()
        for prefix in PREFIXES
        if environ.get(prefix + suffix)
    ]


def _find_contradictions(settings: Settings) -> list[ConfigurationFinding]:
    """Return the contradictions between settings that are valid one by one."""
    problems: list[str] = []
    sasl = settings.kafka_security_protocol.startswith("SASL_")
    tls = settings.kafka_security_protocol.endswith("SSL")
    missing = [
        name
        for name, value in (
            ("LOOMLOG_KAFKA_SASL_MECHANISM", settings.kafka_sasl_mechanism),
            ("LOOMLOG_KAFKA_USERNAME", settings.kafka_username),
            ("LOOMLOG_KAFKA_PASSWORD", settings.kafka_password),
        )
        if not value
    ]
    if sasl and missing:
        problems.append(
            f"LOOMLOG_KAFKA_SECURITY_PROTOCOL is {settings.kafka_security_protocol}, which needs {', '.join(missing)}"
        )
    if not sasl and len(missing) < 3:
        problems.append(
            "LOOMLOG_KAFKA_SASL_MECHANISM, _USERNAME or _PASSWORD is set, but LOOMLOG_KAFKA_SECURITY_PROTOCOL is "
            f"{settings.kafka_security_protocol}, which would not send them; use SASL_SSL or SASL_PLAINTEXT"
        )
    if not tls and (settings.kafka_ca_file or settings.kafka_cert_file or settings.kafka_key_file):
        problems.append(
            "LOOMLOG_KAFKA_CA_FILE, _CERT_FILE or _KEY_FILE is set, but LOOMLOG_KAFKA_SECURITY_PROTOCOL is "
            f"{settings.kafka_security_protocol}, which does not encrypt; use SSL or SASL_SSL"
        )
    if bool(settings.kafka_cert_file) != bool(settings.kafka_key_file):
        problems.append("LOOMLOG_KAFKA_CERT_FILE and LOOMLOG_KAFKA_KEY_FILE belong together; one of them is missing")
    if settings.audit_key_file and settings.audit_key:
        problems.append("LOOMLOG_AUDIT_KEY_FILE and LOOMLOG_AUDIT_KEY are both set; one key signs, set one of them")
    if settings.encryption_key_file and settings.encryption_key:
        problems.append("LOOMLOG_ENCRYPTION_KEY_FILE and LOOMLOG_ENCRYPTION_KEY are both set; set one of them")
    if bool(settings.postgres_sslcert) != bool(settings.postgres_sslkey):
        problems.append("LOOMLOG_POSTGRES_SSLCERT and LOOMLOG_POSTGRES_SSLKEY belong together; one of them is missing")
    if settings.postgres_min_connections > settings.postgres_max_connections:
        problems.append("LOOMLOG_POSTGRES_MIN_CONNECTIONS is larger than LOOMLOG_POSTGRES_MAX_CONNECTIONS")
    return [ConfigurationFinding(message=message) for message in problems]


def _strip_prefix(name: str) -> str:
    return name.removeprefix(PREFIX).removeprefix(OLD_PREFIX)


def _collect_listed_names(environ: Mapping[str, str]) -> set[str]:
    """Return names that other settings list as names (which secrets a webhook may use, which variables Bash sees)."""
    suffixes = ("BASH_ALLOWED_ENV", "BASH_ALLOWED_CREDS", "SCHEDULER_ENV_ALLOWLIST", "WEBHOOKS_ENV_ALLOWLIST")
    texts = [environ.get(prefix + suffix, "") for prefix in PREFIXES for suffix in suffixes]
    # A name may have its tenant before it: acme:NAME.
    return {name.rpartition(":")[2].strip() for text in texts for name in text.split(",") if name.strip()}
