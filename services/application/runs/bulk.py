"""One order to many runs: those of a filter, previewed first, then page by page, each with its own outcome.

Nothing is atomic here, on purpose: each run gets its own command and answers for itself. What had happened already (it
was paused, it has ended) is `unchanged`; what went wrong is `failed` with its code, and does not keep others from it.

Before: a transport. After: control.py, once for each run.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from loomlog.projections.runs import RunRow
from loomlog.services.application import limits
from loomlog.services.application.authentication import require_scope
from loomlog.services.application.errors import RequestRefused, bad_request
from loomlog.services.application.queries.runs import RunQueries
from loomlog.services.application.runs.control import RunControl
from loomlog.services.application.runs.requests import sanitize_reason
from loomlog.services.application.runs.run_filter import RunFilterExpression, parse_filter
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.scopes import ADMIN

ACTIONS = ("pause", "resume", "cancel", "quarantine", "release")
COUNTED_PAGES_MAX = 40
"""Pages a preview looks at: 20,000 live runs, as many as are counted anywhere."""
PREVIEW_RUNS_MAX = 20
"""Runs a preview shows."""
PAGE_SIZE = 50
CONCURRENCY = 25
"""Two rounds of waiting a page when nobody answers: 10 s, less than clients wait for an answer."""
UNCHANGED_CODES = frozenset({"not_found", "already_pausing", "not_paused", "already_quarantined", "not_quarantined"})
"""Codes that say that there was nothing left to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkPreview:
    """How many runs an order would reach now, and the newest of them; `more`: they were not counted to the end."""

    matched: int
    has_more: bool
    first: tuple[RunRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkItemResult:
    """What became of the order for one run. `outcome` is changed, unchanged or failed."""

    run_id: str
    outcome: str
    position: str = ""
    code: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkResult:
    """A page of results; `next` is where to go on, empty at the end."""

    results: tuple[BulkItemResult, ...]
    next: str


class BulkActions:
    """The use cases of operators over many runs. Everything raises Declined."""

    def __init__(self, reads: RunQueries, control: RunControl, *, clock_ms: Callable[[], int]) -> None:
        self._reads = reads
        self._control = control
        self._clock_ms = clock_ms

    async def preview(self, caller: Caller, action: str, filter_text: str, *, after: str = "") -> BulkPreview:
        """What `act` would reach, page after page, from `after` on. Changes nothing."""
        wanted = self._check_action(caller, action, filter_text)
        matched = 0
        first: list[RunRow] = []
        for _ in range(COUNTED_PAGES_MAX):
            rows, after = await self._page(caller, action, wanted, limits.LIST_MAX, after)
            matched += len(rows)
            first += rows[: PREVIEW_RUNS_MAX - len(first)]
            if not after:
                break
        return BulkPreview(matched=matched, has_more=bool(after), first=tuple(first))

    async def act(self, caller: Caller, action: str, filter_text: str, reason: str, *, after: str = "") -> BulkResult:
        """The order to the next page of runs; `after` is `next` of the page before."""
        wanted = self._check_action(caller, action, filter_text)
        reason = sanitize_reason(reason)
        rows, left = await self._page(caller, action, wanted, PAGE_SIZE, after)
        places = asyncio.Semaphore(CONCURRENCY)

        async def one(row: RunRow) -> BulkItemResult:
            async with places:
                return await self._apply(caller, action, row, reason)

        return BulkResult(results=tuple(await asyncio.gather(*map(one, rows))), next=left)

    def _check_action(self, caller: Caller, action: str, filter_text: str) -> RunFilterExpression:
        require_scope(caller, ADMIN)
        if action not in ACTIONS:
            raise bad_request(f"action is {action[:60]!r}: expected one of {', '.join(ACTIONS)}")
        return parse_filter(filter_text)

    async def _page(
        self, caller: Caller, action: str, expression: RunFilterExpression, limit: int, after: str
    ) -> tuple[list[RunRow], str]:
        """The runs of a page that the filter means and the order can change, and where the next page begins."""
        narrowed = expression.to_run_filter(self._clock_ms())
        page = await self._reads.runs(caller, narrowed, tenant=expression.tenant, limit=limit, after=after)
        return [row for row in page.rows if expression.matches(row) and can_change(action, row)], page.next

    async def _apply(self, caller: Caller, action: str, row: RunRow, reason: str) -> BulkItemResult:
        try:
            position, changed = await self._send_command(caller, action, row.run_id, reason)
        except RequestRefused as declined:
            outcome = "unchanged" if declined.code in UNCHANGED_CODES else "failed"
            return BulkItemResult(run_id=row.run_id, outcome=outcome, code=declined.code, error=declined.message)
        return BulkItemResult(run_id=row.run_id, outcome="changed" if changed else "unchanged", position=position)

    async def _send_command(self, caller: Caller, action: str, run_id: str, reason: str) -> tuple[str, bool]:
        """The position of what was written, and whether the order changed the run."""
        control = self._control
        if action == "cancel":
            stopped = await control.cancel_run(caller, run_id, reason)
            return stopped.position, stopped.cancelled
        match action:
            case "pause":
                held = await control.pause(caller, run_id, reason)
            case "resume":
                held = await control.resume(caller, run_id)
            case "quarantine":
                held = await control.quarantine(caller, run_id, reason)
            case _:
                held = await control.release(caller, run_id, reason)
        return held.position, True


def can_change(action: str, row: RunRow) -> bool:
    """Whether the order can change a live run, as far as its row tells."""
    match action:
        case "release":
            return row.quarantined
        case "pause" | "quarantine":
            return not row.quarantined
        case "resume":
            return row.pause_requested and not row.quarantined
        case _:
            return True
