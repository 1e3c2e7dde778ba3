"""Admission control: the order of runs that wait to start, and refusals when too many are active.

A run is active while a model call or a tool call of it is due. Parked and paused runs, and those that wait for a
person, are not; when they continue they are active again at once, even over the limits, because they were admitted
before and must not be delayed. The limit of a user counts those that are parked or wait as well: each is a run that
the user has open. Children are active together with their parent and are never queued, so a parent can
wait for them without a deadlock.

    places    max_concurrent_runs of them, of which a tenant has its share (shares.py); a run of a user or of a provider
              at its limit waits without blocking the places for others
    queue     fair (fair_queue.py): tenants in turn, within one its users, within one the oldest that may start; a
              tenant has its share of it too
    refused   at once when the queue is full, later on a timeout (measured by the caller)

Values and order only, no clock: services/runtime/admission/queue.py measures time and wakes the admitted runs. Not
chosen: one queue in the order of arrival (a tenant that floods it blocks all others), weights (no demand so far).
"""

from collections import Counter
from collections.abc import Mapping

from msgspec import field

from loomlog.schemas.records import Value, replace
from loomlog.services.core.fair_queue import FairQueue
from loomlog.services.core.shares import PRINCIPAL, Holder, ShareLimits, Shares, decrement

BACKPRESSURE = "backpressure"
USER_FULL = "per_user_quota_exhausted"
PROVIDER_FULL = "provider_concurrency_exhausted"


class AdmissionLimits(Value, frozen=True, kw_only=True):
    """Limits of one process. `per_user`: of active and idle runs together; 0: no limit. `providers`: maximum active
    runs for each provider with a limit.
    """

    runs: int
    queue: int
    per_user: int = 0
    providers: Mapping[str, int] = field(default_factory=dict)
    provider_queue: int = 0
    """Maximum runs that wait for one provider."""


class Slot(Value, frozen=True, kw_only=True):
    """Tenant, user and provider of a run."""

    tenant: str
    user_id: str
    provider: str = ""


class AdmissionRefused(Value, frozen=True, kw_only=True):
    """The reason why a run may not start now. `about` is the user or the provider at its limit, `cap` the limit."""

    code: str
    message: str
    about: str = ""
    cap: int = 0


