"""Erasing a person with memory: what is counted, what is left, and an erasure that is interrupted and repeated."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from loomlog.connectors.errors import Transient
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.projections.memory_index.reads import IndexMissing
from loomlog.schemas.generated.consolidation_commands import BankPending, DropTarget
from loomlog.schemas.generated.database_commands import DropDatabase
from loomlog.schemas.generated.memory_commands import DropScope, SetEntry
from loomlog.schemas.generated.values import CommandEnvelope, MemorySource
from loomlog.schemas.records import replace
from loomlog.services.core.refusals import Refused
from loomlog.services.families.consolidation import FAMILY as CONSOLIDATION
from loomlog.services.families.database import FAMILY as DATABASE
from loomlog.services.families.database.files import DatabaseFiles
from loomlog.services.families.database.limits import SqlLimits
from loomlog.services.families.database.operations import DatabaseOperations
from loomlog.services.families.memory import FAMILY as MEMORY
from loomlog.services.families.memory.author import Author, Grants, Scope
from loomlog.services.families.memory.entry_operations import DEFAULT_ENTRY_LIMITS, EntryOperations
from loomlog.services.families.memory.erasure import MemoryErasure
from loomlog.services.families.memory.store import MemoryStore
from loomlog.services.stream.entities.content import encrypt_content
from tests.services.api.serving import Served, served
from tests.services.application.world import ACME, IVY, until
from tests.services.entities import NOW_MS, UNANSWERED
from tests.services.families.memory.calls import on_part
from tests.services.families_in_memory import FamiliesInMemory

PLACE = "/v1/_erasure?tenant=acme"
KEYS = "/v1/_memory/scopes"
ERASE = {"subject": "ivy", "dry_run": False, "confirm": "ivy", "reason": "asked"}
IVYS = Scope("acme", "user", "ivy")
IN_RUN = Author(
    tenant="acme", subject="ivy", command_id="c", issued_at_ms=NOW_MS, user_id="ivy", agent="helper", run_id="r_1",
    root_run_id="r_1", grants=Grants(memory_scopes=("user", "tenant"), sql_scopes=("user",)),
)  # fmt: skip


@dataclass
class Index:
    """The search index, as far as an erasure uses it."""

    rows: dict[str, int] = field(default_factory=lambda: {"entries": 3, "vectors": 2, "embeddings": 1})
    missing: int = 0
    error: Exception | None = None
    asked: list[tuple[str, str, list[str]]] = field(default_factory=list)
    is_gone: bool = False

    async def count_subject(self, tenant: str, subject: str, key_ids: Sequence[str] = ()) -> dict[str, int]:
        if self.error is not None:
            raise self.error
        return dict.fromkeys(self.rows, 0) if self.is_gone else self.rows

    async def erase_subject(self, tenant: str, subject: str, key_ids: Sequence[str] = ()) -> dict[str, int]:
        counts = await self.count_subject(tenant, subject, key_ids)
        counts = {name: max(0, count - 1) for name, count in counts.items()}  # its writer has read of the drop
        self.asked.append((tenant, subject, list(key_ids)))
        self.is_gone = True
        return counts

    async def wait(self, topic: str, partition: int, offset: int, *, timeout_s: float) -> int:
        return self.missing


@dataclass
class Here:
    """An installation with encryption, and memory of ivy."""

    served: Served
    families: FamiliesInMemory
    index: Index
    databases: DatabaseOperations
    entries: EntryOperations
    number: int = 0

    async def put(self, scope: str, scope_id: str, key: str, value: Any) -> None:
        place = f"{KEYS}/{scope}/{scope_id}/keys/{key}"
        answer = await self.served.client(ACME).put(place, json={"value": value})
        assert answer.status_code == 200, answer.text

    async def get(self, place: str) -> httpx.Response:
        return await self.served.client(ACME).get(f"{KEYS}/{place}")

    def next(self, author: Author = IN_RUN) -> Author:
        self.number += 1
        return replace(author, command_id=f"c{self.number}")

    async def sql(self, op: str, statement: str) -> Any:
        return (await on_part(self.databases, op, {"statement": statement}, self.next(), IVYS)).value

    async def bank(self) -> None:
        command = BankPending(
            envelope=CommandEnvelope(command_id=self.next().command_id, tenant="acme", subject="ivy", issued_at_ms=1),
            scope="user", scope_id="ivy", payload='{"content":"tea"}', payload_bytes=17, origin="compaction",
        )  # fmt: skip
        await self.families.ask(command, wait_s=1)

    async def remember(self) -> None:
        """Give ivy a run, keys, a database, and something to be learnt."""
        await self.served.run(prompt="the words of ivy", caller=IVY)
        for value in ("green tea", "black tea"):
            await self.put("user", "ivy", "drink", value)
        await self.put("user", "ivy", "city", "Rome")
        await self.bank()
        await self.sql("sql_exec", "CREATE TABLE t (a)")
        await self.sql("sql_exec", "INSERT INTO t VALUES ('secret of ivy')")

    async def erase(self) -> dict[str, Any]:
        answer = await self.served.client().post(PLACE, json=ERASE)
        assert answer.status_code == 200, answer.text
        return answer.json()  # type: ignore[no-any-return]

    async def counts(self) -> dict[str, int]:
        report = (await self.served.client().get(f"{PLACE}&subject=ivy")).json()
        counts = report["tier1_covered"]["counts"]
        return {name: count for name, count in counts.items() if name.startswith("memory_")}

    def log(self) -> str:
        """Everything that was sent, and all rows, as text."""
        rows = [row for one in self.families.families.values() for row in one.items.rows.values()]
        answers = [answer for one in self.families.families.values() for answer in one.answers.values()]
        return repr((rows, answers))


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path) -> AsyncIterator[Here]:
    families, index = FamiliesInMemory(MEMORY, DATABASE, CONSOLIDATION), Index()
    more: dict[str, Any] = {
        "entity_commands": families,
        "entity_reads": families,
    }
    async with served(tmp_path, encrypted=True, clock_ms=lambda: NOW_MS, **more) as made:
        for eraser in made.world.layer.erasure.erasers:
            if isinstance(eraser, MemoryErasure):
                eraser._index = index
        keys = made.world.keys
        assert keys is not None
        families.encrypt = encrypt_content(keys.cipher_for, keys.is_encrypted)
        decrypt = made.world.layer.sources.content.decrypt

        async def encrypt(text: str, tenant: str, subject: str) -> str:
            return (await keys.cipher_for(tenant, subject)).text(text)

        files = DatabaseFiles(tmp_path / "sql", SqlLimits(busy_wait_s=0.3))
        keys.on_erased.append(lambda tenant, subject: files.forget(tenant))
        databases = DatabaseOperations(
            families,
            families,
            files,
            MemoryBlobs(),
            clock_ms=lambda: NOW_MS,
            decrypt=decrypt,
            encrypt=encrypt,
            wait_s=1,
        )
        store = MemoryStore(families, families, clock_ms=lambda: NOW_MS, decrypt=decrypt)
        yield Here(made, families, index, databases, EntryOperations(store, DEFAULT_ENTRY_LIMITS))
        await databases.close()


HELD = {
    "memory_entries": 2, "memory_versions": 3, "memory_pending": 1, "memory_databases": 1,
    "memory_database_bytes": 2048, "memory_index_rows": 3, "memory_vectors": 2, "memory_cached_embeddings": 1,
    "memory_rows": 2,
}  # fmt: skip
NOTHING = {**dict.fromkeys(HELD, 0), "memory_versions": 5}


async def test_memory_is_counted_and_deleted_and_its_past_reads_erased(here: Here) -> None:
    await here.remember()
    assert await here.counts() == HELD
    done = await here.erase()
    assert {name: done["deleted"][name] for name in HELD} == HELD
    assert (done["incomplete"], done["errors"]) == ([], [])
    assert "3 changes of its memory stay" in done["retained"]["memory_versions"]
    (asked,) = here.index.asked
    assert asked[:2] == ("acme", "ivy")
    assert len(asked[2]) == 1, "the index is asked for the key that was destroyed"

    assert await here.counts() == NOTHING, "the versions stay, and the two of the deletion come to them"
    assert (await here.get("user/ivy/keys/drink")).status_code == 404
    versions = (await here.get("user/ivy/keys/drink/history")).json()["versions"]
    assert [version.get("value") for version in versions] == [None, "[erased]", "[erased]"]
    listed = await here.served.client(ACME).get(f"{KEYS}/user/ivy/keys")
    assert listed.json()["entries"] == []
    assert "green tea" not in here.log()
    report = (await here.served.client().get(f"{PLACE}&subject=ivy")).json()
    assert [key["erased"] for key in report["keys"]] == [True], "deleting its memory makes no fresh key"


async def test_a_database_is_empty_again_for_a_person_who_comes_back(here: Here) -> None:
    await here.remember()
    await here.erase()
    with pytest.raises(Refused, match="no such table"):
        await here.sql("sql_query", "SELECT * FROM t")
    await here.sql("sql_exec", "CREATE TABLE t (a)")
    assert (await here.sql("sql_query", "SELECT count(*) FROM t"))["rows"] == [[0]]
    await here.put("user", "ivy", "drink", "coffee")
    assert (await here.get("user/ivy/keys/drink")).json()["entry"]["value"] == "coffee"
    assert (await here.counts())["memory_databases"] == 1


async def test_no_file_has_what_was_in_a_database(here: Here, tmp_path: Path) -> None:
    def has_secret() -> bool:
        try:
            return any(b"secret of ivy" in file.read_bytes() for file in (tmp_path / "sql").rglob("*.db*"))
        except FileNotFoundError:
            return True  # one is being removed; look again

    await here.remember()
    assert has_secret()
    here.families.failing = {DropScope: UNANSWERED, DropDatabase: UNANSWERED}
    await here.erase()
    await until(lambda: not has_secret())


async def test_databases_of_its_runs_go_too_and_those_of_others_stay(here: Here) -> None:
    await here.remember()
    run = (await here.served.client(IVY).get("/v1/runs")).json()["runs"][0]["run_id"]
    for name in (run, "r_other"):
        author = replace(here.next(), root_run_id=name, run_id=name)
        fields = {"statement": "CREATE TABLE t (a)"}
        await on_part(here.databases, "sql_exec", fields, author, Scope("acme", "run", name))
    assert (await here.counts())["memory_databases"] == 2
    assert (await here.erase())["deleted"]["memory_databases"] == 2
    left = here.families.families["database"].items.rows
    assert [place[2] for place in left if place[1] == "database"] == ["run/r_other"]


async def test_what_it_wrote_in_a_shared_scope_reads_erased_and_can_be_replaced(here: Here) -> None:
    await here.remember()
    tenant = Scope("acme", "tenant")
    for key in ("count", "list", "object", "text"):
        value = {"count": 5, "list": ["a"], "object": {"a": 1}, "text": "hers"}[key]
        await on_part(here.entries, "set", {"key": key, "value": value}, here.next(), tenant)
    await here.erase()

    async def do(op: str, **fields: Any) -> Any:
        return (await on_part(here.entries, op, fields, here.next(), tenant)).value

    assert (await do("get", key="count"))["value"] == "[erased]"
    shown = {entry["key"]: entry["value"] for entry in (await do("list"))["entries"]}
    assert shown == dict.fromkeys(("count", "list", "object", "text"), "[erased]")
    with pytest.raises(Refused, match="erased with its writer") as refused:
        await do("incr", key="count")
    assert refused.value.code == "invalid_value"
    assert (await do("merge", key="object", value={"b": 2}))["value"] == {"b": 2}
    assert (await do("append_dedupe", key="list", value="b"))["value"] == ["b"]
    assert (await do("bounded_list", key="text", value="c", limit=3))["value"] == ["c"]
    await do("set", key="count", value=1)
    assert (await do("incr", key="count"))["value"] == 2
    assert (await here.get("tenant/-/keys/object")).json()["entry"]["value"] == {"b": 2}


async def test_a_text_that_only_looks_erased_is_a_value(here: Here) -> None:
    await on_part(here.entries, "set", {"key": "k", "value": "[erased]"}, here.next(), IVYS)
    with pytest.raises(Refused, match="no object but str"):
        await on_part(here.entries, "merge", {"key": "k", "value": {}}, here.next(), IVYS)


@pytest.mark.parametrize("record", [DropScope, DropTarget, DropDatabase])
async def test_an_erasure_that_is_interrupted_leaves_nothing_readable_and_is_completed(here: Here, record: Any) -> None:
    await here.remember()
    here.families.failing[record] = UNANSWERED
    done = await here.erase()
    (problem,) = done["incomplete"]
    assert problem.endswith("no owner answered")
    missing = {DropScope: "memory_entries", DropTarget: "memory_pending", DropDatabase: "memory_databases"}[record]
    assert missing not in done["deleted"], "a count that is missing is not zero"
    assert done["deleted"]["memory_index_rows"] == 3, "the other steps go on"
    for row in (await here.served.client(ACME).get(f"{KEYS}/user/ivy/keys")).json()["entries"]:
        assert row["value"] == "[erased]"

    here.families.failing.clear()
    done = await here.erase()
    assert done["incomplete"] == []
    assert done["deleted"][missing] == HELD[missing]
    counts = await here.counts()
    assert {name: count for name, count in counts.items() if count and name != "memory_versions"} == {}


async def test_a_process_that_dies_between_the_steps_leaves_an_erasure_that_can_be_repeated(here: Here) -> None:
    await here.remember()
    here.families.failing[DropScope] = MemoryError("killed")
    assert (await here.served.client().post(PLACE, json=ERASE)).status_code == 500
    assert [
        entry["value"] for entry in (await here.served.client(ACME).get(f"{KEYS}/user/ivy/keys")).json()["entries"]
    ] == (["[erased]", "[erased]"])
    with pytest.raises(Refused) as refused:
        await here.sql("sql_query", "SELECT * FROM t")
    assert refused.value.code == "sqlmem_unavailable"
    here.families.failing.clear()
    done = await here.erase()
    assert (done["incomplete"], done["deleted"]["memory_entries"], done["deleted"]["memory_databases"]) == ([], 2, 1)
    assert (await here.sql("sql_query", "SELECT 1"))["rows"] == [[1]]


@pytest.mark.parametrize(
    ("error", "missing"), [(Transient("away", kind="unavailable"), 0), (IndexMissing("no index"), 0), (None, 4)]
)
async def test_an_index_that_is_away_or_behind_is_told(here: Here, error: Exception | None, missing: int) -> None:
    await here.remember()
    here.index.error, here.index.missing = error, missing
    if error is not None:
        report = (await here.served.client().get(f"{PLACE}&subject=ivy")).json()
        assert "memory_index_rows" not in report["tier1_covered"]["counts"]
        assert report["errors"] == [f"the search index of memory could not be examined: {error}"]
    done = await here.erase()
    assert len(done["incomplete"]) == 1
    assert str(error or "has not read 16 records") in done["incomplete"][0]
    assert ("memory_index_rows" in done["deleted"]) is (error is None)
    here.index.error, here.index.missing = None, 0
    assert (await here.erase())["incomplete"] == []


async def test_values_from_before_encryption_are_counted_and_not_called_erased(here: Here) -> None:
    encrypt, here.families.encrypt = here.families.encrypt, None
    await here.put("user", "ivy", "old", "in clear")
    here.families.encrypt = encrypt
    await here.put("user", "ivy", "new", "encrypted")
    report = (await here.served.client().get(f"{PLACE}&subject=ivy")).json()
    assert report["tier2_uncovered"] == {
        "counts": {"frames": 0, "blobs": 0, "memory_versions": 1}, "total": 1, "runs": 0
    }  # fmt: skip
    assert (report["known"], report["tier3_residue"]["scopes"]) == (True, 1)
    done = await here.erase()
    assert done["retained"]["memory_in_clear"].startswith("1 values of its memory are stored in plaintext")
    assert done["tier2_uncovered"]["total"] == 1


async def test_a_person_with_nothing_but_memory_is_known_and_another_tenant_is_not_touched(here: Here) -> None:
    await here.put("user", "ivy", "drink", "tea")
    source = MemorySource(origin="service")
    envelope = CommandEnvelope(command_id="x", tenant="globex", subject="ivy", issued_at_ms=1)
    command = SetEntry(envelope=envelope, scope="user", scope_id="ivy", key="k", value='"v"', source=source)
    await here.families.ask(command, wait_s=1)
    assert (await here.erase())["deleted"]["memory_entries"] == 1
    rows = here.families.families["memory"].items.rows
    assert [place[:2] for place in rows if place[1] == "entry"] == [("globex", "entry")]
    assert here.served.world.keys is not None
    assert here.served.world.keys.table.current_key("globex", "ivy") is not None


async def test_the_runs_without_a_user_share_the_key_of_the_tenants_databases(here: Here) -> None:
    shared = Scope("acme", "tenant")
    await on_part(here.databases, "sql_exec", {"statement": "CREATE TABLE t (a)"}, here.next(), shared)
    await here.remember()
    body = {"subject": "(tenant)", "dry_run": False, "confirm": "(tenant)", "reason": "r"}
    done = (await here.served.client().post(PLACE, json=body)).json()
    assert done["deleted"]["memory_databases"] == 1
    assert "memory_entries" not in done["deleted"], "there is no scope of it"
    assert (await here.get("user/ivy/keys/drink")).json()["entry"]["value"] == "black tea"
