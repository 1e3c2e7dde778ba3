"""Availability of models: the fold of loom.provider.events, one table for all processes.

A status belongs to one model of a provider. It has two states, kept apart because they recover differently:

    stalled        a call failed at the provider; until a call succeeds there, or the provider answers a probe
    rate limited   it was called too often; until a time, and no probe shortens it: that would only repeat the overload

A probe of the provider supplies the rest: whether it responds, and which models it lists. Models never probed are
assumed available, and an empty list of models has no meaning.

Before: loomlog.schemas.generated.stream_records. After: services/stream/global_tables/providers.py keeps one table for
a process.
"""

import re
from collections.abc import Collection, Mapping

from msgspec import field

from loomlog.schemas.generated.stream_records import ModelMarked, ProbeRequested, ProviderProbed
from loomlog.schemas.records import Value, replace
from loomlog.services.core.run.turns.fallback import QUOTA_EXHAUSTED, STALE_CONNECTION, may_fall_back

RATE_LIMITED, STALLED, RECOVERED = "rate_limited", "stalled", "recovered"
"""Marks of a model."""
COOLDOWN_DEFAULT_MS = 30_000
COOLDOWN_RANGE_MS = (1_000, 600_000)
"""Minimum and maximum milliseconds of a rate limit, whatever a plan configures (parity)."""
STATUSES_MAX = 10_000
"""Maximum statuses in a table: models are named by the configuration, so more is an error."""
ERROR_MAX = 500
"""Maximum characters of an error that are kept; it is shown to operators."""
REQUESTS_KEPT = 20
"""Number of requested probes that are remembered; their callers wait only for seconds."""
_RELEASE_DATE = re.compile(r"-20\d{6}\Z")

ProviderRecord = ModelMarked | ProviderProbed | ProbeRequested


class ModelStatus(Value, frozen=True, kw_only=True):
    """The state of a model according to calls. Times in UTC milliseconds, 0 = never."""

    stalled_at_ms: int = 0
    limited_until_ms: int = 0
    reason: str = ""
    """Kind of the last failure."""

    @property
    def is_stalled(self) -> bool:
        return self.stalled_at_ms > 0


HEALTHY = ModelStatus()


class ProviderStatus(Value, frozen=True, kw_only=True):
    """The result of a provider's last probe."""

    reachable: bool
    models: tuple[str, ...]
    """Models as the provider lists them; the previous list when the list was unavailable."""
    checked_at_ms: int
    error: str = ""
    key_refused: bool = False
    """The provider is unreachable only with the operator's key."""


class ModelAvailability(Value, frozen=True, kw_only=True):
    """Availability of one model at one time."""

    reachable: bool
    listed: bool
    stalled: bool
    rate_limited: bool

    @property
    def is_available(self) -> bool:
        return self.reachable and self.listed and not self.stalled and not self.rate_limited

    @property
    def unavailable_reason(self) -> str:
        """Describe every reason against the model, for people; empty when there is none."""
        problems = (
            (not self.reachable, "its provider does not answer"),
            (not self.listed, "its provider does not list it"),
            (self.stalled, "it is stalled"),
            (self.rate_limited, "it is rate limited"),
        )
        return " and ".join(words for is_so, words in problems if is_so)


