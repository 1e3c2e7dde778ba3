import base64
from pathlib import Path

import pytest

from loomlog.connectors.configuration import ConfigurationError, read_settings
from loomlog.connectors.crypto.signatures import generate_key, write_new_key
from loomlog.connectors.errors import Permanent
from loomlog.redpanda.topics import load_topics
from loomlog.services.auditor.settings import auditor_settings, budget_settings

RAW = base64.b64encode(bytes(range(32))).decode()


def told(folder: Path, **environ: str):
    named = {"LOOMLOG_KAFKA": "k.test:1", **{f"LOOMLOG_AUDIT_{k}": v for k, v in environ.items()}}
    settings, _ = read_settings(named, working_directory=folder)
    return auditor_settings(settings)


def test_the_key_comes_from_a_file_or_from_the_environment(tmp_path):
    key, _ = write_new_key(tmp_path / "k")
    assert told(tmp_path, KEY_FILE="k").key.key_id == key.key_id
    assert told(tmp_path, KEY=RAW).key.key_id == "56475aa75463474c"
    with pytest.raises(ConfigurationError, match="both set"):
        told(tmp_path, KEY=RAW, KEY_FILE="k")


def test_old_keys_are_trusted_beside_our_own(tmp_path):
    old = generate_key().public
    (tmp_path / "public").write_text(old.text)
    found = told(tmp_path, KEY=RAW, PUBLIC_KEYS="public", EVERY_RECORDS="7", EVERY_MS="2500")
    assert set(found.trusted) == {"56475aa75463474c", old.key_id}
    assert (found.every_records, found.every_s) == (7, 2.5)


def test_the_books_are_signed_with_the_same_key_in_the_same_rhythm_under_topics_of_their_own(tmp_path):
    runs = told(tmp_path, KEY=RAW)
    books = budget_settings(runs)
    assert (books.key, books.trusted, books.every_records, books.every_s) == (
        runs.key,
        runs.trusted,
        runs.every_records,
        runs.every_s,
    )
    names = {topic.name for topic in load_topics()}
    for one in (runs, books):
        assert {one.events_topic, one.checkpoints_topic} <= names
    assert not {books.events_topic, books.checkpoints_topic} & {runs.events_topic, runs.checkpoints_topic}


def test_without_a_key_or_a_broker_it_says_what_to_do(tmp_path):
    with pytest.raises(Permanent, match="loomlog audit keygen"):
        told(tmp_path)
    settings, _ = read_settings({"LOOMLOG_AUDIT_KEY": RAW}, working_directory=tmp_path)
    with pytest.raises(Permanent, match="LOOMLOG_KAFKA is not set"):
        auditor_settings(settings)
    assert RAW not in repr(settings)
