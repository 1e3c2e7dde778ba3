"""Findings about the parts of an installation, from what was read of each, and from families.

    topics       are they as topics.yaml has them
    read models  is their projector at work, and could it project everything
    entities     aggregates that are quarantined, from their rows; and how far their projector is
    channels     the same for the channel topics
    replicas     can the replicated families be read, and what each of them finds
    audit        are new records signed
    runs         runs that are quarantined
    dead letters records that could not be handled and wait for a decision
    insights     does it answer

Before: health_checks.py, services/cli/doctor read the parts. After: check.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from loomlog.projections.engine.lag import ProjectionLag
from loomlog.projections.runs import RunRow
from loomlog.redpanda.topics import TopicChange
from loomlog.services.application.health.entity_status import LISTED_MAX, EntityStatus
from loomlog.services.core.check import FAIL, OFF, OK, SILENT_AFTER_S, WARN, Check
from loomlog.services.core.plain_text import duration, one_line, pluralize
from loomlog.services.families.opening import check_families
from loomlog.services.families.registry import all_families
from loomlog.services.stream.entities.replicas import Replicas

TOPICS, READ_MODELS, REPLICAS, AUDIT, INSIGHTS = "topics", "read models", "replicas", "audit", "insights"
RUNS, DEAD_LETTERS = "runs", "dead letters"
ENTITIES, CHANNELS = "entities", "channels"
SLOW_AFTER_MS = 10_000
"""Delay from an event to its row after which the projector counts as behind; milliseconds are normal."""
REASON_CHARACTERS = 120
MAX_UNSIGNED_PERIODS = 3
"""Periods of the auditor that a record may wait for its signature, in addition to:"""
UNSIGNED_SLACK_S = 10.0


def topics_check(changes: Sequence[TopicChange], place: str) -> Check:
    """Return the check of the plan that would make the topics at a place as topics.yaml has them."""
    refused = [change for change in changes if change.kind == "refuse"]
    if refused:
        listed = "\n".join(f"{change.topic}: {change.text}" for change in refused)
        return Check(name=TOPICS, state=FAIL, text="not as they should be", remedy=listed)
    pending = [change for change in changes if change.changes_something]
    if pending:
        listed = "\n".join(f"{change.topic}: {change.text}" for change in pending)
        remedy = f"{listed}\n`loomlog topics apply` puts that right."
        return Check(name=TOPICS, state=FAIL, text=pluralize(len(pending), "difference"), remedy=remedy)
    return Check(name=TOPICS, state=OK, text=f"as they should be, at {place}")


def read_models_check(lag: ProjectionLag | Mapping[str, Any]) -> Check:
    """Return the check of the read models of runs."""
    silent = [one for one in lag["projectors"] if one["said_s_ago"] > SILENT_AFTER_S]
    if silent or not lag["projectors"]:
        since = f"for {duration(silent[0]['said_s_ago'])}" if silent else "ever"
        remedy = "Lists and reads grow old; runs themselves go on. See its log."
        return Check(name=READ_MODELS, state=FAIL, text=f"the projector has not said anything {since}", remedy=remedy)
    if problems := lag["problems"]:
        remedy = "`loomlog projections problems` lists them; `projections rebuild` after the cause is removed."
        text = f"{pluralize(problems, 'record')} could not be projected"
        return Check(name=READ_MODELS, state=WARN, text=text, remedy=remedy)
    text = f"{lag['lag']} records behind" if lag["lag"] else "up to date"
    return Check(name=READ_MODELS, state=OK, text=text)


def runs_check(quarantined: Sequence[RunRow], *, is_whole: bool) -> Check:
    """Return the check of quarantined runs, of which the newest are given."""
    if not quarantined:
        return Check(name=RUNS, state=OK, text="none quarantined")
    listed = [f"{row.run_id}: {one_line(row.quarantine_error, REASON_CHARACTERS)}" for row in quarantined[:LISTED_MAX]]
    listed.append("Nothing of them goes on. Repair the cause, then `loomlog runs release` each.")
    number = pluralize(len(quarantined), "run")
    text = f"{number} quarantined" if is_whole else f"{number} and more quarantined"
    return Check(name=RUNS, state=WARN, text=text, remedy="\n".join(listed))


def dead_letters_check(count: int) -> Check:
    """Return the check of dead letters that are neither replayed nor acknowledged."""
    if not count:
        return Check(name=DEAD_LETTERS, state=OK, text="none open")
    remedy = "`loomlog dlq ls` lists them: replay what can be handled now, and acknowledge the others."
    return Check(name=DEAD_LETTERS, state=WARN, text=f"{pluralize(count, 'dead letter')} open", remedy=remedy)


def unsigned_log_check() -> Check:
    """Return the check of a log that no auditor signs."""
    return Check(name=AUDIT, state=OFF, text="nothing is signed: no auditor has signed anything here")


def unreadable_check(name: str, error: str) -> Check:
    """Return the check of read models that do not answer."""
    remedy = "Lists, `runs show` and reads of the API come from them; runs themselves go on without."
    return Check(name=name, state=FAIL, text=error, remedy=remedy)


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


def missing_tables_check(name: str, error: str) -> Check:
    """Return the check of a topic set whose rows cannot be read."""
    remedy = "The projector makes the tables when it first runs; aggregates at rest cannot be loaded without them."
    return Check(name=name, state=FAIL, text=one_line(error, REASON_CHARACTERS), remedy=remedy)


def replica_checks(replicas: Replicas, *, now_ms: int) -> list[Check]:
    """Return the checks of the replicated families, and what these find in what they read."""
    of_families = check_families(replicas, all_families(), now_ms=now_ms)
    quarantined = replicas.quarantined()
    if quarantined:
        names = ", ".join(entity.id for entity in quarantined)
        remedy = f"`loomlog repair {quarantined[0].id}` shows what is known of it, and restates it."
        text = f"{names}: {quarantined[0].quarantine}"
        return [Check(name=REPLICAS, state=FAIL, text=text, remedy=remedy), *of_families]
    text = f"{pluralize(len(replicas), 'replicated aggregate')} can be read"
    return [Check(name=REPLICAS, state=OK, text=text), *of_families]


def unsigned_check(waits_s: float, period_s: float, logs: str) -> Check | None:
    """Return the check of records that wait for their signature for so long; None when they wait as usual.

    `period_s`: how often the auditor signs. `logs`: where the logs of the processes are; empty when not known.
    """
    if waits_s <= MAX_UNSIGNED_PERIODS * period_s + UNSIGNED_SLACK_S:
        return None
    place = f" in {logs}" if logs else ""
    remedy = (
        f"The auditor hangs, catches up, or refuses to sign: its log{place} says which. `kill -9` of its process has "
        "it started again; it goes on where it was."
    )
    return Check(name=AUDIT, state=FAIL, text=f"records have not been signed for {duration(waits_s)}", remedy=remedy)


def insights_check(place: str, *, lag_records: int = 0, error: str = "") -> Check:
    """Return the check of insights at a place; an empty place is insights that is switched off."""
    if error:
        remedy = "Only live figures are missing; nothing else depends on it."
        return Check(name=INSIGHTS, state=WARN, text=error, remedy=remedy)
    if not place:
        return Check(name=INSIGHTS, state=OFF, text="switched off")
    return Check(name=INSIGHTS, state=OK, text=f"{place}, {lag_records} records behind")
