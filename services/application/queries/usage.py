"""What was used and spent: reports for people, and sums for limits that are set in the middle of a month.

    report        sums by dimensions and by currency, over whole UTC days
    spent_since   what a new limit counts from before there was one (port RecordedSpending)

Before: services/application/operations/budget_handlers.py. After: projections/usage.py.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from loomlog.connectors.errors import Transient
from loomlog.projections.tables import Scope
from loomlog.services.application import limits
from loomlog.services.application.errors import bad_request, unavailable
from loomlog.services.application.queries.json_types import UsageCurrency, UsageDimensions, UsageRow
from loomlog.services.application.queries.read_models import scope_of
from loomlog.services.application.streaming.run_stream import StreamSources
from loomlog.services.core.access.decide import Caller, access_filter
from loomlog.services.core.access.scopes import ADMIN
from loomlog.services.core.calendar_month import day_of
from loomlog.services.core.refusals import Refused

DIMENSIONS = {
    **{name: name for name in ("tenant", "provider", "model", "source", "agent", "day")},
    "user": "user_id",
}
"""Dimensions by which a report can be grouped, with their columns. `source` is the owner of the key that paid."""
OUTPUT_NAMES = {"tenant": "tenant_id"}


class Usage:
    """The queries. All methods raise Refused."""

    def __init__(
        self,
        sources: StreamSources,
        *,
        end_offset: Callable[[int], Awaitable[int]],
        wait_s: float = limits.SPENT_WAIT_S,
    ) -> None:
        """`end_offset` returns the end of a partition of the run events, and raises Transient."""
        self._sources = sources
        self._end_offset = end_offset
        self._wait_s = wait_s

    async def spent_since(self, scope: Scope, since_day: str, *, user_id: str | None, currency: str) -> tuple[int, int]:
        """Return tokens and millionths of the currency.

        Raises Refused(not_yet) when the read models are behind: with too small a sum a limit would admit runs that it
        has to refuse.
        """
        partitions = self._sources.hub.partitions
        try:
            ends = dict(zip(partitions, await asyncio.gather(*map(self._end_offset, partitions)), strict=True))
        except Transient as error:
            raise unavailable("log", error) from error
        await self._sources.barrier.wait_for_all(ends, timeout_s=self._wait_s)
        return await self._sources.projection.spent_since(scope, since_day, user_id=user_id, currency=currency)

    async def report(
        self,
        caller: Caller,
        group_by: Sequence[str],
        *,
        tenant: str = "",
        since_ms: int | None = None,
        until_ms: int | None = None,
    ) -> list[UsageRow]:
        """Return sums by these dimensions and by currency, over whole UTC days; `until_ms` is exclusive."""
        unknown = [name for name in group_by if name not in DIMENSIONS]
        if unknown:
            raise bad_request(f"group_by names {', '.join(unknown)[:80]}: expected some of {', '.join(DIMENSIONS)}")
        within = access_filter(caller)
        await self._sources.barrier.wait_for_own_writes(None)
        if tenant and within.tenant not in (None, tenant):
            raise Refused("insufficient_scope", f"the usage of {tenant[:80]} is not yours", details={"scope": ADMIN})
        try:
            rows = await self._sources.projection.usage(
                tenant or scope_of(within),
                [DIMENSIONS[name] for name in group_by],
                user_id=within.user_id,
                since_day="" if since_ms is None else day_of(since_ms),
                until_day="" if until_ms is None else day_of(until_ms - 1),
            )
        except ValueError as error:
            raise bad_request(str(error)) from error
        return [_usage_row(row, group_by) for row in rows]


def _usage_row(row: Mapping[str, Any], group_by: Sequence[str]) -> UsageRow:
    """Convert a row to the format of the API: empty dimensions and an empty currency are left out."""
    columns = {name: DIMENSIONS[name] for name in group_by}
    dimensions = {OUTPUT_NAMES.get(name, column): row[column] for name, column in columns.items() if row[column]}
    currency: UsageCurrency = {"currency": row["currency"]} if row["currency"] else {}
    return {
        **cast("UsageDimensions", dimensions),
        "input_tokens": row["input_tokens"],
        "output_tokens": row["output_tokens"],
        "cache_creation_input_tokens": row["cache_creation_input_tokens"],
        "cache_read_input_tokens": row["cache_read_input_tokens"],
        "cost": row["cost_micros"] / 1_000_000,
        "cost_micros": row["cost_micros"],
        **currency,
        "call_count": row["calls"],
        "unpriced_calls": row["unpriced_calls"],
    }
