"""Rows of schedules: each fire, and instants that passed.

    fire    by `<name>/<number>`, and `<name>/s<first instant>` for instants that passed; key_a is the name, key_b the
            run, the number is the instant

Before: the projection of entities. After: handlers.py lists them.
"""

from collections.abc import Sequence

import orjson

from loomlog.schemas.generated.schedule_events import FireSettled, InstantsSkipped, ScheduleFired
from loomlog.schemas.generated.values import Envelope
from loomlog.services.core.families import Item
from loomlog.services.families.schedule import limits
from loomlog.services.families.schedule.state import Schedule, ScheduleEvent

FIRE_ITEM = "fire"
NUMBER_DIGITS = 12


def items(schedule: Schedule, event: ScheduleEvent, envelope: Envelope) -> Sequence[Item]:
    """Return the rows of an event."""
    match event:
        case ScheduleFired():
            return [_row(schedule, event, fired_ms=envelope.at_ms, status="running", error="")]
        case FireSettled():
            return [_row(schedule, event, fired_ms=event.fired_ms, status=event.status, error=event.error)]
        case InstantsSkipped(count=count) if count:
            document = {
                "instant_ms": event.first_ms,
                "last_ms": event.last_ms,
                "count": count,
                "is_at_least": event.is_at_least,
                "status": "skipped",
                "reason": event.reason,
            }
            return [_item(schedule, f"s{event.first_ms}", event.first_ms, document)]
        case _:
            return ()


def _row(schedule: Schedule, event: ScheduleFired | FireSettled, *, fired_ms: int, status: str, error: str) -> Item:
    document = {
        "instant_ms": event.instant_ms,
        "fired_ms": fired_ms,
        "late_ms": event.late_ms,
        "run_id": event.run_id,
        "is_manual": event.is_manual,
        "status": status,
        "error": error,
    }
    item_id = f"{event.number:0{NUMBER_DIGITS}d}"
    return _item(schedule, item_id, event.instant_ms, document, run_id=event.run_id)


def _item(schedule: Schedule, item_id: str, instant_ms: int, document: dict[str, object], run_id: str = "") -> Item:
    return Item(
        kind=FIRE_ITEM,
        id=f"{schedule.name}/{item_id}",
        key_a=schedule.name,
        key_b=run_id,
        number=instant_ms,
        document=orjson.dumps(document).decode(),
        kept_ms=limits.HISTORY_MS,
    )
