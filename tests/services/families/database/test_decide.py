"""The rules of databases: given a state, when a command, then events."""

from collections.abc import Sequence
from typing import Any

import pytest

from loomlog.connectors.sqlite.pages import PAGE_BYTES
from loomlog.schemas.generated.database_commands import (
    BeginTransaction,
    ChangeDatabase,
    DropDatabase,
    EndTransaction,
    PutCopy,
)
from loomlog.schemas.generated.database_events import (
    SqlChanged,
    SqlCopied,
    SqlDropped,
    SqlRowsRemoved,
    SqlTransactionBegan,
    SqlTransactionEnded,
)
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.values import BlobRef, CommandEnvelope, Envelope
from loomlog.services.core.families import TIMER_FIRED, At
from loomlog.services.families.database import FAMILY, limits
from loomlog.services.families.database.items import change_id
from loomlog.services.families.database.state import EMPTY, Database, Head
from tests.services.families.database.examples import QUOTA, SOURCE, chain

NOW_MS = 1_800_000_000_000
BLANK: dict[str, Any] = {
    "envelope": CommandEnvelope(command_id="c", tenant="acme"),
    "scope": "user",
    "scope_id": "ada",
}
OF_ADA = BLANK | {"source": SOURCE}


class Here:
    """A database by its rules alone, with its rows."""

    def __init__(self, scope: str = "user/ada") -> None:
        self.name = f"database:acme/{scope}"
        self.state: Database = FAMILY.rules.initial(self.name)
        self.rows: dict[tuple[str, str], Any] = {}
        self.now_ms = NOW_MS
        self.seq = 0

    def do(self, command: Any) -> Sequence[Any]:
        events = FAMILY.rules.decide(self.state, command, At(self.now_ms))
        for event in events:
            if isinstance(event, CommandRefused):
                continue
            self.seq += 1
            self.state = FAMILY.rules.evolve(self.state, event, self.now_ms)
            envelope = Envelope(
                term=0, seq=self.seq, aggregate=self.name, tenant="acme", at_ms=self.now_ms, prev=bytes(16)
            )
            for item in FAMILY.items(self.state, event, envelope):
                self.rows.pop((item.kind, item.id), None)
                if item.document:
                    self.rows[item.kind, item.id] = item
        return events

    def change(self, root: str = "", **fields: Any) -> Sequence[Any]:
        transaction = self.state.transaction_of(root)
        head = self.state.head if transaction is None else transaction.head
        made: dict[str, Any] = {
            "root_run_id": root,
            "base_revision": head.revision,
            "base_chain": head.chain,
            "chain": chain(self.seq + 1),
            "page_count": 3,
            "pages": "cA==",
            "packed_bytes": 100,
            "quota_bytes": QUOTA,
        }
        return self.do(ChangeDatabase(**OF_ADA | made | fields))

    def begin(self, root: str, **fields: Any) -> Sequence[Any]:
        return self.do(BeginTransaction(**OF_ADA, root_run_id=root, **fields))

    def end(self, root: str, *, committed: bool) -> Sequence[Any]:
        return self.do(EndTransaction(**OF_ADA, root_run_id=root, committed=committed))

    def copy(self) -> Sequence[Any]:
        head = self.state.head
        fields: dict[str, Any] = {"revision": head.revision, "chain": head.chain, "page_count": head.page_count}
        return self.do(PutCopy(**BLANK, **fields, copy_chain=chain(7), pages="Yw==", packed_bytes=10))

    @property
    def revisions(self) -> list[int]:
        return sorted(int(item.number) for (kind, _), item in self.rows.items() if kind == "change")


@pytest.fixture
def here() -> Here:
    return Here()


def code_of(events: Sequence[Any]) -> str:
    (event,) = events
    assert isinstance(event, CommandRefused), event
    return event.code


