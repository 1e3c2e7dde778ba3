"""The checks of `loomlog doctor` about what recovery needs, and about the aggregates of the entity topics.

    recovery     partition snapshots of runs and checkpoints of entities, as the metrics of the runtimes tell
    entities     aggregates that are quarantined, from their rows; and how far their projector is
    channels     the same for the channel topics

Before: checks.py. After: services/runtime/telemetry/exposition.py, services/application/health/components.py.
"""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from loomlog.connectors.configuration.driver_options import kafka_options, postgres_options
from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.kafka import count_partitions, open_ranges
from loomlog.connectors.storage.postgres import open_reader
from loomlog.projections.engine.builds import CHANNEL_TABLES, ENTITY_TABLES, TableSet
from loomlog.services.application.health.components import CHANNELS, ENTITIES, entity_check, missing_tables_check
from loomlog.services.application.health.entity_status import EntityStatus, entity_status
from loomlog.services.application.log.records import CHANNEL_TOPIC, ENTITY_TOPIC
from loomlog.services.cli.errors import CliError, Unreachable
from loomlog.services.cli.settings import CLIENT_ID, CliSettings
from loomlog.services.cli.stack.liveness import read_responses
from loomlog.services.cli.terminal.formatting import pluralize
from loomlog.services.core.check import FAIL, OK, WARN, Check

RECOVERY = "recovery"
TOPIC_SETS = ((ENTITIES, ENTITY_TOPIC, ENTITY_TABLES), (CHANNELS, CHANNEL_TOPIC, CHANNEL_TABLES))
"""Name, events topic and tables of each topic set of aggregates."""
PLURALS = {"run": "runs", "entity": "entities", "channel": "channels"}
FAILING = "loomlog_checkpoints_failing"


async def check_recovery(children: Sequence[dict[str, Any]]) -> list[Check]:
    """Check whether the runtimes can make partition snapshots and checkpoints; no line without metrics of them."""
    pids = [one["pid"] for one in children if one["name"].startswith("runtime") and one["pid"] is not None]
    pages = [page for pid in pids for page in await read_responses(pid)]
    return recovery_checks(pages)


def recovery_checks(pages: Iterable[bytes]) -> list[Check]:
    """Return the check of what these responses of runtimes tell; none when no response has metrics."""
    failing: Counter[tuple[str, str]] = Counter()
    is_known = False
    for page in pages:
        body = page.partition(b"\r\n\r\n")[2].decode(errors="replace")
        if "loomlog_partitions_owned" not in body:
            continue
        is_known = True
        for metric in text_string_to_metric_families(body):
            if metric.name == FAILING:
                for sample in metric.samples:
                    failing[sample.labels["family"], sample.labels["reason"]] += int(sample.value)
    if not is_known:
        return []
    if not failing:
        return [Check(name=RECOVERY, state=OK, text="partition snapshots and checkpoints are made")]
    listed = "\n".join(
        f"{pluralize(count, 'partition')} of {PLURALS.get(family, family)}: {reason}"
        for (family, reason), count in sorted(failing.items())
    )
    remedy = f"{listed}\nNothing is lost; until the cause is gone, a takeover of them reads the log from further back."
    text = f"{pluralize(failing.total(), 'partition')} without a new partition snapshot or checkpoint"
    return [Check(name=RECOVERY, state=WARN, text=text, remedy=remedy)]


async def check_entities(cli: CliSettings) -> list[Check]:
    """Check the aggregates of each topic set and their projectors."""
    return [await _check_set(cli, name, topic, tables) for name, topic, tables in TOPIC_SETS]


async def _check_set(cli: CliSettings, name: str, topic: str, tables: TableSet) -> Check:
    try:
        return entity_check(await read_entity_status(cli, topic, tables), name)
    except Unreachable as error:
        return Check(name=name, state=FAIL, text=str(error), remedy="Aggregates at rest cannot be loaded.")
    except (CliError, ConnectorError) as error:
        return missing_tables_check(name, str(error))


async def read_entity_status(
    cli: CliSettings, topic: str = ENTITY_TOPIC, tables: TableSet = ENTITY_TABLES
) -> EntityStatus:
    """Read the status of a topic set from its tables and the log. Raises Unreachable, ConnectorError."""
    kafka = kafka_options(cli.settings, CLIENT_ID, bootstrap=cli.kafka())
    options = postgres_options(cli.settings, CLIENT_ID, dsn=cli.postgres())
    reader = await open_reader(options, schema=tables.prefix, max_connections=1)
    try:
        partitions = await count_partitions(kafka, topic)
        async with open_ranges(kafka) as ranges:
            return await entity_status(reader, ranges, topic, partitions, now_s=time.time())
    finally:
        await reader.close()
