"""Settings of insights, from the one table of settings (loomlog.connectors.configuration).

    LOOMLOG_KAFKA, LOOMLOG_KAFKA_*      where the log is
    LOOMLOG_REPLICATION_FACTOR          copies of the topic Faust creates for its table
    LOOMLOG_INSIGHTS_HOST               address of /metrics and /insights, by default 127.0.0.1
    LOOMLOG_INSIGHTS_PORT               their port
    LOOMLOG_INSIGHTS_HISTORY_MINUTES    how long windows are kept; a restart reads that much again, a record a
                                        second for each partition

Before: main.py reads the environment. After: app.py connects, web.py listens.
"""

from dataclasses import dataclass

from loomlog.connectors.configuration.driver_options import kafka_options
from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.errors import Permanent
from loomlog.connectors.kafka import KafkaOptions

SOURCE_TOPIC = "loom.insights.runs"
DEAD_LETTER_TOPIC = "loom.dead-letter"
GROUP = "loomlog-insights"
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class InsightsSettings:
    """Options of the process, without the codec."""

    kafka: KafkaOptions
    host: str = LOOPBACK
    """Address or host name that is listened on."""
    port: int = 0
    """0 takes a free one."""
    history_minutes: int = 15
    replication_factor: int = 1
    source_topic: str = SOURCE_TOPIC
    dead_letter_topic: str = DEAD_LETTER_TOPIC
    group: str = GROUP


def insights_settings(settings: Settings) -> InsightsSettings:
    """Insights' part of the settings. Raises Permanent when the log is not configured."""
    if not settings.kafka:
        raise Permanent(
            "LOOMLOG_KAFKA is not set: insights needs it; `loomlog up` sets it for the local stack", kind="invalid"
        )
    return InsightsSettings(
        kafka=kafka_options(settings, "loomlog-insights"),
        host=settings.insights_host,
        port=settings.insights_port,
        history_minutes=settings.insights_history_minutes,
        replication_factor=settings.replication_factor,
    )