class AdmissionController:
    """Active and waiting runs, by id. Deterministic: the same calls return the same results."""

    def __init__(self, limits: AdmissionLimits) -> None:
        self.limits = limits
        self.active: dict[str, Slot] = {}
        self.idle: dict[str, Slot] = {}
        """Runs that are parked or wait, as the shell tells them; it need not where users have no limit."""
        self.waiting: dict[str, Slot] = {}
        """Waiting runs in order of arrival."""
        places = ShareLimits.in_turn(limits.runs)
        if limits.per_user:
            places = replace(places, per_principal=min(limits.per_user, places.per_tenant))
        self._places = Shares("runs at work", places)
        self._queue_places = Shares("starts that wait", ShareLimits.in_turn(max(1, limits.queue)))
        self._idle_by_user: Counter[Holder] = Counter()
        self._active_by_provider: Counter[str] = Counter()
        self._queued_by_provider: Counter[str] = Counter()
        """Number of waiting runs by provider."""
        self._fair_queue: FairQueue[str] = FairQueue()

    def has_capacity(self, slot: Slot) -> bool:
        """Whether a run may start at once; false while others wait."""
        return not self.waiting and self._blocking_limit(slot) == ""

    def admit(self, run_id: str, slot: Slot) -> None:
        """Mark a run as active, regardless of the limits."""
        self._end_idling(run_id)
        if run_id not in self.active:
            self.active[run_id] = slot
            self._places.add(_holder(slot))
            self._queue_places.meet(slot.tenant)
            if self.limits.providers:  # most have none, and every run passes here
                self._active_by_provider[slot.provider] += 1

    def rest(self, run_id: str, slot: Slot) -> bool:
        """Mark a run as idle; return False when it was not active."""
        was_active = self.release(run_id)
        self.idle[run_id] = slot
        self._idle_by_user[_holder(slot)] += 1
        return was_active

    def release(self, run_id: str) -> bool:
        """Mark a run as neither active nor idle; return False when it was not active."""
        self._end_idling(run_id)
        place = self.active.pop(run_id, None)
        if place is None:
            return False
        self._places.release(_holder(place))
        if self.limits.providers:
            decrement(self._active_by_provider, place.provider)
        return True

    def enqueue(self, run_id: str, slot: Slot) -> AdmissionRefused | None:
        """Queue a run; return the refusal when the queue does not accept it."""
        holder = _holder(slot)
        self._places.meet(slot.tenant)
        self._queue_places.meet(slot.tenant)
        if (
            len(self.waiting) >= self.limits.queue
            or self._queue_places.exhausted_bound(holder)
            or not self._has_user_capacity(slot.tenant, slot.user_id)
        ):
            return self.refusal_for(slot)
        cap = self.limits.providers.get(slot.provider, 0)
        if (
            cap
            and self._active_by_provider[slot.provider] >= cap
            and self._queued_by_provider[slot.provider] >= self.limits.provider_queue
        ):
            return self.refusal_for(slot)
        self.waiting[run_id] = slot
        self._queue_places.add(holder)
        self._queued_by_provider[slot.provider] += 1
        self._fair_queue.join(run_id, slot.tenant, slot.user_id)
        return None

    def withdraw(self, run_id: str) -> None:
        """Remove a run from the queue."""
        place = self.waiting.pop(run_id, None)
        if place is not None:
            decrement(self._queued_by_provider, place.provider)
            self._queue_places.release(_holder(place))
            self._fair_queue.leave(run_id)

    def admit_next(self) -> str:
        """Admit the next waiting run and return its id; empty when none may start."""
        if len(self.active) >= self.limits.runs:
            return ""
        run_id = self._fair_queue.next(
            lambda run_id: not self._blocking_limit(self.waiting[run_id]),
            tenant_may=self._places.tenant_may,
            user_may=self._has_user_capacity,
        )
        if run_id is None:
            return ""
        place = self.waiting[run_id]
        self.withdraw(run_id)
        self.admit(run_id, place)
        return run_id

    def refusal_for(self, slot: Slot) -> AdmissionRefused:
        """Return the refusal that describes the limit blocking a run."""
        bounds = self.limits
        match self._blocking_limit(slot):
            case code if code == PROVIDER_FULL:
                cap = bounds.providers[slot.provider]
                text = f"{cap} runs are at work with the provider {slot.provider}, the most it may have"
                return AdmissionRefused(
                    code=code, message=f"{text}; try again in a moment", about=slot.provider, cap=cap
                )
            case code if code == USER_FULL:
                text = f"{bounds.per_user} runs of the user {slot.user_id} are open, the most a user may have"
                return AdmissionRefused(
                    code=code, message=f"{text}; wait until one has ended", about=slot.user_id, cap=bounds.per_user
                )
        held = self._places.held_by(slot.tenant)
        text = f"{len(self.active)} runs are at work here, {held} of them of this tenant, and {len(self.waiting)} wait"
        return AdmissionRefused(code=BACKPRESSURE, message=f"{text}; try again in a moment", cap=bounds.runs)

    def _blocking_limit(self, slot: Slot) -> str:
        """Return the narrowest limit that blocks a run; empty when none does."""
        bounds = self.limits
        cap = bounds.providers.get(slot.provider, 0) if bounds.providers else 0
        if cap and self._active_by_provider[slot.provider] >= cap:
            return PROVIDER_FULL
        if not self._has_user_capacity(slot.tenant, slot.user_id):
            return USER_FULL
        match self._places.exhausted_bound(_holder(slot)):
            case "":
                return ""
            case bound if bound == PRINCIPAL and bounds.per_user:
                return USER_FULL
        return BACKPRESSURE

    def _has_user_capacity(self, tenant: str, user_id: str) -> bool:
        """Whether a user's limit allows another run."""
        if not self.limits.per_user:
            return True
        idle = self._idle_by_user[Holder(tenant=tenant, principal=user_id)]
        return self._places.held_by(tenant, user_id) + idle < self.limits.per_user

    def _end_idling(self, run_id: str) -> None:
        slot = self.idle.pop(run_id, None)
        if slot is not None:
            decrement(self._idle_by_user, _holder(slot))


def _holder(slot: Slot) -> Holder:
    return Holder(tenant=slot.tenant, principal=slot.user_id)