def test_a_change_continues_the_revision_it_was_made_on(here: Here) -> None:
    (event,) = here.change(rows_affected=2, last_insert_id=5)
    assert isinstance(event, SqlChanged)
    assert (event.revision, event.previous_revision, event.rows_affected, event.last_insert_id) == (1, 0, 2, 5)
    assert here.state.head == Head(1, event.chain, 3)
    assert code_of(here.change(base_revision=0)) == "revision_conflict"
    assert code_of(here.change(base_chain=chain(99))) == "revision_conflict"
    here.change()
    assert here.state.head.revision == 2
    assert here.revisions == [1, 2]
    row = here.rows["database", "user/ada"]
    assert (row.number, row.key_a, row.key_b) == (3 * PAGE_BYTES, "user", "ada")


def test_nothing_written_is_no_event_outside_of_a_transaction(here: Here) -> None:
    assert here.change(chain="", page_count=0, pages="") == []
    assert code_of(here.change(chain="", base_revision=4)) == "revision_conflict"


@pytest.mark.parametrize(
    "wrong",
    [
        {"chain": "x"},
        {"chain": "A" * 64},
        {"page_count": 0},
        {"page_count": 2**40},
        {"pages": ""},
        {"blobs": (BlobRef(sha256="0" * 64, size_bytes=1),)},
        {"pages": "", "blobs": (BlobRef(sha256="0" * 64, size_bytes=1),) * 1_001},
        {"scope": "nobody"},
        {"scope_id": "a\nb"},
        {"scope_id": "a" * 600},
    ],
)
def test_what_cannot_be_a_change_is_refused(here: Here, wrong: dict[str, Any]) -> None:
    assert code_of(here.change(**wrong)) == "bad_request"


def test_a_database_grows_to_its_quota_and_shrinks_beyond_it(here: Here) -> None:
    assert code_of(here.change(page_count=5, quota_bytes=4 * PAGE_BYTES)) == "sql_quota_exceeded"
    here.change(page_count=5, quota_bytes=5 * PAGE_BYTES)
    here.change(page_count=5, quota_bytes=PAGE_BYTES)
    assert code_of(here.change(page_count=6, quota_bytes=PAGE_BYTES)) == "sql_quota_exceeded"
    assert here.state.head.revision == 2


def test_a_failed_statement_is_recorded_on_its_revision(here: Here) -> None:
    here.change()
    assert code_of(here.change(refusal="sql_refused")) == "sql_refused"
    assert code_of(here.change(refusal="sql_refused", base_revision=0)) == "revision_conflict"
    assert code_of(here.change(refusal="sql_busy", base_revision=-1)) == "sql_busy"
    assert code_of(here.change(refusal="anything", base_revision=-1)) == "bad_request"
    assert here.state.head.revision == 1


def test_a_transaction_counts_once_it_is_committed(here: Here) -> None:
    here.change()
    (began,) = here.begin("r_1")
    assert isinstance(began, SqlTransactionBegan)
    assert (began.depth, began.revision) == (1, 1)
    here.change("r_1")
    here.change("r_1")
    assert here.state.head.revision == 1
    assert here.rows["database", "user/ada"].number == 3 * PAGE_BYTES
    for events in (here.change(), here.change("r_2"), here.begin("r_2")):
        assert code_of(events) == "revision_conflict"
    assert code_of(here.end("r_2", committed=True)) == "sql_refused"
    (ended,) = here.end("r_1", committed=True)
    assert isinstance(ended, SqlTransactionEnded)
    assert (ended.depth, ended.committed, ended.revision) == (0, True, 3)
    assert here.state.head.revision == 3
    assert here.state.packed_bytes == 300
    assert here.state.transaction is None
    assert here.revisions == [1, 2, 3]


def test_a_rollback_removes_its_changes_and_their_numbers_are_free(here: Here) -> None:
    here.change()
    before = here.state.head
    here.begin("r_1")
    here.change("r_1")
    here.change("r_1")
    ended, removed = here.end("r_1", committed=False)
    assert (ended.committed, ended.reason, ended.revision) == (False, "asked", 1)
    assert removed == SqlRowsRemoved(scope="user", scope_id="ada", first=2, last=3)
    assert (here.state.head, here.revisions) == (before, [1])
    here.change()
    assert here.revisions == [1, 2]
    assert here.state.packed_bytes == 200