class AvailabilityTable(Value, frozen=True, kw_only=True):
    """Availability of all models. Statuses without a problem are left out."""

    statuses: Mapping[tuple[str, str], ModelStatus] = field(default_factory=dict)
    providers: Mapping[str, ProviderStatus] = field(default_factory=dict)
    request_ids: tuple[str, ...] = ()
    """Ids of the latest requested probes, oldest first, including answered ones."""
    answered_requests: Mapping[str, str] = field(default_factory=dict)
    """The newest request id that each provider was probed for, which answers the older ones too."""

    def apply(self, record: ProviderRecord) -> "AvailabilityTable":
        """Return the table after one record. Raises ValueError."""
        match record:
            case ModelMarked():
                return self._apply_mark(record)
            case ProviderProbed():
                return self._apply_probe(record)
            case ProbeRequested(request_id=request):
                if request in self.request_ids:
                    return self
                return replace(self, request_ids=(*self.request_ids, request)[-REQUESTS_KEPT:])

    def status(self, provider: str, model: str) -> ModelStatus:
        return self.statuses.get((provider, model), HEALTHY)

    def availability(self, provider: str, model: str, now_ms: int, *, own_key: bool = False) -> ModelAvailability:
        """Return the availability of a model at that time.

        `own_key`: for a run with its own provider key, which the limits of the operator's key do not affect.
        """
        probed = self.providers.get(provider)
        cell = self.status(provider, model)
        return ModelAvailability(
            reachable=probed is None or probed.reachable or (own_key and probed.key_refused),
            listed=probed is None or not probed.models or is_listed(model, probed.models),
            stalled=cell.is_stalled,
            rate_limited=cell.limited_until_ms > now_ms and not own_key,
        )

    def has_answered(self, request_id: str, provider: str) -> bool:
        """Whether the provider has been probed for that request, or for a later one."""
        newest = self.answered_requests.get(provider, "")
        if newest not in self.request_ids or request_id not in self.request_ids:
            return False
        return self.request_ids.index(newest) >= self.request_ids.index(request_id)

    def listings(self) -> dict[str, tuple[str, ...]]:
        """Return the models listed by each provider."""
        return {name: probed.models for name, probed in self.providers.items()}

    def next_change_ms(self, now_ms: int) -> int:
        """Return when the next rate limit ends, which changes the table without a record; 0 = no limit is in force."""
        ends = [cell.limited_until_ms for cell in self.statuses.values() if cell.limited_until_ms > now_ms]
        return min(ends, default=0)

    def stalled_since_ms(self, provider: str) -> int:
        """Return the time since which some model of the provider is stalled; 0 = none is."""
        times = [
            cell.stalled_at_ms for (name, _), cell in self.statuses.items() if name == provider and cell.is_stalled
        ]
        return min(times, default=0)

    def _apply_mark(self, mark: ModelMarked) -> "AvailabilityTable":
        place = (mark.provider, mark.model)
        cell = self.status(*place)
        match mark.mark:
            case "rate_limited":
                # Two owners may report the same overload: the later end counts.
                until_ms = max(cell.limited_until_ms, mark.until_ms)
                now = replace(cell, limited_until_ms=until_ms, reason=mark.reason)
            case "stalled":
                now = replace(cell, stalled_at_ms=cell.stalled_at_ms or max(mark.at_ms, 1), reason=mark.reason)
            case "recovered":
                now = replace(cell, stalled_at_ms=0)
                probed = self.providers.get(mark.provider)
                if probed is not None and not probed.reachable:
                    status = replace(probed, reachable=True, error="", key_refused=False)
                    here = {**self.providers, mark.provider: status}
                    return replace(self, providers=here)._with_status(place, now, mark.at_ms)
            case _:
                raise ValueError(f"the mark {mark.mark[:60]!r}: expected {RATE_LIMITED}, {STALLED} or {RECOVERED}")
        return self._with_status(place, now, mark.at_ms)

    def _with_status(self, key: tuple[str, str], status: ModelStatus, at_ms: int) -> "AvailabilityTable":
        # A limit that has ended has no meaning; without it the table stays as small as the set of current problems.
        others = {
            other: kept
            for other, kept in self.statuses.items()
            if other != key and (kept.is_stalled or kept.limited_until_ms > at_ms)
        }
        is_well = not status.is_stalled and status.limited_until_ms <= at_ms
        if not is_well and len(others) >= STATUSES_MAX:
            raise ValueError(f"{STATUSES_MAX} models are marked already; {key[0][:60]}/{key[1][:60]} is left out")
        return replace(self, statuses=others if is_well else {**others, key: status})

    def _apply_probe(self, probe: ProviderProbed) -> "AvailabilityTable":
        before = self.providers.get(probe.provider)
        # When the list is unavailable, the previous one is better than none.
        models = before.models if before is not None and probe.error and not probe.models else probe.models
        status = ProviderStatus(
            reachable=probe.reachable,
            models=models,
            checked_at_ms=probe.at_ms,
            error=probe.error[:ERROR_MAX],
            key_refused=probe.key_refused,
        )
        cells = self.statuses
        if probe.reachable or probe.key_refused:
            cells = {
                place: replace(cell, stalled_at_ms=0) if place[0] == probe.provider else cell
                for place, cell in cells.items()
                if place[0] != probe.provider or cell.limited_until_ms > probe.at_ms
            }
        answered = self.answered_requests
        if probe.request_id in self.request_ids and not self.has_answered(probe.request_id, probe.provider):
            answered = {**answered, probe.provider: probe.request_id}
        return replace(
            self, statuses=cells, providers={**self.providers, probe.provider: status}, answered_requests=answered
        )


def failure_mark(
    table: AvailabilityTable, provider: str, model: str, kind: str, *, cooldown_ms: int, at_ms: int, by: str
) -> ModelMarked | None:
    """Return the mark for a call that failed permanently; None when it is known already or not about the model.

    An invalid request, or a refused key, is not about the model.
    """
    cell = table.status(provider, model)
    if kind in ("rate_limited", QUOTA_EXHAUSTED):
        if cell.limited_until_ms > at_ms:
            return None
        least_ms, most_ms = COOLDOWN_RANGE_MS
        until_ms = at_ms + min(max(cooldown_ms or COOLDOWN_DEFAULT_MS, least_ms), most_ms)
        return ModelMarked(
            provider=provider, model=model, mark=RATE_LIMITED, until_ms=until_ms, reason=kind, by=by, at_ms=at_ms
        )
    if cell.is_stalled or kind == STALE_CONNECTION or not may_fall_back(kind):
        return None
    return ModelMarked(provider=provider, model=model, mark=STALLED, reason=kind, by=by, at_ms=at_ms)


def success_mark(
    table: AvailabilityTable, provider: str, model: str, *, at_ms: int, by: str, own_key: bool = False
) -> ModelMarked | None:
    """Return the mark for a successful call; None unless the model was stalled or its provider unreachable.

    When the operator's key is refused, a response to another key (`own_key`) proves nothing.
    """
    probed = table.providers.get(provider)
    if own_key and probed is not None and probed.key_refused:
        return None
    if not table.status(provider, model).is_stalled and (probed is None or probed.reachable):
        return None
    return ModelMarked(provider=provider, model=model, mark=RECOVERED, by=by, at_ms=at_ms)


def is_listed(model: str, listed: Collection[str]) -> bool:
    """Whether a provider's list includes the model: by its name, with a release date, or with the tag `latest`.

    Vendors accept a name without a date, but list it only with one.
    """
    if model in listed:
        return True
    return any(_RELEASE_DATE.sub("", name) == model or name == f"{model}:latest" for name in listed)
