"""Fold of a poll's events into the rows of entities, without a database.

The state of an aggregate is folded by its family (EntityFold, which the projector hands in) and kept encoded in its
row. An aggregate is halted at the first record that cannot be folded: out of sequence, unreadable, of no family of
this installation, of another family or tenant, or one at which the fold raises. Its row stays as it was, the record is
a problem, and every other aggregate goes on. An AggregateRestated gives it a new state and ends the halt.

Each event may give items: rows of their own for facts of the history (entity_items.py). They are those of the events
in the state of the aggregate's row, so a halted aggregate has none of what follows; a restatement gives none.

`fold_entities` mutates nothing, and how events fall into polls makes no difference to the rows.

Before: batch.py. After: entity_projection.py writes the changes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from loomlog.projections import problems
from loomlog.projections.engine.batch import (
    PositionedEvent,
    ProjectionBatch,
    ProjectionItem,
    ProjectionProblem,
    UnreadableEvent,
    broken_sequence_problem,
)
from loomlog.projections.entities import EntityCommandRow, EntityRow, Seal, sealed
from loomlog.projections.entity_items import ItemRow
from loomlog.projections.problems import ProblemRow
from loomlog.schemas.codec import DIGEST_BYTES, Undecodable, digest, read_envelope
from loomlog.schemas.generated.entity_events import AggregateRestated
from loomlog.schemas.generated.values import Envelope
from loomlog.schemas.ids import command_identity
from loomlog.schemas.records import Value

COMMAND_ID_BYTES_MAX = 1_024
"""Longest command id that the index takes. A page of Postgres' index holds entries of 2,704 bytes, the aggregate's id
included."""
QUARANTINE_CHARACTERS_MAX = 1_000


ItemKey = tuple[str, str, str, str]
"""Family, tenant, kind and id."""


class FoldFailed(Exception):
    """A family's rule raised, or a state cannot be read; the text says which."""


class EntitySummary(Value, frozen=True, kw_only=True):
    """What a row has of a state. Times are UTC milliseconds, 0: none."""

    state: bytes
    """Canonical JSON."""
    quarantine: str
    due_ms: int
    is_over: bool
    created_at_ms: int
    updated_at_ms: int


class FoldedItem(NamedTuple):
    """An item of an event. `document` is JSON text; empty: the row is removed."""

    kind: str
    id: str
    key_a: str
    key_b: str
    number: float | None
    at_ms: int
    document: str
    expires_at_ms: int = 0


class EntityFold(Protocol):
    """The fold of a family."""

    @property
    def version(self) -> int:
        """Raised whenever the same events give another state."""
        ...

    def initial(self, aggregate: str, seq: int) -> Any:
        """Return the state before the event with that seq, from which a fold begins."""
        ...

    def evolve(self, state: Any, event: Any, at_ms: int) -> Any:
        """Return the state after an event. Raises FoldFailed, also for an event of another family."""
        ...

    def items(self, state: Any, event: Any, envelope: Envelope) -> Sequence[FoldedItem]:
        """Return the items of an event, given the state after it. Raises FoldFailed."""
        ...

    def summary(self, state: Any) -> EntitySummary:
        """Return what a row has of the state. Raises FoldFailed."""
        ...

    def decode(self, data: bytes) -> Any:
        """Return the state with those canonical bytes. Raises FoldFailed."""
        ...