def test_nested_transactions_roll_back_to_where_they_began(here: Here) -> None:
    here.begin("r_1")
    here.change("r_1")
    here.begin("r_1")
    here.change("r_1")
    here.begin("r_1")
    here.change("r_1")
    (ended,) = here.end("r_1", committed=True)
    assert (ended.depth, ended.revision) == (2, 3)
    ended, removed = here.end("r_1", committed=False)
    assert (ended.depth, ended.revision, removed.first, removed.last) == (1, 1, 2, 3)
    here.change("r_1")
    (ended,) = here.end("r_1", committed=True)
    assert (ended.depth, ended.revision) == (0, 2)
    assert here.revisions == [1, 2]


def test_sixteen_transactions_are_inside_of_each_other(here: Here) -> None:
    for depth in range(1, 17):
        assert here.begin("r_1")[0].depth == depth
    assert code_of(here.begin("r_1")) == "sql_refused"
    assert code_of(Here().begin("r_1", depth_max=0)) == "sql_refused"


@pytest.mark.parametrize("wrong", [{"idle_ms": 0}, {"idle_ms": 10**10}])
def test_bad_times_are_refused(here: Here, wrong: dict[str, Any]) -> None:
    assert code_of(here.begin("r_1", **wrong)) == "bad_request"
    assert code_of(here.begin("")) == "bad_request"


def test_a_transaction_without_statements_ends_as_idle(here: Here) -> None:
    here.change()
    here.begin("r_1", idle_ms=1_000)
    here.now_ms += 900
    here.change("r_1")
    here.now_ms += 900
    kept = here.change("r_1", chain="", pages="", page_count=0)
    assert (kept[0].revision, kept[0].previous_revision) == (2, 2)
    assert FAMILY.rules.next_timer_ms(here.state) == here.now_ms + 1_000
    here.now_ms += 1_000
    ended, removed = here.do(TIMER_FIRED)
    assert (ended.reason, ended.committed, ended.depth) == ("idle", False, 0)
    assert (ended.scope, ended.scope_id) == ("user", "ada")
    assert (removed.first, removed.last) == (2, 2)
    assert FAMILY.rules.next_timer_ms(here.state) == 0
    assert code_of(here.change("r_1")) == "sql_timeout"
    assert code_of(here.end("r_1", committed=True)) == "sql_timeout"
    here.change()
    (acknowledged,) = here.end("r_1", committed=False)
    assert (acknowledged.depth, acknowledged.reason) == (0, "acknowledged")
    assert code_of(here.end("r_1", committed=False)) == "sql_refused"


def test_a_new_transaction_forgets_that_the_last_one_was_idle(here: Here) -> None:
    here.begin("r_1", idle_ms=1)
    here.now_ms += 1
    here.do(TIMER_FIRED)
    assert here.state.expired == "r_1"
    here.begin("r_1")
    assert here.state.expired == ""


