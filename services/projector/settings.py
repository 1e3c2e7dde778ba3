"""Settings of the projector, from the one table of settings (loomlog.connectors.configuration).

    LOOMLOG_KAFKA, LOOMLOG_KAFKA_*          where the log is
    LOOMLOG_POSTGRES, LOOMLOG_POSTGRES_SSL* where the rows go
    LOOMLOG_SECRET_KEY                      rows of entities are sealed with a key derived from it
    LOOMLOG_MEMORY_CHANGES_*                the feed of changes of memory, LOOMLOG_CHANGE_SUB_INTERVAL_MS its push
    LOOMLOG_AUDIT_LOG_PATH                  a file that gets the acts as JSON lines
    LOOMLOG_REPLICA_ID                      name of this process in the cursors and the status; default host and pid

Before: main.py reads the environment. After: loop.py.
"""

import os
import socket
from dataclasses import dataclass, field, replace
from pathlib import Path

from loomlog.connectors.configuration.driver_options import installation_key, kafka_options, postgres_options
from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.errors import Permanent
from loomlog.connectors.kafka import KafkaOptions
from loomlog.connectors.storage.postgres import PostgresOptions
from loomlog.projections.engine.builds import CHANNEL_SUFFIX, ENTITY_SUFFIX, PREFIX
from loomlog.services.projector.pace import ENTITY_REST_MAX_S, REST_MAX_S

TOPIC = "loom.run.events"
ENTITY_TOPIC = "loom.entity.events"
CHANNEL_TOPIC = "loom.channel.events"
ENTITY_WAIT_S = 1.0
"""Longest wait for events of entities: they are rarer than those of runs, and a record ends the wait at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectorSettings:
    """Options of the projector loop, for one topic."""

    kafka: KafkaOptions
    postgres: PostgresOptions
    owner: str
    topic: str = TOPIC
    prefix: str = PREFIX
    """First part of the names of the schemas."""
    poll_timeout_s: float = 0.25
    """Longest wait for records: how long a stop takes when nothing happens."""
    max_records: int = 5_000
    """Records of one transaction: where COPY is at its best."""
    rest_max_s: float = REST_MAX_S
    """Longest rest between two transactions without load (pace.py)."""
    secret: SecretKey | None = field(default=None, repr=False)
    """Key of the installation."""
    entity_topic: str = ENTITY_TOPIC
    channel_topic: str = CHANNEL_TOPIC
    memory_changes_enabled: bool = True
    memory_changes_retention_hours: int = 24
    change_sub_interval_s: float = 5.0
    """Time between two looks of a change subscription into the feed."""
    audit_log_path: Path | None = None
    """File that gets a line for each event of an act; None: there is none."""

    @property
    def of_entities(self) -> "ProjectorSettings":
        """The same for the topic of entities."""
        return replace(
            self,
            topic=self.entity_topic,
            prefix=self.prefix + ENTITY_SUFFIX,
            poll_timeout_s=ENTITY_WAIT_S,
            rest_max_s=ENTITY_REST_MAX_S,
        )

    @property
    def of_channels(self) -> "ProjectorSettings":
        """The same for the topic of channels."""
        prefix = self.prefix + CHANNEL_SUFFIX
        return replace(self, topic=self.channel_topic, prefix=prefix, rest_max_s=ENTITY_REST_MAX_S)


def projector_settings(settings: Settings) -> ProjectorSettings:
    """The projector's part of the settings. Raises Permanent when the log or Postgres is not configured."""
    for name, value in (("LOOMLOG_KAFKA", settings.kafka), ("LOOMLOG_POSTGRES", settings.postgres)):
        if not value:
            raise Permanent(
                f"{name} is not set: the projector needs it; `loomlog up` sets it for the local stack", kind="invalid"
            )
    return ProjectorSettings(
        kafka=kafka_options(settings, "loomlog-projector"),
        postgres=postgres_options(settings, "loomlog-projector"),
        owner=settings.replica_id or f"{socket.gethostname()}-{os.getpid()}",
        secret=installation_key(settings),
        memory_changes_enabled=settings.memory_changes_enabled,
        memory_changes_retention_hours=settings.memory_changes_retention_hours,
        change_sub_interval_s=settings.change_sub_interval_ms / 1_000,
        audit_log_path=settings.audit_log_path,
    )
