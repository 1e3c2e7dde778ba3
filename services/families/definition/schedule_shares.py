"""Shares of schedules: how many a tenant and a principal have, and how often theirs fire together.

A schedule starts runs for as long as it is there, so forty of them with `@every 1s` cost more than any request. How
often is counted in fires a day, of which a principal has one for each second. What a process has read is counted:
versions that are made at the same moment in several processes may pass together, and the next one is refused.

Schedules of files are the operator's and count for no tenant.

Before: operations.py and batches.py have composed a version. After: connectors/cron.py.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from loomlog.connectors.cron import Times, find_cron_problem
from loomlog.connectors.definitions.schedule import SCHEDULE
from loomlog.schemas.records import Value
from loomlog.services.core.bounded_resources import SCHEDULE_FIRES, SCHEDULES
from loomlog.services.families.definition.table import DefinitionTable

CACHED_TIMES = 10_000


class Share(Value, frozen=True, kw_only=True):
    """One schedule: whose it is, and how often it fires."""

    tenant: str
    principal: str
    fires_a_day: int


def schedules_problem(
    table: DefinitionTable, tenant: str, principal: str, additions: Mapping[str, Mapping[str, Any]]
) -> str:
    """Return why a tenant may not have these schedules, by name; empty when it may.

    A version of a schedule that there is counts for the principal that made the first one.
    """
    others, before = list[Share](), dict[str, Share]()
    for name, share in _active(table):
        if share.tenant == tenant and name in additions:
            before[name] = share
        else:
            others.append(share)
    made = [
        Share(
            tenant=tenant,
            principal=before[name].principal if name in before else principal,
            fires_a_day=fires_a_day(content),
        )
        for name, content in additions.items()
    ]
    if len(made) == len(before) and sum_of(made) <= sum_of(before.values()):
        return ""  # less than before is never too much
    every = others + made
    of_tenant = [share for share in every if share.tenant == tenant]
    counts, fires = SCHEDULES.shares, SCHEDULE_FIRES.shares
    for who, shares, count_max, fires_max in (
        *(
            (
                f"{one} of {tenant}",
                [share for share in of_tenant if share.principal == one],
                counts.per_principal,
                fires.per_principal,
            )
            for one in sorted({share.principal for share in made})
        ),
        (f"the tenant {tenant}", of_tenant, counts.per_tenant, fires.per_tenant),
        ("the installation", every, counts.total, fires.total),
    ):
        if len(shares) > count_max:
            return f"{who} would have {len(shares)} schedules, and may have {count_max}: delete some"
        if sum_of(shares) > fires_max:
            text = f"the schedules of {who} would fire {sum_of(shares)} times a day, and may {fires_max} times"
            return f"{text}: let them fire less often"
    return ""


def sum_of(shares: Iterable[Share]) -> int:
    """Return how often schedules fire in a day, together."""
    return sum(share.fires_a_day for share in shares)


def fires_a_day(content: Mapping[str, Any]) -> int:
    """Return how often a schedule with this content fires in a day, at most over the plans of users; 0 if disabled."""
    if content.get("enabled") is False:
        return 0
    texts = [content.get("schedule"), *(content.get("user_tier_schedules") or {}).values()]
    return max((_fires_a_day(text) for text in texts if isinstance(text, str) and text), default=0)


@lru_cache(maxsize=CACHED_TIMES)
def _fires_a_day(text: str) -> int:
    return 0 if find_cron_problem(text) else Times(text).fires_a_day()


def _active(table: DefinitionTable) -> Iterator[tuple[str, Share]]:
    """Yield the schedules of all tenants that have an active version, by name.

    The content of one that is not at hand counts as one that fires once: it is longer than a schedule that does nothing
    else is.
    """
    for tenant in table.tenants(SCHEDULE.name):
        for line in table.lines(SCHEDULE.name, tenant):
            version = line.version(table.active_number(line))
            if version is not None and not version.is_retired:
                content = table.resolved(line, version).content
                fires = 1 if content is None else fires_a_day(content)
                yield line.name, Share(tenant=tenant, principal=line.made_by, fires_a_day=fires)
