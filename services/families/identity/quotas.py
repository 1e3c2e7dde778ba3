"""Quotas of tenants, users and tokens: how much they may call, start and follow at once or in a minute.

Bounds are decisions of the log (services/families/identity), so every process knows them; what counts against them is
counted by each process for itself, apart from runs at once, which are those of the read models. Who has no quota pays
one look-up.

A minute is a window that slides over two buckets: what was counted in the minute before counts for the part of it that
is still within the last sixty seconds.

Before: services/api/app.py, services/application/runs/start.py. After: directory.py.
"""

import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator

from loomlog.projections.run_queries import ActiveRuns
from loomlog.schemas.generated.values import TenantQuota
from loomlog.services.core.access.decide import Caller, RunIdentity
from loomlog.services.core.refusals import Refused
from loomlog.services.families.identity.directory import NO_QUOTA, Directory
from loomlog.services.families.identity.handlers import QUOTA_CODE

WINDOW_S = 60.0
LAG_S = 2.0
"""Seconds for which a run that was started here counts beside those of the read models, which may not have it yet."""
WINDOWS_MAX = 10_000
"""Windows that are kept; older ones than two minutes make room."""
RETRY_AFTER_S = 5
"""Seconds after which a run or a stream may have ended (parity: reference surfaces 0.5)."""
Bounded = tuple[str, str, str]
"""Tenant, kind of what is bounded, and its id."""


class Window:
    """What was counted in the last minute."""

    __slots__ = ("_before", "_began_s", "_count")

    def __init__(self, now_s: float) -> None:
        self._began_s, self._count, self._before = now_s, 0, 0

    def is_old(self, now_s: float) -> bool:
        """Whether nothing in it counts any more."""
        return now_s - self._began_s >= 2 * WINDOW_S

    def add(self, now_s: float) -> None:
        self._move(now_s)
        self._count += 1

    def count(self, now_s: float) -> float:
        self._move(now_s)
        return self._count + self._before * (1 - (now_s - self._began_s) / WINDOW_S)

    def _move(self, now_s: float) -> None:
        passed = int((now_s - self._began_s) // WINDOW_S)
        if passed:
            self._before = self._count if passed == 1 else 0
            self._count, self._began_s = 0, self._began_s + passed * WINDOW_S

    def left_s(self, now_s: float) -> int:
        """Return the seconds until the bucket ends, at least one."""
        return max(1, math.ceil(self._began_s + WINDOW_S - now_s))


class Quotas:
    """The quotas of a process (port CallerQuotas)."""

    def __init__(
        self,
        directory: Directory,
        active_runs: Callable[[str], Awaitable[list[ActiveRuns]]],
        *,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`active_runs`: the open runs of a tenant."""
        self._directory = directory
        self._active_runs = active_runs
        self._now_s = now_s
        self._windows: dict[tuple[str, Bounded], Window] = {}
        self._streams: Counter[Bounded] = Counter()
        self._started: dict[Bounded, list[float]] = {}

    def admit_call(self, caller: Caller) -> None:
        """Count a request. Raises Refused(tenant_quota_exhausted)."""
        bounds = [(of, quota.calls_per_minute) for of, quota in self._quotas(caller, caller.subject)]
        self._admit_in_window("calls_per_minute", [(of, cap) for of, cap in bounds if cap >= 0])

    def take_stream(self, caller: Caller) -> Callable[[], None]:
        """Count an open stream until what is returned is called. Raises Refused(tenant_quota_exhausted)."""
        bounded = [(of, quota.open_streams) for of, quota in self._quotas(caller, caller.subject)]
        bounded = [(of, cap) for of, cap in bounded if cap >= 0]
        for of, cap in bounded:
            if self._streams[of] >= cap:
                raise _refused(of, "open_streams", cap, RETRY_AFTER_S)
        self._streams.update(of for of, _ in bounded)

        def release() -> None:
            self._streams.subtract(of for of, _ in bounded)

        return release

    async def admit_run(self, caller: Caller, who: RunIdentity, agent: str) -> None:
        """Count the start of a run, of any agent. Raises Refused(tenant_quota_exhausted)."""
        quotas = list(self._quotas(caller, who.user_id, tenant=who.tenant))
        bounds = [(of, quota.runs_at_once) for of, quota in quotas if quota.runs_at_once >= 0]
        if bounds:
            rows = await self._active_runs(who.tenant)
            for of, cap in bounds:
                open_runs = sum(row.runs for row in rows if of[1] == "tenant" or row.user_id == who.user_id)
                if open_runs + self._recent(of) >= cap:
                    raise _refused(of, "runs_at_once", cap, RETRY_AFTER_S)
        per_minute = [(of, quota.runs_per_minute) for of, quota in quotas if quota.runs_per_minute >= 0]
        self._admit_in_window("runs_per_minute", per_minute)
        for of, _ in bounds:
            self._started.setdefault(of, []).append(self._now_s())

    def _recent(self, of: Bounded) -> int:
        """Return how many runs were started here that the read models may not have yet."""
        since_s = self._now_s() - LAG_S
        kept = [at_s for at_s in self._started.pop(of, ()) if at_s > since_s]
        if kept:
            self._started[of] = kept
        return len(kept)

    def _quotas(self, caller: Caller, user: str, *, tenant: str = "") -> Iterator[tuple[Bounded, TenantQuota]]:
        """Yield what bounds a caller: its tenant, a user of it, and its token."""
        tenant = tenant or caller.tenant
        if not self._directory.quotas(tenant):
            return
        for kind, of in (("tenant", ""), ("user", user), ("key", caller.token_id)):
            quota = self._directory.quota(tenant, kind, of)
            if quota is not NO_QUOTA:
                yield (tenant, kind, of), quota

    def _admit_in_window(self, what: str, bounds: list[tuple[Bounded, int]]) -> None:
        now_s = self._now_s()
        windows = [(of, cap, self._window(what, of, now_s)) for of, cap in bounds]
        for of, cap, window in windows:
            if window.count(now_s) + 1 > cap:
                raise _refused(of, what, cap, window.left_s(now_s))
        for _, _, window in windows:
            window.add(now_s)

    def _window(self, what: str, of: Bounded, now_s: float) -> Window:
        window = self._windows.get((what, of))
        if window is None:
            if len(self._windows) > WINDOWS_MAX:
                self._windows = {key: one for key, one in self._windows.items() if not one.is_old(now_s)}
            window = self._windows[what, of] = Window(now_s)
        return window


def _refused(of: Bounded, what: str, cap: int, retry_after_s: int) -> Refused:
    tenant, kind, name = of
    who = f"the tenant {tenant}" if kind == "tenant" else f"the {'token' if kind == 'key' else kind} {name} of {tenant}"
    text = f"{who} has reached its quota of {cap} {what.replace('_', ' ')}; try again later, or ask for a higher one"
    details = {"scope": kind, "what": what, "cap": cap}
    return Refused(QUOTA_CODE, text, details=details, retry_after_s=retry_after_s)
