"""Who goes next and who is turned away when more runs want to begin than may be under way.

A run is inside while something of it is at work: a model call or a tool call is due. Parked and paused runs, and those
that wait for a person, have left; when they go on they are inside again at once, also past the bounds, because they
were admitted before and nobody may hold them up. Children are inside with their parent and are never asked about, so
a parent can wait for them without a deadlock.

    places    max_concurrent_runs of them; a run of a user who has all he may have, or of a provider that is full, waits
              without keeping others from the places
    queue     fair (fair_queue.py): tenants in turn, within one its users, within one the oldest that may enter
    refused   at once when the queue is full, later when its time is up (whoever keeps the time says so)

Values and order only, no clock: services/runtime/admission/queue.py keeps the time and wakes who is let in. Not chosen:
one queue in the order of arrival (a tenant that floods it keeps everybody out), weights (nobody has asked for them).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loomlog.schemas.quick import quick
from loomlog.services.core.fair_queue import FairQueue

BACKPRESSURE = "backpressure"
USER_FULL = "per_user_quota_exhausted"
PROVIDER_FULL = "provider_concurrency_exhausted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Of one process. `per_user` 0: no bound. `providers`: most runs at work with each that has a bound."""

    runs: int
    queue: int
    per_user: int = 0
    providers: Mapping[str, int] = field(default_factory=dict)
    provider_queue: int = 0
    """Runs that wait for one provider."""


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """For whom a run works, and with which provider."""

    tenant: str
    user_id: str
    provider: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnedAway:
    """Why a run may not begin now. `about` is the user or the provider that is full, `cap` the bound."""

    code: str
    message: str
    about: str = ""
    cap: int = 0


class Admission:
    """Runs inside and waiting, by id. Deterministic: the same calls give the same answers."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.inside: dict[str, Place] = {}
        self.waiting: dict[str, Place] = {}
        """In the order they came."""
        self._users: Counter[tuple[str, str]] = Counter()
        self._providers: Counter[str] = Counter()
        self._queued: Counter[str] = Counter()
        """Waiting by provider."""
        self._turns: FairQueue[str] = FairQueue()

    def has_room(self, place: Place) -> bool:
        """Whether a run may begin at once. Not past those that wait."""
        return not self.waiting and self._blocked_by(place) == ""

    def enter(self, run_id: str, place: Place) -> None:
        """The run is at work, whatever the bounds say."""
        if run_id not in self.inside:
            self.inside[run_id] = place
            # Only what has a bound is counted: most have none, and every run comes by here.
            if self.bounds.per_user:
                self._users[place.tenant, place.user_id] += 1
            if self.bounds.providers:
                self._providers[place.provider] += 1

    def leave(self, run_id: str) -> bool:
        """The run is not at work any more; false when it was not."""
        place = self.inside.pop(run_id, None)
        if place is None:
            return False
        if self.bounds.per_user:
            _less(self._users, (place.tenant, place.user_id))
        if self.bounds.providers:
            _less(self._providers, place.provider)
        return True

    def queue(self, run_id: str, place: Place) -> TurnedAway | None:
        """Let it wait; why it cannot even do that."""
        if len(self.waiting) >= self.bounds.queue:
            return self.why(place)
        cap = self.bounds.providers.get(place.provider, 0)
        if (
            cap
            and self._providers[place.provider] >= cap
            and self._queued[place.provider] >= self.bounds.provider_queue
        ):
            return self.why(place)
        self.waiting[run_id] = place
        self._queued[place.provider] += 1
        self._turns.join(run_id, place.tenant, place.user_id)
        return None

    def give_up(self, run_id: str) -> None:
        """It waits no longer."""
        place = self.waiting.pop(run_id, None)
        if place is not None:
            _less(self._queued, place.provider)
            self._turns.leave(run_id)

    def next(self) -> str:
        """Who of those waiting goes in now, and does; empty when nobody may."""
        if len(self.inside) >= self.bounds.runs:
            return ""
        run_id = self._turns.next(lambda run_id: not self._blocked_by(self.waiting[run_id]), user_may=self._user_may)
        if run_id is None:
            return ""
        place = self.waiting[run_id]
        self.give_up(run_id)
        self.enter(run_id, place)
        return run_id

    def why(self, place: Place) -> TurnedAway:
        """What keeps a run out, in the words of the refusal."""
        bounds = self.bounds
        match self._blocked_by(place):
            case code if code == PROVIDER_FULL:
                cap = bounds.providers[place.provider]
                said = f"{cap} runs are at work with the provider {place.provider}, which is all it may have"
                return TurnedAway(code=code, message=f"{said}; try again in a moment", about=place.provider, cap=cap)
            case code if code == USER_FULL:
                said = f"{bounds.per_user} runs of the user {place.user_id} are at work, which is all he may have"
                return TurnedAway(code=code, message=f"{said}; wait for one", about=place.user_id, cap=bounds.per_user)
        said = f"{len(self.inside)} runs are at work here and {len(self.waiting)} wait"
        return TurnedAway(code=BACKPRESSURE, message=f"{said}; try again in a moment", cap=bounds.runs)

    def _blocked_by(self, place: Place) -> str:
        """The narrowest bound that keeps a run out; empty when none does."""
        bounds = self.bounds
        cap = bounds.providers.get(place.provider, 0) if bounds.providers else 0
        if cap and self._providers[place.provider] >= cap:
            return PROVIDER_FULL
        if not self._user_may(place.tenant, place.user_id):
            return USER_FULL
        return BACKPRESSURE if len(self.inside) >= bounds.runs else ""

    def _user_may(self, tenant: str, user_id: str) -> bool:
        """Whether the bound of a user lets another of his runs in."""
        return not self.bounds.per_user or self._users[tenant, user_id] < self.bounds.per_user


def _less(counts: Counter[Any], key: Any) -> None:
    counts[key] -= 1
    if counts[key] <= 0:
        del counts[key]