def test_a_transaction_has_a_bound(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRANSACTION_CHANGES_MAX", 2)
    here.begin("r_1")
    here.change("r_1")
    here.change("r_1")
    assert code_of(here.change("r_1")) == "sql_refused"


def test_many_rows_are_removed_by_several_events(here: Here) -> None:
    here.begin("r_1")
    for _ in range(450):
        here.change("r_1")
    _, *removed = here.end("r_1", committed=False)
    assert [(one.first, one.last) for one in removed] == [(1, 200), (201, 400), (401, 450)]
    assert here.revisions == []


def test_a_copy_takes_the_place_of_the_changes_before_it(here: Here) -> None:
    for _ in range(3):
        here.change()
    copied, removed = here.copy()
    assert isinstance(copied, SqlCopied)
    assert (removed.first, removed.last) == (1, 3)
    assert here.revisions == []
    assert ("copy", "user/ada") in here.rows
    assert here.state.packed_bytes == 0
    assert here.copy() == []
    here.change()
    here.copy()
    assert here.state.copy_revision == 4
    here.change()
    here.begin("r_1")
    assert code_of(here.copy()) == "revision_conflict"


def test_a_copy_of_another_revision_is_refused(here: Here) -> None:
    here.change()
    fields: dict[str, Any] = {"revision": 1, "chain": here.state.head.chain, "page_count": 3, "copy_chain": chain(1)}
    for wrong in ({"revision": 2}, {"chain": chain(55)}):
        assert code_of(here.do(PutCopy(**BLANK | fields | wrong, pages="Yw=="))) == "revision_conflict"
    for wrong in ({"page_count": 4}, {"copy_chain": ""}, {"chain": "no"}):
        assert code_of(here.do(PutCopy(**BLANK | fields | wrong, pages="Yw=="))) == "bad_request"


def test_a_copy_is_due_after_many_changes_or_many_bytes(here: Here) -> None:
    here.change()
    assert not here.state.needs_copy()
    here.change(packed_bytes=limits.COPY_AFTER_BYTES)
    assert here.state.needs_copy()
    here.begin("r_1")
    assert not here.state.needs_copy()
    here.end("r_1", committed=True)
    here.copy()
    assert not here.state.needs_copy()
    for _ in range(limits.CHANGES_PER_COPY):
        here.change(packed_bytes=1)
    assert here.state.needs_copy()


def test_a_drop_leaves_no_row(here: Here) -> None:
    assert here.do(DropDatabase(**OF_ADA)) == []
    here.change()
    here.copy()
    here.change()
    here.begin("r_1")
    here.change("r_1")
    dropped, removed = here.do(DropDatabase(**OF_ADA, reason="asked"))
    assert isinstance(dropped, SqlDropped)
    assert (dropped.revision, dropped.bytes) == (2, 3 * PAGE_BYTES)
    assert (removed.first, removed.last) == (2, 3)
    assert here.rows == {}
    assert here.state.head == EMPTY
    assert code_of(here.change("r_1")) == "sql_timeout"
    assert here.change()[0].revision == 1


def test_ids_of_changes_are_in_the_order_of_revisions() -> None:
    ids = [change_id("user/ada", revision) for revision in (1, 9, 10, 99, 100, 2**62)]
    assert ids == sorted(ids, key=str.encode)


@pytest.mark.parametrize(("scope", "subject"), [("user", "ada"), ("run", "writer"), ("agent", ""), ("tenant", "")])
def test_content_is_encrypted_for_the_user_or_the_tenant(scope: str, subject: str) -> None:
    envelope = CommandEnvelope(command_id="c", tenant="acme", subject="writer")
    command = DropDatabase(envelope=envelope, scope=scope, scope_id="ada", source=SOURCE)
    assert FAMILY.content_subject(command) == subject
    assert {kind: set(kind.CONTENT) for kind in (ChangeDatabase, PutCopy)} == {
        ChangeDatabase: {"pages", "statement"},
        PutCopy: {"pages"},
    }


def test_the_database_of_a_tree_of_runs_is_dropped_when_it_is_left_behind() -> None:
    here = Here("run/r_1")
    of_run = {"scope": "run", "scope_id": "r_1"}
    here.do(BeginTransaction(**OF_ADA | of_run, root_run_id="r_1"))
    here.do(EndTransaction(**OF_ADA | of_run, root_run_id="r_1", committed=True))
    assert FAMILY.rules.next_timer_ms(here.state) == 0, "there is nothing to drop"
    here.change(**of_run)
    here.now_ms += 1_000
    here.change(**of_run)
    due_ms = here.now_ms + limits.RUN_IDLE_MS
    assert FAMILY.rules.next_timer_ms(here.state) == due_ms
    here.now_ms = due_ms - 1
    assert here.do(TIMER_FIRED) == []
    here.now_ms = due_ms
    dropped, removed = here.do(TIMER_FIRED)
    assert (dropped.scope, dropped.scope_id, dropped.revision, dropped.source.origin) == ("run", "r_1", 2, "service")
    assert (removed.first, removed.last) == (1, 2)
    assert (here.rows, FAMILY.rules.next_timer_ms(here.state)) == ({}, 0)


def test_other_databases_have_no_timer(here: Here) -> None:
    here.change()
    assert FAMILY.rules.next_timer_ms(here.state) == 0