class EntityState(Value, frozen=True, kw_only=True):
    """The stored state of an aggregate: its row, and the state in it decoded."""

    row: EntityRow | None = None
    state: Any = None
    """None before its first event was folded."""
    problem: str = ""
    """Why the row cannot be continued; empty if it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityChanges:
    """The rows a poll changes, each list sorted by key and without duplicate keys."""

    entities: list[EntityRow]
    commands: list[EntityCommandRow]
    items: list[ItemRow]
    removed_items: list[ItemKey]
    problems: list[ProblemRow]
    states: dict[str, EntityState]


class _Halt(Exception):
    """The record cannot be folded."""

    def __init__(self, problem: ProjectionProblem) -> None:
        self.problem = problem


def fold_entities(
    topic: str,
    batch: ProjectionBatch,
    states: Mapping[str, EntityState],
    *,
    folds: Mapping[str, EntityFold],
    seal: Seal,
) -> EntityChanges:
    """The changes of a batch. `states` has every aggregate of the batch that has a row."""
    changed: list[EntityRow] = []
    commands: dict[tuple[str, str], EntityCommandRow] = {}
    item_rows: dict[ItemKey, ItemRow] = {}
    projection_problems = list(batch.problems)
    after: dict[str, EntityState] = {}
    for aggregate in sorted(batch.aggregates):
        before = states.get(aggregate, EntityState())
        items = batch.aggregates[aggregate]
        folding = _Folding(aggregate, before, folds.get(aggregate.partition(":")[0]))
        for item in items:
            _index_command(commands, aggregate, item)
            if (problem := folding.take(item)) is not None:
                projection_problems.append(problem)
        after[aggregate], problem = folding.finish(seal)
        if problem is not None:
            projection_problems.append(problem)
        item_rows |= {(row.family, row.tenant, row.kind, row.id): row for row in folding.items}
        row = after[aggregate].row
        if row is not None and row != before.row:
            changed.append(row)
    problem_rows = (problems.apply(topic, problem) for problem in projection_problems)
    by_key = {(row.partition, row.offset, row.kind): row for row in problem_rows}
    return EntityChanges(
        entities=changed,
        commands=[commands[key] for key in sorted(commands)],
        items=[item_rows[key] for key in sorted(item_rows) if item_rows[key].document],
        removed_items=[key for key in sorted(item_rows) if not item_rows[key].document],
        problems=[by_key[key] for key in sorted(by_key)],
        states=after,
    )


class _Folding:
    """One aggregate while the events of a poll are folded."""

    __slots__ = ("_aggregate", "_first", "_fold", "_halted", "_last", "_problem", "_row", "_seq", "_state", "items")

    def __init__(self, aggregate: str, before: EntityState, fold: EntityFold | None) -> None:
        self._aggregate, self._fold = aggregate, fold
        self._row, self._state, self._problem = before.row, before.state, before.problem
        self._seq = 0 if before.row is None else before.row.seq
        self._first: ProjectionItem | None = None
        self._last: PositionedEvent | None = None
        self._halted: ProjectionProblem | None = None
        self.items: list[ItemRow] = []

    def take(self, item: ProjectionItem) -> ProjectionProblem | None:
        """Folds the next record; returns the problem when it halts the aggregate."""
        if self._first is None:
            self._first = item
        is_restated = isinstance(item, PositionedEvent) and type(item.event) is AggregateRestated
        is_halted = self._halted is not None or (self._row is not None and self._last is None and _is_halted(self._row))
        if is_halted and not is_restated:
            return None
        try:
            self._evolve(item, starts_anew=is_restated and (is_halted or not self._continues(item)))
        except _Halt as halt:
            if is_halted:  # it stays at the first record that could not be folded
                return None
            self._halted = halt.problem
            return halt.problem
        return None

    def _continues(self, item: ProjectionItem) -> bool:
        """Whether an event is the next one of a state that can be continued."""
        return isinstance(item, PositionedEvent) and not self._problem and item.envelope.seq == self._seq + 1

    def _evolve(self, item: ProjectionItem, *, starts_anew: bool) -> None:
        if isinstance(item, UnreadableEvent):
            raise _Halt(item.problem)
        envelope, fold = item.envelope, self._fold
        family, _, key = self._aggregate.partition(":")
        if not family or not key.startswith(f"{envelope.tenant}/"):
            raise _halt(
                item,
                "foreign_record",
                f"the id {self._aggregate[:200]!r} is of no aggregate of tenant "
                f"{envelope.tenant[:80]!r}: expected <family>:<tenant>/<name>",
            )
        if fold is None:
            raise _halt(
                item,
                "unknown_family",
                f"no family of this installation is called {family[:80]!r}; LOOMLOG_FAMILIES "
                "names the modules of further families",
            )
        if not starts_anew:
            if self._problem:
                raise _halt(item, "unusable_row", self._problem)
            if not self._problem and not self._seq and envelope.seq > 1:
                raise _halt(
                    item,
                    "broken_sequence",
                    f"entity {self._aggregate}: expected seq 1, found {envelope.seq}; its first events are not in the "
                    "log: they are deleted, or the log is damaged",
                )
            if not self._continues(item):
                raise _Halt(broken_sequence_problem(item, self._seq + 1, "entity"))
        state = self._state
        try:
            if starts_anew or state is None:
                state = fold.initial(self._aggregate, envelope.seq)
            state = fold.evolve(state, item.event, envelope.at_ms)
            items = fold.items(state, item.event, envelope)
        except FoldFailed as error:
            raise _halt(item, "fold_failed", str(error)) from error
        self.items += [self._item_row(one, item) for one in items]
        self._state, self._seq, self._last = state, envelope.seq, item
        self._halted, self._problem = None, ""

    def finish(self, seal: Seal) -> tuple[EntityState, ProjectionProblem | None]:
        """Return the stored state after the poll, and the problem with it if it cannot be stored."""
        row, problem = self._row, None
        if self._last is not None:
            try:
                row = self._folded_row(self._last)
            except FoldFailed as error:
                problem = self._halted = _halt(self._last, "fold_failed", str(error)).problem
                self.items.clear()
        if self._halted is not None:
            row = self._halted_row(row, self._halted)
        if row is not None and row != self._row:
            row = sealed(row, seal)
        return EntityState(row=row, state=self._state, problem=self._problem), problem

    def _folded_row(self, last: PositionedEvent) -> EntityRow:
        assert self._fold is not None, "an event was folded"
        summary = self._fold.summary(self._state)
        return self._blank_row(last.partition)._replace(
            seq=self._seq,
            digest=digest(last.value),
            last_offset=last.offset,
            version=self._fold.version,
            quarantine=_clean(summary.quarantine),
            due_ms=summary.due_ms,
            is_over=summary.is_over,
            created_at_ms=summary.created_at_ms,
            updated_at_ms=summary.updated_at_ms,
            state=summary.state.decode(),
        )

    def _item_row(self, item: FoldedItem, event: PositionedEvent) -> ItemRow:
        family, _, key = self._aggregate.partition(":")
        tenant, _, name = key.partition("/")
        return ItemRow(
            family=family,
            tenant=tenant,
            aggregate=self._aggregate,
            name=name,
            partition=event.partition,
            offset=event.offset,
            seq=event.envelope.seq,
            **item._asdict(),
        )

    def _halted_row(self, row: EntityRow | None, problem: ProjectionProblem) -> EntityRow:
        if row is None:
            row = self._blank_row(problem.partition)
        # Nothing is decided in it, so no timer of it is due.
        return row._replace(quarantine=_clean(problem.error), halted_offset=problem.offset, due_ms=0)

    def _blank_row(self, partition: int) -> EntityRow:
        """The row of an aggregate before its first event was folded."""
        first = self._first
        assert first is not None, "a record was taken"
        family, _, key = self._aggregate.partition(":")
        tenant, _, name = key.partition("/")
        offset = first.offset if self._row is None else self._row.first_offset
        return EntityRow(
            aggregate=self._aggregate,
            family=family,
            tenant=tenant,
            name=name,
            partition=partition,
            seq=0,
            digest=bytes(DIGEST_BYTES),
            first_offset=offset,
            last_offset=offset,
            version=0 if self._fold is None else self._fold.version,
            quarantine="",
            halted_offset=-1,
            due_ms=0,
            is_over=False,
            created_at_ms=0,
            updated_at_ms=0,
            state="null",
            seal=b"",
        )


def _is_halted(row: EntityRow) -> bool:
    return row.halted_offset >= 0


def _halt(item: PositionedEvent, kind: str, error: str) -> _Halt:
    return _Halt(
        ProjectionProblem(
            partition=item.partition,
            offset=item.offset,
            kind=kind,
            error=error,
            timestamp_ms=item.envelope.at_ms,
            value=item.value,
            run_id=item.envelope.aggregate,
        )
    )


def _index_command(commands: dict[tuple[str, str], EntityCommandRow], aggregate: str, item: ProjectionItem) -> None:
    """Extends the row of the command that caused the record, whether or not the record can be folded."""
    envelope = _envelope_of(item)
    if envelope is None or not envelope.cause_id or "\x00" in envelope.cause_id:
        return
    if len(envelope.cause_id.encode()) > COMMAND_ID_BYTES_MAX:
        return
    key = (command_identity(envelope.cause_id), aggregate)
    row = commands.get(key)
    partition = item.partition if isinstance(item, PositionedEvent) else item.problem.partition
    commands[key] = (
        row._replace(last_offset=item.offset)
        if row is not None
        else EntityCommandRow(*key, partition, item.offset, item.offset, envelope.at_ms)
    )


def _envelope_of(item: ProjectionItem) -> Envelope | None:
    if isinstance(item, PositionedEvent):
        return item.envelope
    try:
        return read_envelope(item.problem.value or b"")[0]
    except Undecodable:
        return None


def _clean(message: str) -> str:
    return message.replace("\x00", "\ufffd")[:QUARANTINE_CHARACTERS_MAX]
