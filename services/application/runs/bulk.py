"""One command for many runs: those of a filter, previewed first, then page by page, each with its own outcome.

Deliberately not atomic: each run gets its own command and has its own outcome. A run already in the desired state
(paused, ended) is `unchanged`; an error is `failed` with its code, and does not affect the other runs.

Before: a transport. After: control.py, once for each run.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from loomlog.projections.runs import RunRow
from loomlog.services.application import limits
from loomlog.services.application.errors import bad_request
from loomlog.services.application.queries.runs import RunQueries
from loomlog.services.application.runs.control import RunControl
from loomlog.services.application.runs.run_filter import RunFilterExpression, parse_filter
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused
from loomlog.services.families.operation import sanitize_reason

ACTIONS = ("pause", "resume", "cancel", "quarantine", "release")
COUNTED_PAGES_MAX = 40
"""Pages a preview counts: 20,000 live runs, the same maximum as elsewhere."""
PREVIEW_RUNS_MAX = 20
"""Maximum number of runs in a preview."""
PAGE_SIZE = 50
CONCURRENCY = 25
"""Commands in flight per page: with no reply, a page takes two rounds (10 s), less than clients' timeouts."""
UNCHANGED_CODES = frozenset({"not_found", "already_pausing", "not_paused", "already_quarantined", "not_quarantined"})
"""Codes of refusals that mean that there was nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkPreview:
    """Number of runs a command would reach now, and the newest of them; `has_more`: not all were counted."""

    matched: int
    has_more: bool
    first: tuple[RunRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkItemResult:
    """Outcome of the command for one run: changed, unchanged or failed."""

    run_id: str
    outcome: str
    position: str = ""
    code: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkResult:
    """A page of results; `next` is the token of the next page, empty at the end."""

    results: tuple[BulkItemResult, ...]
    next: str


class BulkActions:
    """The use cases of operators over many runs. All methods raise Refused."""

    def __init__(self, reads: RunQueries, control: RunControl, *, clock_ms: Callable[[], int]) -> None:
        self._reads = reads
        self._control = control
        self._clock_ms = clock_ms

    async def preview(self, caller: Caller, action: str, filter_text: str, *, after: str = "") -> BulkPreview:
        """Report what `act` would affect, page after page, from `after` on. Changes nothing."""
        expression = _check_action(action, filter_text)
        matched = 0
        first: list[RunRow] = []
        for _ in range(COUNTED_PAGES_MAX):
            rows, after = await self._page(caller, action, expression, limits.LIST_MAX, after)
            matched += len(rows)
            first += rows[: PREVIEW_RUNS_MAX - len(first)]
            if not after:
                break
        return BulkPreview(matched=matched, has_more=bool(after), first=tuple(first))

    async def act(self, caller: Caller, action: str, filter_text: str, reason: str, *, after: str = "") -> BulkResult:
        """Send the command to the next page of runs; `after` is `next` of the previous page."""
        expression = _check_action(action, filter_text)
        reason = sanitize_reason(reason)
        rows, left = await self._page(caller, action, expression, PAGE_SIZE, after)
        places = asyncio.Semaphore(CONCURRENCY)

        async def one(row: RunRow) -> BulkItemResult:
            async with places:
                return await self._apply(caller, action, row, reason)

        return BulkResult(results=tuple(await asyncio.gather(*map(one, rows))), next=left)

    async def _page(
        self, caller: Caller, action: str, expression: RunFilterExpression, limit: int, after: str
    ) -> tuple[list[RunRow], str]:
        """Return the runs of a page that match the filter and that the command can change, and the
        next page's token.
        """
        narrowed = expression.to_run_filter(self._clock_ms())
        page = await self._reads.runs(caller, narrowed, tenant=expression.tenant, limit=limit, after=after)
        return [row for row in page.rows if expression.matches(row) and can_change(action, row)], page.next

    async def _apply(self, caller: Caller, action: str, row: RunRow, reason: str) -> BulkItemResult:
        try:
            position, changed = await self._send_command(caller, action, row.run_id, reason)
        except Refused as declined:
            outcome = "unchanged" if declined.code in UNCHANGED_CODES else "failed"
            return BulkItemResult(run_id=row.run_id, outcome=outcome, code=declined.code, error=declined.message)
        return BulkItemResult(run_id=row.run_id, outcome="changed" if changed else "unchanged", position=position)

    async def _send_command(self, caller: Caller, action: str, run_id: str, reason: str) -> tuple[str, bool]:
        """Send the command; returns the position of the event, and whether the run changed."""
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


def _check_action(action: str, filter_text: str) -> RunFilterExpression:
    if action not in ACTIONS:
        raise bad_request(f"action is {action[:60]!r}: expected one of {', '.join(ACTIONS)}")
    return parse_filter(filter_text)


def can_change(action: str, row: RunRow) -> bool:
    """Whether the command can change a live run, according to its row."""
    match action:
        case "release":
            return row.quarantined
        case "pause" | "quarantine":
            return not row.quarantined
        case "resume":
            return row.pause_requested and not row.quarantined
        case _:
            return True
