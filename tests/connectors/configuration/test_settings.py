from dataclasses import fields
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from loomlog.connectors.configuration import Settings, read_settings, setting_rows
from loomlog.connectors.configuration.setting_types import PATH, PATHS
from loomlog.connectors.configuration.settings import OLD_PREFIX, PREFIX, SettingRow
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
    assert len(environ) == 13
    assert "hidden-" not in repr(settings)


def test_what_is_derived_follows_what_is_set(tmp_path: Path):
    settings, _ = read_settings(
        {"LOOMLOG_HOME": "h", "LOOMLOG_POSTGRES_SSLMODE": "verify-full"}, working_directory=tmp_path
    )
    assert settings.effective_blob_folder == tmp_path / "h" / "blobs"
    assert settings.api_url == "http://127.0.0.1:8787"
    assert settings.postgres_tls_options() == {"sslmode": "verify-full"}
    everywhere, _ = read_settings({"LOOMLOG_LISTEN_ADDR": "0.0.0.0:81"}, working_directory=tmp_path)
    assert everywhere.api_url == "http://127.0.0.1:81"
    environ = {
        "LOOMLOG_BLOB_FOLDER": "b",
        "LOOMLOG_BASE_URL": "https://a.example/",
        "LOOMLOG_POSTGRES_SSLROOTCERT": "ca",
    }
    settings, _ = read_settings(environ, working_directory=tmp_path)
    assert settings.effective_blob_folder == tmp_path / "b"
    assert settings.api_url == "https://a.example"
    assert settings.postgres_tls_options() == {"sslrootcert": str(tmp_path / "ca")}
