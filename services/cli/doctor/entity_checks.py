"""The checks of `loomlog doctor` about what recovery needs, and about the aggregates of the entity topics.

    recovery     partition snapshots of runs and checkpoints of entities, as the metrics of the runtimes tell
    entities     aggregates that are quarantined, from their rows; and how far their projector is
    channels     the same for the channel topics
    files        definitions of which the files of processes say different things

Before: checks.py. After: services/runtime/telemetry/exposition.py, projections/entities.py.
"""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from loomlog.connectors.configuration.driver_options import kafka_options, postgres_options
from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.kafka import count_partitions
from loomlog.connectors.storage.postgres import open_reader
from loomlog.projections.engine.builds import CHANNEL_TABLES, ENTITY_TABLES, TableSet
from loomlog.projections.engine.lag import ProjectionLag, lag_json, read_progress
from loomlog.projections.entities import EntityRow, count_quarantined, list_quarantined
from loomlog.services.cli.doctor.check import FAIL, OK, WARN, Check
from loomlog.services.cli.errors import CliError, Unreachable
from loomlog.services.cli.log.reader import CHANNEL_TOPIC, ENTITY_TOPIC, open_ranges
from loomlog.services.cli.settings import CLIENT_ID, CliSettings
from loomlog.services.cli.stack.liveness import read_responses
from loomlog.services.cli.terminal.formatting import duration, one_line, pluralize
from loomlog.services.cli.terminal.projection_text import SILENT_AFTER_S
from loomlog.services.families.definition import FAMILY as DEFINITIONS
from loomlog.services.families.definition.limits import OBSERVED_FOR_MS
from loomlog.services.families.definition.state import Line
from loomlog.services.stream.entities.replicas import Replicas

RECOVERY, ENTITIES, CHANNELS, FILES = "recovery", "entities", "channels", "files"
TOPIC_SETS = ((ENTITIES, ENTITY_TOPIC, ENTITY_TABLES), (CHANNELS, CHANNEL_TOPIC, CHANNEL_TABLES))
"""Name, events topic and tables of each topic set of aggregates."""
PLURALS = {"run": "runs", "entity": "entities", "channel": "channels"}
FAILING = "loomlog_checkpoints_failing"
SLOW_AFTER_MS = 10_000
"""Delay from an event to its row after which the projector counts as behind; milliseconds are normal."""
QUARANTINED_LISTED_MAX = 5
REASON_CHARACTERS = 120


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


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityStatus:
    """What the read model of a topic set says."""

    lag: ProjectionLag
    quarantined: int
    first_quarantined: Sequence[EntityRow]


def check_observed_files(replicas: Replicas, *, now_ms: int) -> Check:
    """Check whether the processes have told the same contents of their files lately."""
    since_ms = now_ms - OBSERVED_FOR_MS
    lines = [entity.state for entity in replicas.entities(DEFINITIONS.name, "") if isinstance(entity.state, Line)]
    differing = [line for line in lines if line.static is not None and line.static.differs_since(since_ms)]
    if not differing:
        return Check(name=FILES, state=OK, text="all processes have the same definitions in their files")
    listed = [f"{line.kind} {line.name}: {_tellers(line, since_ms)}" for line in differing[:QUARANTINED_LISTED_MAX]]
    if len(differing) > len(listed):
        listed.append(f"and {len(differing) - len(listed)} more")
    text = f"{pluralize(len(differing), 'definition')} with different contents in the files of different processes"
    remedy = "\n".join([*listed, "Give all processes the same files and restart them."])
    return Check(name=FILES, state=WARN, text=text, remedy=remedy)


def _tellers(line: Line, since_ms: int) -> str:
    """Return the processes that differ, with the start of the hash of what they told."""
    observers = line.static.observers if line.static is not None else ()
    return ", ".join(f"{name} has {digest.hex()[:8]}" for name, digest, at_ms in observers if at_ms >= since_ms)


