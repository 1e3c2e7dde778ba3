"""Shares: how many of a bounded resource each tenant and each principal may hold, and who may take one more.

    total            what there is of it in one process
    per tenant       what one tenant may hold; what is left of the total is the reserve
    per principal    what one principal (the subject of a token, the user of a run) may hold
    the reserve      taken only by a tenant that holds less than is free: half of the rest stays for the next one, so
                     however many tenants are greedy, one that holds nothing finds something

`take` checks and takes in one step, so two callers never get the same last one. Those that wait are served in turn:
tenants, within one its principals, within one the oldest (fair_queue.py); one that is at its own share does not block
others. Values and order only, no clock: services/stream/shared_slots.py waits and releases.

Not chosen: shares that are counted over all processes (a write for each stream that is opened), parts of the total
divided among the tenants known (most of them idle, and new ones come), no bound as long as no other waits (what is
held for minutes, like a stream, cannot be taken back when another tenant comes).

After: services/stream/shared_slots.py.
"""

from collections import Counter
from typing import Self, TypeVar

from loomlog.schemas.records import Value
from loomlog.services.core.fair_queue import FairQueue

TOTAL, TENANT, PRINCIPAL = "total", "tenant", "principal"
"""What a refusal is about."""
RETRY_AFTER_S = 5
"""Seconds after which a refused caller may try again: most of what is held is given back within seconds."""

Key = TypeVar("Key")


