"""Settings of the auditor, from the one table of settings (loomlog.connectors.configuration).

    LOOMLOG_KAFKA, LOOMLOG_KAFKA_*                  where the log is
    LOOMLOG_AUDIT_KEY_FILE or LOOMLOG_AUDIT_KEY     the key that signs
    LOOMLOG_AUDIT_PUBLIC_KEYS                       keys that signed before it (rotation)
    LOOMLOG_AUDIT_EVERY_RECORDS, _EVERY_MS          how often a partition is signed

Before: main.py reads the environment. After: loop.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from loomlog.connectors.configuration.driver_options import kafka_options
from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.crypto.signatures import (
    PublicKey,
    SigningKey,
    load_public_keys,
    load_signing_key,
    verification_keys,
)
from loomlog.connectors.errors import Permanent
from loomlog.connectors.kafka import KafkaOptions

EVENTS_TOPIC = "loom.run.events"
CHECKPOINTS_TOPIC = "loom.audit.checkpoints"
ENTITY_TOPIC = "loom.entity.events"
CHANNEL_TOPIC = "loom.channel.events"
EVENTS_TOPICS = frozenset({EVENTS_TOPIC, ENTITY_TOPIC, CHANNEL_TOPIC})
"""Signed in the same checkpoints topic as the events of runs: each checkpoint names its topic under the signature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditorSettings:
    """Options of the loop for one topic of events."""

    kafka: KafkaOptions
    key: SigningKey
    trusted: Mapping[str, PublicKey] = field(repr=False)
    """Public keys by key id, our own included."""
    every_records: int
    every_s: float
    events_topic: str = EVENTS_TOPIC
    checkpoints_topic: str = CHECKPOINTS_TOPIC
    verify_option: str = "--partition {partition}"
    """Option of `loomlog audit verify` that selects one partition of the topic."""
    siblings: frozenset[str] = frozenset()
    """The other events topics whose checkpoints are in the same topic."""
    is_log_kept: bool = True
    """Whether the topic keeps every record; False: its retention deletes old ones."""
    is_optional: bool = False
    """An installation need not have the topic."""
    poll_timeout_s: float = 0.5
    """Longest wait for records: how long a stop takes when nothing happens."""


def entity_settings(settings: AuditorSettings) -> AuditorSettings:
    """Options for the events of entities, with the same key, intervals and checkpoints topic."""
    return replace(
        settings,
        events_topic=ENTITY_TOPIC,
        siblings=(settings.siblings | {settings.events_topic}) - {ENTITY_TOPIC},
        verify_option="--entities --partition {partition}",
    )


def channel_settings(settings: AuditorSettings) -> AuditorSettings:
    """Options for the events of channels, whose retention deletes old ones."""
    return replace(
        settings,
        events_topic=CHANNEL_TOPIC,
        siblings=(settings.siblings | {settings.events_topic}) - {CHANNEL_TOPIC},
        verify_option="--channels --partition {partition}",
        is_log_kept=False,
    )


def auditor_settings(settings: Settings) -> AuditorSettings:
    """The auditor's part of the settings; reads the key files. Raises Permanent."""
    if not settings.kafka:
        raise Permanent(
            "LOOMLOG_KAFKA is not set: the auditor needs it; `loomlog up` sets it for the local stack", kind="invalid"
        )
    key = load_signing_key(file=settings.audit_key_file, text=settings.audit_key)
    if key is None:
        raise Permanent(
            "LOOMLOG_AUDIT_KEY_FILE is not set: the auditor needs a key to sign with; `loomlog audit keygen FILE` "
            "makes a key",
            kind="invalid",
        )
    return AuditorSettings(
        kafka=kafka_options(settings, "loomlog-auditor"),
        key=key,
        trusted=verification_keys(load_public_keys(settings.audit_public_keys), key),
        every_records=settings.audit_every_records,
        every_s=settings.audit_every_ms / 1000,
        siblings=EVENTS_TOPICS - {EVENTS_TOPIC},
    )