async def check_entities(cli: CliSettings) -> list[Check]:
    """Check the aggregates of each topic set and their projectors."""
    return [await _check_set(cli, name, topic, tables) for name, topic, tables in TOPIC_SETS]


async def _check_set(cli: CliSettings, name: str, topic: str, tables: TableSet) -> Check:
    try:
        return entity_check(await read_entity_status(cli, topic, tables), name)
    except Unreachable as error:
        return Check(name=name, state=FAIL, text=str(error), remedy="Aggregates at rest cannot be loaded.")
    except (CliError, ConnectorError) as error:
        remedy = "The projector makes the tables when it first runs; aggregates at rest cannot be loaded without them."
        return Check(name=name, state=FAIL, text=one_line(str(error), REASON_CHARACTERS), remedy=remedy)


async def read_entity_status(
    cli: CliSettings, topic: str = ENTITY_TOPIC, tables: TableSet = ENTITY_TABLES
) -> EntityStatus:
    """Read the status of a topic set from its tables and the log. Raises Unreachable, ConnectorError."""
    kafka = kafka_options(cli.settings, CLIENT_ID, bootstrap=cli.kafka())
    options = postgres_options(cli.settings, CLIENT_ID, dsn=cli.postgres())
    reader = await open_reader(options, schema=tables.prefix, max_connections=1)
    try:
        progress = await read_progress(reader)
        quarantined = await count_quarantined(reader)
        rows = await list_quarantined(reader, QUARANTINED_LISTED_MAX) if quarantined else []
    finally:
        await reader.close()
    partitions = await count_partitions(kafka, topic)
    async with open_ranges(kafka) as ranges:
        ends = {number: await ranges.end_offset(topic, number) for number in range(partitions)}
    lag = lag_json(progress, topic, ends, now_s=time.time())
    return EntityStatus(lag=lag, quarantined=quarantined, first_quarantined=rows)


def entity_check(status: EntityStatus, name: str = ENTITIES) -> Check:
    """Return the check of a status: the projector first, because old rows say nothing about quarantines."""
    lag = status.lag
    silent = [one for one in lag["projectors"] if one["said_s_ago"] > SILENT_AFTER_S]
    if silent or not lag["projectors"]:
        since = f"for {duration(silent[0]['said_s_ago'])}" if silent else "ever"
        remedy = "Checkpoints wait for it and what rests cannot be loaded; hot aggregates go on. See its log."
        text = f"the projector of {name} has not said anything {since}"
        return Check(name=name, state=FAIL, text=text, remedy=remedy)
    if status.quarantined:
        listed = [f"{row.aggregate}: {one_line(row.quarantine, REASON_CHARACTERS)}" for row in status.first_quarantined]
        if status.quarantined > len(listed):
            listed.append(f"and {status.quarantined - len(listed)} more")
        listed.append("Nothing is decided in them. `loomlog replay` of one shows where; a RepairAggregate ends it.")
        text = f"{pluralize(status.quarantined, 'aggregate')} quarantined"
        return Check(name=name, state=WARN, text=text, remedy="\n".join(listed))
    slowest_ms = max(one["lag_ms"] for one in lag["projectors"])
    if lag["lag"] and slowest_ms > SLOW_AFTER_MS:
        remedy = "Checkpoints wait for it, and reads of aggregates grow old. Its log says what it waits for."
        text = f"the projector is {pluralize(lag['lag'], 'record')} and {duration(slowest_ms / 1000)} behind"
        return Check(name=name, state=WARN, text=text, remedy=remedy)
    if lag["problems"]:
        text = f"{pluralize(lag['problems'], 'record')} could not be projected"
        remedy = "`loomlog replay` of their aggregates shows what is wrong; the projector's log names each."
        return Check(name=name, state=WARN, text=text, remedy=remedy)
    behind = f"{pluralize(lag['lag'], 'record')} behind" if lag["lag"] else "up to date"
    return Check(name=name, state=OK, text=f"none quarantined, rows {behind}")
