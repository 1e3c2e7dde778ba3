"""Which models can be called now: the fold of loom.provider.events, one matrix for all processes.

A cell is a model of a provider. It has two states of its own, kept apart because they heal differently:

    stalled        a call failed at the provider; until a call succeeds there, or the provider answers a probe
    rate limited   it was called too often; until a time, and no probe shortens it: that would only bring the storm back

The provider says the rest when it is probed: whether it answers, and which models it lists. What nobody has asked about
is taken to be well, and a provider that lists nothing has said nothing about its models.

Before: loomlog.schemas.generated.stream_records. After: services/stream/global_tables/providers.py keeps one matrix for
a process.
"""

import re
from collections.abc import Collection, Mapping

from msgspec import field

from loomlog.schemas.generated.stream_records import ModelMarked, ProbeRequested, ProviderProbed
from loomlog.schemas.records import Value, replace
from loomlog.services.core.run.turns.fallback import FALLBACK_CLASSES, STALE_CONNECTION, failure_class

RATE_LIMITED, STALLED, RECOVERED = "rate_limited", "stalled", "recovered"
"""Marks of a model."""
COOLDOWN_DEFAULT_MS = 30_000
COOLDOWN_RANGE_MS = (1_000, 600_000)
"""How long a rate limit is taken to last: at least and at most, whatever a plan says (parity)."""
STATUSES_MAX = 10_000
"""Cells one matrix keeps: models are named by the configuration, so more is somebody's mistake."""
ERROR_MAX = 500
"""Characters of an error that are kept; it is shown to operators."""
REQUESTS_KEPT = 20
"""Probes on demand that are remembered; whoever asked waits for seconds."""
_RELEASE_DATE = re.compile(r"-20\d{6}\Z")

ProviderRecord = ModelMarked | ProviderProbed | ProbeRequested


class InvalidMark(Exception):
    """A record that says nothing anybody knows; the text says what was expected."""


class ModelStatus(Value, frozen=True, kw_only=True):
    """What calls have shown of a model. Times in UTC milliseconds, 0 = never."""

    stalled_at_ms: int = 0
    limited_until_ms: int = 0
    reason: str = ""
    """Kind of the last failure."""

    @property
    def is_stalled(self) -> bool:
        return self.stalled_at_ms > 0


HEALTHY = ModelStatus()


class ProviderStatus(Value, frozen=True, kw_only=True):
    """What the last probe of a provider gave."""

    reachable: bool
    models: tuple[str, ...]
    """As it lists them; where the list could not be had, as it did before."""
    checked_at_ms: int
    error: str = ""
    key_refused: bool = False
    """It is not reachable with the operator's key only."""


class ModelAvailability(Value, frozen=True, kw_only=True):
    """One model at one time."""

    reachable: bool
    listed: bool
    stalled: bool
    rate_limited: bool

    @property
    def is_available(self) -> bool:
        return self.reachable and self.listed and not self.stalled and not self.rate_limited

    @property
    def unavailable_reason(self) -> str:
        """Everything that stands against it, for people; empty when nothing does."""
        found = (
            (not self.reachable, "its provider does not answer"),
            (not self.listed, "its provider does not list it"),
            (self.stalled, "it is stalled"),
            (self.rate_limited, "it is rate limited"),
        )
        return " and ".join(words for is_so, words in found if is_so)