class ShareLimits(Value, frozen=True, kw_only=True):
    """Bounds of a resource: of all, of each tenant, of each principal."""

    total: int
    per_tenant: int
    per_principal: int
    keeps_reserve: bool = True
    """Whether the reserve is only for tenants that hold less than is free; otherwise it is taken in turn."""

    @classmethod
    def of(cls, total: int, *, per_tenant: int = 0, per_principal: int = 0) -> Self:
        """Return the usual shares of a total: three quarters for a tenant, half of it for a principal, at least one.

        Three quarters, so that a tenant alone has most of what the machine gives and others still find some at once;
        half, so that one loop of one member does not take what its colleagues have.
        """
        tenant = min(per_tenant or max(1, total - max(1, total // 4)), total)
        return cls(
            total=total,
            per_tenant=tenant,
            per_principal=min(per_principal or max(1, (total + 1) // 2), tenant),
        )

    @classmethod
    def in_turn(cls, total: int) -> Self:
        """Return the shares of what is held for seconds and waited for in turn, like a call.

        What is released goes to the next in turn, so several busy tenants leave none unused, users have what their
        tenant has, and a total below four is not divided. Until a second tenant comes, the first has all: an
        installation of one tenant uses what its operator has configured.
        """
        tenant = total - total // 4
        return cls(total=total, per_tenant=tenant, per_principal=tenant, keeps_reserve=False)

    def __post_init__(self) -> None:
        assert 1 <= self.per_principal <= self.per_tenant <= self.total, self

    @property
    def reserve(self) -> int:
        """What one tenant alone cannot take."""
        return self.total - self.per_tenant


class Holder(Value, frozen=True, kw_only=True):
    """For whom something is held."""

    tenant: str
    principal: str


class ShareExhausted(Exception):
    """Nothing was taken: the share of the principal or the tenant is used up (its own matter), or the total is.

    `resource` is a plural noun, as in "event streams"; `held` what those that the bound is about have of `limit`.
    """

    def __init__(self, resource: str, bound: str, holder: Holder, *, held: int, limit: int, why: str = "") -> None:
        if bound == TOTAL:
            text = f"all {limit} {resource} of this process are taken or kept for those that have fewer"
            hint = "try again in a moment"
        else:
            who = f"the tenant {holder.tenant}" if bound == TENANT else f"{holder.principal} of {holder.tenant}"
            text = f"{who} has {held} {resource} in this process, and its share is {limit}"
            hint = "release some, or try again in a moment"
        super().__init__(f"{text}{why}; {hint}")
        self.resource = resource
        self.bound = bound
        self.holder = holder
        self.held = held
        self.limit = limit
        self.why = why

    @property
    def is_own(self) -> bool:
        """Whether it is the caller's own share, and not what others hold, that is in the way."""
        return self.bound != TOTAL

    @property
    def retry_after_s(self) -> int:
        return RETRY_AFTER_S


class Shares:
    """Holders of a resource, and those that wait for it. Deterministic: the same calls return the same results."""

    def __init__(self, resource: str, limits: ShareLimits) -> None:
        self.resource = resource
        self.limits = limits
        self.in_use = 0
        self._by_tenant: Counter[str] = Counter()
        self._by_principal: Counter[Holder] = Counter()
        self._queue: FairQueue[int] = FairQueue()
        self._waiting: dict[int, Holder] = {}
        self._last_ticket = 0
        self._first_tenant: str | None = None
        self._is_shared = limits.keeps_reserve

    def meet(self, tenant: str) -> None:
        """Know of a tenant that uses this, or would: from the second on each has its share."""
        if self._first_tenant is None:
            self._first_tenant = tenant
        elif tenant != self._first_tenant:
            self._is_shared = True

    @property
    def per_tenant(self) -> int:
        """What a tenant may hold now."""
        return self.limits.per_tenant if self._is_shared else self.limits.total

    @property
    def per_principal(self) -> int:
        """What a principal may hold now."""
        limits = self.limits
        return self.per_tenant if limits.per_principal == limits.per_tenant else limits.per_principal

    @property
    def waiting(self) -> int:
        """Number of those that wait."""
        return len(self._waiting)

    def held_by(self, tenant: str, principal: str | None = None) -> int:
        """Return what a tenant holds, or one of its principals."""
        if principal is None:
            return self._by_tenant[tenant]
        return self._by_principal[Holder(tenant=tenant, principal=principal)]

    def holders(self) -> list[tuple[Holder, int]]:
        """Return who holds how many, the largest first."""
        return self._by_principal.most_common()

    def exhausted_bound(self, holder: Holder) -> str:
        """Return the narrowest bound that is in the way of a holder; empty when it may take one."""
        if self._by_principal[holder] >= self.per_principal:
            return PRINCIPAL
        return self._exhausted_by_tenant(holder.tenant)

    def tenant_may(self, tenant: str) -> bool:
        """Whether neither the share of a tenant nor the total is in the way."""
        return not self._exhausted_by_tenant(tenant)

    def take(self, holder: Holder) -> None:
        """Take one. Raises ShareExhausted.

        No waiter is overtaken: those that may take one got it when it was released.
        """
        self.meet(holder.tenant)
        if self.exhausted_bound(holder):
            raise self.refusal(holder)
        self.add(holder)

    def add(self, holder: Holder) -> None:
        """Take one regardless of the bounds."""
        self.meet(holder.tenant)
        self.in_use += 1
        self._by_tenant[holder.tenant] += 1
        self._by_principal[holder] += 1

    def release(self, holder: Holder) -> None:
        """Release one; `next` serves those that wait."""
        assert self._by_principal[holder] > 0, f"{holder} holds none of {self.resource}"
        self.in_use -= 1
        decrement(self._by_tenant, holder.tenant)
        decrement(self._by_principal, holder)

    def wait(self, holder: Holder) -> int:
        """Let a holder wait; return its ticket."""
        self.meet(holder.tenant)
        self._last_ticket += 1
        self._waiting[self._last_ticket] = holder
        self._queue.join(self._last_ticket, holder.tenant, holder.principal)
        return self._last_ticket

    def withdraw(self, ticket: int) -> bool:
        """Let a ticket wait no more; return False when it does not wait."""
        self._waiting.pop(ticket, None)
        return self._queue.leave(ticket)

    def next(self) -> int | None:
        """Take one for the next of those that wait and may, and return its ticket; None when there is none."""
        if not self._waiting:
            return None
        ticket = self._queue.next(
            tenant_may=self.tenant_may,
            user_may=lambda tenant, user: self.held_by(tenant, user) < self.per_principal,
        )
        if ticket is not None:
            self.add(self._waiting.pop(ticket))
        return ticket

    def refusal(self, holder: Holder, why: str = "") -> ShareExhausted:
        """Return what is in the way of a holder; `why` joins the sentence."""
        match bound := self.exhausted_bound(holder) or TOTAL:
            case "principal":
                held, limit = self._by_principal[holder], self.per_principal
            case "tenant":
                held, limit = self._by_tenant[holder.tenant], self.per_tenant
            case _:
                held, limit = self.in_use, self.limits.total
        return ShareExhausted(self.resource, bound, holder, held=held, limit=limit, why=why)

    def _exhausted_by_tenant(self, tenant: str) -> str:
        limits, held = self.limits, self._by_tenant[tenant]
        if held >= self.per_tenant:
            return TENANT
        free = limits.total - self.in_use
        is_kept = limits.keeps_reserve and free <= limits.reserve and held >= free
        return TOTAL if free <= 0 or is_kept else ""


def decrement(counts: Counter[Key], key: Key) -> None:
    """Count one less."""
    counts[key] -= 1
    if counts[key] <= 0:
        del counts[key]
