"""The folds of the families of this installation, in the form in which the projection of entities takes them.

Before: services/families/registry.py. After: projections/engine/entity_fold.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.projections.engine.builds import CHANNEL_TABLES, ENTITY_TABLES
from loomlog.projections.engine.entity_fold import EntityFold, EntitySummary, FoldedItem, FoldFailed
from loomlog.projections.engine.read_models import EntityModel
from loomlog.projections.entities import Seal, keyed_seal, plain_seal
from loomlog.schemas.generated.entity_events import AggregateEventImported
from loomlog.schemas.generated.values import Envelope
from loomlog.schemas.records import Record, replace
from loomlog.services.core.canonical import StateCodec, UnreadableState
from loomlog.services.core.entity import GENERIC_EVENTS, entity_rules
from loomlog.services.core.entity_import import original_event
from loomlog.services.core.families import CHANNEL_SET, ENTITY_SET, Family, items_problem, no_items
from loomlog.services.families.registry import families_of

TIME_MAX_MS = 2**63 - 1
"""Latest time that a column holds."""
SEAL_PURPOSE = "entity rows"
"""What the key of the seals is derived for."""


TABLES = {ENTITY_SET: ENTITY_TABLES, CHANNEL_SET: CHANNEL_TABLES}
"""The tables of each topic set."""


def entity_model(secret: SecretKey | None, topic_set: str = ENTITY_SET) -> EntityModel:
    """Return the read model of a topic set with its families in this process. Raises FamilyProblem."""
    seal, *former = entity_seals(secret)
    return EntityModel(entity_folds(families_of(topic_set)), seal, TABLES[topic_set], former_seals=former)


def entity_seals(secret: SecretKey | None) -> tuple[Seal, ...]:
    """Return the seals of an installation's rows: the one they are written with, then that of the previous key."""
    if secret is None:
        return (plain_seal,)
    return tuple(keyed_seal(key) for key in secret.derive_keys(SEAL_PURPOSE))


def entity_folds(families: Iterable[Family[Any, Any, Any]]) -> Mapping[str, EntityFold]:
    """Return the folds of those families by name."""
    return {family.name: FamilyFold(family) for family in families}


class FamilyFold:
    """The fold of a family (protocol loomlog.projections.engine.entity_fold.EntityFold)."""

    def __init__(self, family: Family[Any, Any, Any]) -> None:
        self._family = family
        self._rules = entity_rules(family)
        self._states = StateCodec(self._rules.state)

    @property
    def version(self) -> int:
        return self._rules.version

    def initial(self, aggregate: str, seq: int) -> Any:
        return replace(self._rules.initial(aggregate), seq=seq - 1)

    def evolve(self, state: Any, event: Record, at_ms: int) -> Any:
        """Fold an event. Raises FoldFailed also when the state after it has no timer that can be stored, so that
        it is this event at which the aggregate is halted.
        """
        if type(event) not in GENERIC_EVENTS and not event.SCHEMA.startswith(f"loom.{self._family.name}.events."):
            raise FoldFailed(f"a {event.SCHEMA} is no event of the family {self._family.name}")
        try:
            after = self._rules.evolve(state, event, at_ms)
            self._rules.is_over(after)
            due_ms = self._rules.next_timer_ms(after)
        except Exception as error:
            raise FoldFailed(f"{type(event).__name__}: the fold raised {type(error).__name__}: {error}") from error
        if not 0 <= due_ms <= TIME_MAX_MS:
            raise FoldFailed(f"{type(event).__name__}: the next timer is at {due_ms}, which is no time in milliseconds")
        return after

    def items(self, state: Any, event: Record, envelope: Envelope) -> Sequence[FoldedItem]:
        """Return the items of an event, or of the one that an imported one holds. Raises FoldFailed also for an item
        that no row can hold.
        """
        if self._family.items is no_items:
            return ()
        if isinstance(event, AggregateEventImported):
            event, envelope = original_event(event)
        if type(event) in GENERIC_EVENTS:
            return ()
        try:
            items = tuple(self._family.items(state.state, event, envelope))
            problem = items_problem(items)
        except Exception as error:
            raise FoldFailed(f"{type(event).__name__}: items raised {type(error).__name__}: {error}") from error
        if problem:
            raise FoldFailed(f"{type(event).__name__}: {problem}")
        return [
            FoldedItem(
                kind=item.kind,
                id=item.id,
                key_a=item.key_a,
                key_b=item.key_b,
                number=None if item.number is None else float(item.number),
                at_ms=envelope.at_ms,
                document=item.document,
                expires_at_ms=envelope.at_ms + item.kept_ms if item.kept_ms else 0,
            )
            for item in items
        ]

    def summary(self, state: Any) -> EntitySummary:
        try:
            data = self._states.encode(state)
        except Exception as error:
            raise FoldFailed(f"the state cannot be encoded: {type(error).__name__}: {error}") from error
        return EntitySummary(
            state=data,
            quarantine=state.quarantine,
            due_ms=self._rules.next_timer_ms(state),
            is_over=self._rules.is_over(state),
            created_at_ms=state.created_at_ms,
            updated_at_ms=state.updated_at_ms,
        )

    def decode(self, data: bytes) -> Any:
        try:
            return self._states.decode(data)
        except UnreadableState as error:
            raise FoldFailed(str(error)) from error
