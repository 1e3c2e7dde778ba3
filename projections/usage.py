"""Usage: sums per day, tenant, user, agent, provider, model and payer.

Sums are incremented, which would count a replayed event twice; but they are written in the same transaction as the
cursor, which is committed once for every event. A day is the UTC day of the reply. Amounts in different currencies are
never added; a reply without a price counts in `unpriced_calls`.

Before: projections/engine/run_projection.py. After: GET /v1/_usage, limits.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import Index, case, func, select

from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections.engine.batch import PositionedEvent
from loomlog.projections.frames.frame_json import to_datetime
from loomlog.projections.tables import Scope, define_table, in_scope
from loomlog.schemas.generated.run_events import CompactionFailed, ContextCompacted, ModelReplied
from loomlog.schemas.generated.values import Usage

DIMENSIONS = ("day", "tenant", "user_id", "agent", "provider", "model", "source")
"""Dimensions a report may be grouped by; rows are always split by currency."""
SUMS = (
    "calls",
    "unpriced_calls",
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "cost_micros",
)
OPERATOR = "operator"
NO_USAGE = Usage()
DAY_MS = 86_400_000
REPORT_MAX = 10_000
"""Most rows of a report."""


class UsageRow(NamedTuple):
    """Sums of one day, tenant, user, agent, provider, model, source and currency."""

    day: str
    """YYYY-MM-DD."""
    tenant: str
    user_id: str
    agent: str
    provider: str
    model: str
    source: str
    """Payer: `run` (calls with a key of the run) or `operator` (its key, or a provider that needs none)."""
    currency: str
    """Empty: unpriced."""
    calls: int
    unpriced_calls: int
    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    cost_micros: int


KEY = (*DIMENSIONS, "currency")
usage = define_table("usage", UsageRow, Index("usage_tenant", "tenant", "day"), key=KEY, fillfactor=70)


def apply(user_id: str, agent: str, events: Sequence[PositionedEvent]) -> list[UsageRow]:
    """Usage these events of one run add, one row per reply. A summary call without a reply adds none."""
    return [
        _usage_row(user_id, agent, at, at.event)
        for at in events
        if isinstance(at.event, ModelReplied | ContextCompacted)
        or (isinstance(at.event, CompactionFailed) and at.event.usage != NO_USAGE)
    ]


def sum_rows(rows: Iterable[UsageRow]) -> list[UsageRow]:
    """Sums the rows by key; sorted by key."""
    sums: dict[tuple[Any, ...], list[int]] = {}
    for row in rows:
        values: tuple[Any, ...] = row
        key, amounts = values[: len(KEY)], values[len(KEY) :]
        total = sums.get(key)
        sums[key] = list(amounts) if total is None else [a + b for a, b in zip(total, amounts, strict=True)]
    return [UsageRow._make((*key, *sums[key])) for key in sorted(sums)]


def _usage_row(
    user_id: str, agent: str, at: PositionedEvent, event: ModelReplied | ContextCompacted | CompactionFailed
) -> UsageRow:
    return UsageRow(
        day=_day(at.envelope.at_ms // DAY_MS),
        tenant=at.envelope.tenant,
        user_id=user_id,
        agent=agent,
        provider=event.provider,
        model=event.model,
        source=event.credential_source or OPERATOR,
        currency=event.currency,
        calls=1,
        unpriced_calls=0 if event.currency else 1,
        input_tokens=event.usage.input_tokens,
        output_tokens=event.usage.output_tokens,
        cache_creation_input_tokens=event.usage.cache_creation_input_tokens,
        cache_read_input_tokens=event.usage.cache_read_input_tokens,
        cost_micros=event.cost_micros,
    )


@lru_cache(maxsize=64)
def _day(number: int) -> str:
    """The date so many days after 1970-01-01. Cached: events come in the order of time, so few dates repeat often."""
    return to_datetime(number * DAY_MS).date().isoformat()


async def usage_report(
    reader: PostgresReader,
    tenant: Scope,
    group_by: Sequence[str],
    *,
    user_id: str | None = None,
    since_day: str = "",
    until_day: str = "",
) -> list[dict[str, Any]]:
    """Sums by the given dimensions and by currency, for one user if given; days YYYY-MM-DD, inclusive.

    Each row has the dimensions, `currency` and SUMS as keys. Raises ValueError for an unknown dimension and for a
    report of more than REPORT_MAX rows.
    """
    unknown = [name for name in group_by if name not in DIMENSIONS]
    if unknown:
        raise ValueError(f"cannot group usage by {', '.join(unknown)}: expected some of {', '.join(DIMENSIONS)}")
    columns = [usage.c[name] for name in dict.fromkeys([*group_by, "currency"])]
    conditions = [in_scope(usage.c.tenant, tenant)]
    if user_id is not None:
        conditions.append(usage.c.user_id == user_id)
    if since_day:
        conditions.append(usage.c.day >= since_day)
    if until_day:
        conditions.append(usage.c.day <= until_day)
    rows = await reader.fetch(
        select(*columns, *(func.sum(usage.c[name]).label(name) for name in SUMS))
        .where(*conditions)
        .group_by(*columns)
        .order_by(*columns)
        .limit(REPORT_MAX + 1)
    )
    if len(rows) > REPORT_MAX:
        raise ValueError(f"the usage report has more than {REPORT_MAX} rows: ask for fewer days or dimensions")
    names = [*(column.name for column in columns), *SUMS]
    # A sum of bigint is numeric in Postgres.
    return [dict(zip(names, [*row[: -len(SUMS)], *map(int, row[-len(SUMS) :])], strict=True)) for row in rows]


async def spent_since(
    reader: PostgresReader, tenant: Scope, since_day: str, *, user_id: str | None, currency: str
) -> tuple[int, int]:
    """Tokens of all kinds since that day, and the cost in millionths of the currency; for one user if given."""
    tokens = sum(usage.c[name] for name in SUMS if name.endswith("_tokens"))
    micros = case((usage.c.currency == currency, usage.c.cost_micros), else_=0)
    conditions = [in_scope(usage.c.tenant, tenant), usage.c.day >= since_day]
    if user_id is not None:
        conditions.append(usage.c.user_id == user_id)
    sums = (func.coalesce(func.sum(tokens), 0), func.coalesce(func.sum(micros), 0))
    rows = await reader.fetch(select(*sums).where(*conditions))
    return int(rows[0][0]), int(rows[0][1])
