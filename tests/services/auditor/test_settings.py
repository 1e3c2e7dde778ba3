import base64
from pathlib import Path

import pytest

from loomlog.connectors.configuration.environment import read_settings
from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.crypto.signatures import generate_key, write_new_key
from loomlog.connectors.errors import Permanent
from loomlog.redpanda.topics import load_topics
from loomlog.services.auditor.settings import EVENTS_TOPICS, auditor_settings, channel_settings, entity_settings
from loomlog.services.core.families import Audit
from loomlog.services.families.registry import all_families
from loomlog.services.stream.family import Topics

RAW = base64.b64encode(bytes(range(32))).decode()


def options_of(folder: Path, **environ: str):
    named = {"LOOMLOG_KAFKA": "k.test:1", **{f"LOOMLOG_AUDIT_{k}": v for k, v in environ.items()}}
    settings, _ = read_settings(named, working_directory=folder)
    return auditor_settings(settings)


def test_each_family_declares_what_the_signatures_of_its_topic_prove(tmp_path):
    options = options_of(tmp_path, KEY=RAW)
    is_kept = {one.events_topic: one.is_log_kept for one in (entity_settings(options), channel_settings(options))}
    for family in all_families():
        whole = is_kept[Topics.of(family.topics).events]
        assert family.lifecycle.audit is (Audit.WHOLE if whole else Audit.WHILE_KEPT), family.name


def test_the_key_comes_from_a_file_or_from_the_environment(tmp_path):
    key, _ = write_new_key(tmp_path / "k")
    assert options_of(tmp_path, KEY_FILE="k").key.key_id == key.key_id
    assert options_of(tmp_path, KEY=RAW).key.key_id == "56475aa75463474c"
    with pytest.raises(ConfigurationError, match="both set"):
        options_of(tmp_path, KEY=RAW, KEY_FILE="k")


def test_old_keys_are_trusted_like_our_own(tmp_path):
    old = generate_key().public
    (tmp_path / "public").write_text(old.text)
    options = options_of(tmp_path, KEY=RAW, PUBLIC_KEYS="public", EVERY_RECORDS="7", EVERY_MS="2500")
    assert set(options.trusted) == {"56475aa75463474c", old.key_id}
    assert (options.every_records, options.every_s) == (7, 2.5)


def test_events_of_entities_and_channels_are_signed_with_the_same_key_and_intervals_in_the_same_topic(tmp_path):
    runs = options_of(tmp_path, KEY=RAW)
    names = {topic.name for topic in load_topics()}
    every = (runs, entity_settings(runs), channel_settings(runs))
    for options in every:
        assert (options.key, options.trusted, options.every_records, options.every_s) == (
            runs.key,
            runs.trusted,
            runs.every_records,
            runs.every_s,
        )
        assert {options.events_topic, options.checkpoints_topic} <= names
        assert options.siblings | {options.events_topic} == EVENTS_TOPICS
        assert options.events_topic not in options.siblings
        assert options.checkpoints_topic == runs.checkpoints_topic, "a checkpoint names its topic under the signature"
    assert {options.events_topic for options in every} == EVENTS_TOPICS


def test_a_missing_key_or_broker_names_the_remedy(tmp_path):
    with pytest.raises(Permanent, match="loomlog audit keygen"):
        options_of(tmp_path)
    settings, _ = read_settings({"LOOMLOG_AUDIT_KEY": RAW}, working_directory=tmp_path)
    with pytest.raises(Permanent, match="LOOMLOG_KAFKA is not set"):
        auditor_settings(settings)
    assert RAW not in repr(settings)