class AvailabilityTable(Value, frozen=True, kw_only=True):
    """What is known of all models. Cells in which nothing is wrong are left out."""

    statuses: Mapping[tuple[str, str], ModelStatus] = field(default_factory=dict)
    providers: Mapping[str, ProviderStatus] = field(default_factory=dict)
    request_ids: tuple[str, ...] = ()
    """Ids of the latest probes that were asked for, oldest first, also those that have been answered."""
    answered_requests: Mapping[str, str] = field(default_factory=dict)
    """Provider -> the newest of them it was probed for, which answers the older ones too."""

    def apply(self, record: ProviderRecord) -> "AvailabilityTable":
        """The matrix after one record. Raises InvalidMark."""
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
        """How a model is at that time. `own_key`: for a run that pays with a key of its own, which what the operator's
        has met is no matter of."""
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
        """Provider -> the models it lists."""
        return {name: probed.models for name, probed in self.providers.items()}

    def next_change_ms(self, now_ms: int) -> int:
        """When the next rate limit ends, so that something is different without a record; 0 = no limit is in force."""
        ends = [cell.limited_until_ms for cell in self.statuses.values() if cell.limited_until_ms > now_ms]
        return min(ends, default=0)

    def stalled_since_ms(self, provider: str) -> int:
        """Since when some model of the provider is stalled; 0 = none is."""
        found = [
            cell.stalled_at_ms for (name, _), cell in self.statuses.items() if name == provider and cell.is_stalled
        ]
        return min(found, default=0)

    def _apply_mark(self, mark: ModelMarked) -> "AvailabilityTable":
        place = (mark.provider, mark.model)
        cell = self.status(*place)
        match mark.mark:
            case "rate_limited":
                # Two owners may see the same storm: the later end counts.
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
                raise InvalidMark(f"the mark {mark.mark[:60]!r}: expected {RATE_LIMITED}, {STALLED} or {RECOVERED}")
        return self._with_status(place, now, mark.at_ms)

    def _with_status(self, key: tuple[str, str], status: ModelStatus, at_ms: int) -> "AvailabilityTable":
        # A limit that has ended says nothing any more; leaving it out keeps the matrix as small as what is wrong.
        others = {
            other: kept
            for other, kept in self.statuses.items()
            if other != key and (kept.is_stalled or kept.limited_until_ms > at_ms)
        }
        is_well = not status.is_stalled and status.limited_until_ms <= at_ms
        if not is_well and len(others) >= STATUSES_MAX:
            raise InvalidMark(f"{STATUSES_MAX} models are marked already; {key[0][:60]}/{key[1][:60]} is left out")
        return replace(self, statuses=others if is_well else {**others, key: status})

    def _apply_probe(self, probe: ProviderProbed) -> "AvailabilityTable":
        before = self.providers.get(probe.provider)
        # Where the list could not be had, the one before is better than none.
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
    """What a call that failed for good says of its model; None when that is known already, or says nothing of it.

    A request that is wrong in itself, or a key that is refused, is no matter of the model.
    """
    cell = table.status(provider, model)
    if kind == "rate_limited":
        if cell.limited_until_ms > at_ms:
            return None
        least_ms, most_ms = COOLDOWN_RANGE_MS
        until_ms = at_ms + min(max(cooldown_ms or COOLDOWN_DEFAULT_MS, least_ms), most_ms)
        return ModelMarked(
            provider=provider, model=model, mark=RATE_LIMITED, until_ms=until_ms, reason=kind, by=by, at_ms=at_ms
        )
    if cell.is_stalled or kind == STALE_CONNECTION or failure_class(kind) not in FALLBACK_CLASSES:
        return None
    return ModelMarked(provider=provider, model=model, mark=STALLED, reason=kind, by=by, at_ms=at_ms)


def success_mark(
    table: AvailabilityTable, provider: str, model: str, *, at_ms: int, by: str, own_key: bool = False
) -> ModelMarked | None:
    """What a call that was answered says of its model: something only when it was stalled, or its provider away.

    Where the operator's key is refused, an answer to another one (`own_key`) says nothing.
    """
    probed = table.providers.get(provider)
    if own_key and probed is not None and probed.key_refused:
        return None
    if not table.status(provider, model).is_stalled and (probed is None or probed.reachable):
        return None
    return ModelMarked(provider=provider, model=model, mark=RECOVERED, by=by, at_ms=at_ms)


def is_listed(model: str, listed: Collection[str]) -> bool:
    """Whether a list means the model: by its name, with a release date, or with the tag `latest`.

    Vendors answer to a name without a date and list it with one only.
    """
    if model in listed:
        return True
    return any(_RELEASE_DATE.sub("", name) == model or name == f"{model}:latest" for name in listed)
