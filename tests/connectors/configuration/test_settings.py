from dataclasses import fields
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from loomlog.connectors.configuration.environment import read_settings
from loomlog.connectors.configuration.setting_types import PATH, PATHS
from loomlog.connectors.configuration.settings import OLD_PREFIX, PREFIX, SettingRow, Settings, setting_rows
from loomlog.connectors.configuration.unsupported_keys import RETIRED_SETTINGS, UNSUPPORTED_SETTINGS

SAMPLES = {
    "text": "some",
    "1 or 0": "1",
    "0 to 1": "0.5",
    "names with commas between": "a,b",
    "host:port": "127.0.0.1:1",
    "host:port or off": "127.0.0.1:1",
    "host:port, several with commas between": "a:1,b:2",
    "URL": "http://a.example",
    "origins with commas between": "https://a.example,http://localhost:1",
    "path": "a/b",
    "paths with colons between": "a:b",
}


def is_of(value: object, hint: Any) -> bool:
    if isinstance(hint, UnionType):
        return any(is_of(value, part) for part in get_args(hint))
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(is_of(part, get_args(hint)[0]) for part in value)
    return type(value) is hint or (hint is Path and isinstance(value, Path))


def sample(row: SettingRow) -> str:
    if row.value_type.label in SAMPLES:
        return SAMPLES[row.value_type.label]
    return (
        row.value_type.label.split(" or ")[0]
        if " or " in row.value_type.label and "," not in row.value_type.label
        else "1000"
    )


@pytest.mark.parametrize("row", setting_rows(), ids=lambda row: row.field)
def test_every_default_and_every_parsed_value_has_the_type_of_its_field(row: SettingRow):
    hint = get_type_hints(Settings)[row.field]
    assert is_of(row.default, hint)
    text = next(t for t in (sample(row), "1", "5000") if _parses(row, t))
    parsed: object = row.value_type.parse(text)
    if row.value_type is PATH:
        parsed = Path(str(parsed))
    if row.value_type is PATHS:
        assert isinstance(parsed, tuple)
        parsed = tuple(Path(part) for part in parsed)
    assert is_of(parsed, hint), (row.field, parsed)


def _parses(row: SettingRow, text: str) -> bool:
    try:
        row.value_type.parse(text)
    except ValueError:
        return False
    return True


def test_names_are_unique_and_never_also_later_or_retired():
    names = [name for row in setting_rows() for name in (row.name, row.old_name) if name]
    assert len(names) == len(set(names))
    suffixes = {name.removeprefix(PREFIX).removeprefix(OLD_PREFIX) for name in names}
    assert not suffixes & set(UNSUPPORTED_SETTINGS)
    assert not suffixes & set(RETIRED_SETTINGS)


def test_a_setting_is_named_after_its_field():
    assert {row.name for row in setting_rows()} == {"LOOMLOG_" + field.name.upper() for field in fields(Settings)}


def test_every_meaning_is_a_sentence():
    assert [row.field for row in setting_rows() if not row.meaning.endswith(".")] == []


def test_no_secret_is_in_the_text_of_the_settings(tmp_path: Path):
    environ = {row.name: f"hidden-{row.field}" for row in setting_rows() if row.is_secret}
    environ["LOOMLOG_KAFKA_SECURITY_PROTOCOL"] = "SASL_SSL"
    environ["LOOMLOG_KAFKA_SASL_MECHANISM"] = "PLAIN"
    environ["LOOMLOG_KAFKA_USERNAME"] = "loom"
    settings, _ = read_settings(environ, working_directory=tmp_path)
    assert settings.kafka_password == "hidden-kafka_password"
    assert len(environ) == 14
    assert "hidden-" not in repr(settings)


def test_what_is_derived_follows_what_is_set(tmp_path: Path):
    settings, _ = read_settings(
        {"LOOMLOG_HOME": "h", "LOOMLOG_POSTGRES_SSLMODE": "verify-full"}, working_directory=tmp_path
    )
    assert settings.effective_blob_folder == tmp_path / "h" / "blobs"
    assert settings.effective_sqlmem_root == tmp_path / "h" / "sqlmem"
    assert settings.api_url == "http://127.0.0.1:8787"
    assert settings.postgres_tls_options() == {"sslmode": "verify-full"}
    everywhere, _ = read_settings({"LOOMLOG_LISTEN_ADDR": "0.0.0.0:81"}, working_directory=tmp_path)
    assert everywhere.api_url == "http://127.0.0.1:81"
    environ = {
        "LOOMLOG_BLOB_FOLDER": "b",
        "LOOMCYCLE_SQLMEM_ROOT": "s",
        "LOOMLOG_BASE_URL": "https://a.example/",
        "LOOMLOG_POSTGRES_SSLROOTCERT": "ca",
    }
    settings, _ = read_settings(environ, working_directory=tmp_path)
    assert settings.effective_blob_folder == tmp_path / "b"
    assert settings.effective_sqlmem_root == tmp_path / "s"
    assert settings.api_url == "https://a.example"
    assert settings.postgres_tls_options() == {"sslrootcert": str(tmp_path / "ca")}


def test_settings_of_memory_have_the_limits_of_the_reference(tmp_path: Path):
    settings, _ = read_settings({}, working_directory=tmp_path)
    assert (settings.memory_max_value_bytes, settings.memory_max_scope_bytes) == (65_536, 1_048_576)
    assert settings.memory_changes_retention_hours == 24
    assert (settings.memory_embed_batch_size, settings.memory_embed_timeout_ms) == (100, 30_000)
    assert (settings.memory_changes_enabled, settings.embedder_stub, settings.sqlmem_enabled) == (True, False, True)
    assert settings.change_sub_interval_ms == 5_000
    assert (settings.max_consolidation_concurrency, settings.sqlmem_max_rows) == (4, 10_000)
    assert (settings.sqlmem_statement_timeout_ms, settings.sqlmem_txn_timeout_ms) == (30_000, 30_000)
    assert (settings.sqlmem_max_open_txns, settings.sqlmem_max_txn_depth) == (64, 16)
    assert settings.sqlmem_quota_bytes == 52_428_800
    old = {"LOOMCYCLE_MEMORY_MAX_SCOPE_BYTES": "0", "LOOMCYCLE_SQLMEM_QUOTA_BYTES": "0"}
    unbounded, _ = read_settings(old, working_directory=tmp_path)
    assert (unbounded.memory_max_scope_bytes, unbounded.sqlmem_quota_bytes) == (0, 0)
