"""What the end of a run leads to in memory: once for each target and time, and never for other runs."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.schemas.generated.consolidation_commands import NoteSettledChat
from loomlog.schemas.generated.run_events import RunCompleted
from loomlog.schemas.generated.values import AgentGrants, ParentCall
from loomlog.schemas.records import replace
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.families.consolidation import FAMILY
from loomlog.services.families.consolidation import run_ends as module
from loomlog.services.families.consolidation.operations import ConsolidationOperations
from loomlog.services.families.consolidation.run_ends import NOTE_INTERVAL_MS, RETRY_MS, RunEndMemory
from loomlog.services.families.memory.author import Author, Scope
from loomlog.services.families.operation import plaintext
from loomlog.services.stream.entities.answers import CommandUnanswered
from tests.services.core.run.given import begun
from tests.services.entities import NOW_MS, MemoryEntities
from tests.services.runtime.fakes import AGENT
from tests.services.runtime.small_runtime import Stage

BOTH = AgentGrants(memory_scopes=("user", "agent", "tenant"))
SQL = AgentGrants(sql_scopes=("run",))
CHILD_OF = ParentCall(run_id="r_1", agent_id="a", root_run_id="r_1", turn=1, index=0, number=0, depth=1)


class Databases:
    """Databases of trees of runs."""

    def __init__(self) -> None:
        self.existing = {"r_1", "r_2"}
        self.used: set[str] = set()
        self.dropped: list[tuple[Scope, Author]] = []
        self.errors: list[Exception] = []

    def has_files(self, scope: Scope) -> bool:
        assert scope.name == "run"
        return scope.id in self.used

    async def exists(self, scope: Scope, positions: Sequence[str]) -> bool:
        assert positions == ("t/1:5",), "the read includes what the run has written"
        return scope.id in self.existing

    async def drop(self, scope: Scope, author: Author, reason: str = "") -> bool:
        self.dropped.append((scope, author))
        if self.errors:
            raise self.errors.pop()
        self.existing.remove(scope.id)
        return True


class Here:
    """A process whose runs end."""

    def __init__(self) -> None:
        self.entities = MemoryEntities(FAMILY)
        self.databases = Databases()
        self.now_ms = NOW_MS
        self.has_consolidator = True
        self.asked: list[str] = []
        self.is_remote = False
        self.isolated: set[str] = set()
        chats: Any = None  # nothing is read
        self.memory = RunEndMemory(
            ConsolidationOperations(
                self.entities, self.entities, chats, MemoryBlobs(), clock_ms=lambda: self.now_ms, decrypt=plaintext
            ),
            self.databases,
            can_start=self._resolves,
            internal_agents=("librarian",),
            require_local=self._require_local,
            is_isolated=lambda tenant, subject: subject in self.isolated,
            clock_ms=lambda: self.now_ms,
        )

    def _resolves(self, agent: str, tenant: str) -> bool:
        assert agent == "memory/consolidator"
        self.asked.append(tenant)
        return self.has_consolidator

    async def _require_local(self, op: str, author: Author) -> None:
        if self.is_remote:
            raise Refused("capability_unsupported", f"{op}: elsewhere")

    def end(self, run_id: str = "r_1", grants: AgentGrants | None = BOTH, agent: str = "helper", **more: Any) -> None:
        facts = begun().live.facts
        definition = replace(facts.definition, name=agent, grants=grants)
        fields: dict[str, Any] = {"user_id": "ada", "positions": ("t/1:5",), **more}
        ended: RunFacts = replace(facts, run_id=run_id, definition=definition, **fields)
        self.memory.on_run_ended("acme", ended)

    async def pass_ms(self, time_ms: int = 0) -> list[NoteSettledChat]:
        """Let time pass; return the notes of that time."""
        self.now_ms += time_ms
        before = len(self.entities.asked)
        await self.memory.carry_out()
        return self.entities.asked[before:]


@pytest.fixture
def here() -> Here:
    return Here()


def names(notes: Sequence[NoteSettledChat]) -> list[str]:
    return [f"{note.scope}/{note.scope_id}" for note in notes]


# --- settled chats ---------------------------------------------------------------------------------------------------


async def test_a_chat_is_noted_for_its_user_and_its_agent(here: Here) -> None:
    here.end()
    notes = await here.pass_ms()
    assert names(notes) == ["user/ada", "agent/helper"]
    assert [note.envelope.command_id for note in notes] == ["r_1:settled.user", "r_1:settled.agent"]
    assert {(note.envelope.tenant, note.envelope.issued_at_ms) for note in notes} == {("acme", NOW_MS)}
    assert await here.pass_ms(NOTE_INTERVAL_MS) == []


@pytest.mark.parametrize(
    ("ended", "noted"),
    [
        ({"grants": AgentGrants(memory_scopes=("user",))}, ["user/ada"]),
        ({"grants": AgentGrants(memory_scopes=("user",)), "user_id": ""}, []),
        ({"user_id": ""}, ["agent/helper"]),
        ({"grants": AgentGrants(memory_scopes=("tenant",))}, []),
        ({"grants": AgentGrants()}, []),
        ({"grants": None}, []),
        ({"agent": "memory/consolidator"}, []),
        ({"agent": "librarian"}, []),
        ({"parent": CHILD_OF}, []),
        ({"seed": "compact"}, []),
        ({"subject": "confined"}, ["user/ada"]),
    ],
)
async def test_only_what_may_learn_from_a_chat_is_told_of_it(
    here: Here, ended: dict[str, Any], noted: list[str]
) -> None:
    here.isolated = {"confined"}
    here.end(**ended)
    assert names(await here.pass_ms()) == noted


async def test_without_a_consolidator_nothing_is_written_and_it_is_looked_for_again_later(here: Here) -> None:
    here.has_consolidator = False
    for number in range(5):
        here.end(f"r_{number}")
    assert await here.pass_ms() == []
    assert here.asked == ["acme"]
    here.has_consolidator = True
    here.now_ms += module.RESOLVED_MS
    here.end()
    assert len(await here.pass_ms()) == 2


async def test_the_memory_of_another_installation_learns_nothing_here(here: Here) -> None:
    here.is_remote = True
    here.end()
    assert await here.pass_ms() == []
    here.is_remote = False
    assert await here.pass_ms(NOTE_INTERVAL_MS) == [], "it is not tried again"


async def test_a_busy_target_is_noted_every_ten_seconds_and_the_last_chat_is_not_missed(here: Here) -> None:
    written = []
    for number in range(25):
        here.end(f"r_{number}", AgentGrants(memory_scopes=("user",)))
        written += await here.pass_ms(1_000)
    assert len(written) == 3
    last = await here.pass_ms(NOTE_INTERVAL_MS)
    assert len(last) == 1
    assert await here.pass_ms(NOTE_INTERVAL_MS) == []
    here.end("r_25", user_id="bob", grants=AgentGrants(memory_scopes=("user",)))
    assert names(await here.pass_ms()) == ["user/bob"], "others do not wait for it"


async def test_a_note_without_an_answer_is_sent_again_with_its_id(here: Here) -> None:
    here.entities.error = CommandUnanswered("away")
    here.end(grants=AgentGrants(memory_scopes=("user",)))
    (first,) = await here.pass_ms()
    assert await here.pass_ms(RETRY_MS - 1) == []
    here.entities.error = None
    (second,) = await here.pass_ms(1)
    assert first.envelope == replace(second.envelope, issued_at_ms=NOW_MS)
    assert second.envelope.issued_at_ms == 0, "the owner looks it up"
    assert await here.pass_ms(RETRY_MS) == []


async def test_a_bound_keeps_what_waits_in_memory(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TASKS_MAX", 3)
    for number in range(5):
        here.end(user_id=f"u{number}", grants=AgentGrants(memory_scopes=("user",)))
    assert len(await here.pass_ms()) == 3


async def test_the_end_of_any_run_makes_room_for_another_pass(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    monkeypatch.setattr(ConsolidationOperations, "run_ended", lambda self, run_id: ended.append(run_id))
    here.end(agent="memory/consolidator")
    here.end("r_2", parent=CHILD_OF)
    assert ended == ["r_1", "r_2"]


# --- databases -------------------------------------------------------------------------------------------------------


async def test_the_database_of_a_tree_is_dropped_at_its_end(here: Here) -> None:
    here.end(grants=SQL)
    await here.pass_ms()
    ((scope, author),) = here.databases.dropped
    assert (scope, author.command_id, author.run_id, author.root_run_id) == (
        Scope("acme", "run", "r_1"),
        "r_1:drop",
        "r_1",
        "r_1",
    )
    assert here.entities.asked == []


async def test_that_of_a_sub_agent_is_known_from_the_files(here: Here) -> None:
    here.end(grants=None)
    here.databases.used = {"r_2"}
    here.end("r_2", grants=None)
    here.end("r_2", grants=SQL, parent=CHILD_OF)
    await here.pass_ms()
    assert [scope.id for scope, _ in here.databases.dropped] == ["r_2"]


async def test_a_run_without_a_database_costs_no_command(here: Here) -> None:
    here.databases.existing = set()
    here.end(grants=SQL)
    await here.pass_ms()
    assert here.databases.dropped == []


async def test_a_drop_without_an_answer_is_tried_again_and_a_refused_one_is_not(here: Here) -> None:
    here.databases.errors = [Unavailable("away")]
    here.end(grants=SQL)
    await here.pass_ms()
    await here.pass_ms(RETRY_MS)
    first, second = [author for _, author in here.databases.dropped]
    assert (second.command_id, second.issued_at_ms) == (first.command_id, 0)
    here.databases.errors = [Refused("bad_request", "quarantined")]
    here.end("r_2", grants=SQL)
    await here.pass_ms()
    await here.pass_ms(RETRY_MS)
    assert len(here.databases.dropped) == 3


# --- in a runtime ----------------------------------------------------------------------------------------------------


async def test_the_end_of_a_run_in_the_log_leads_to_a_note_a_moment_later(here: Here) -> None:
    stage = Stage(agent=replace(AGENT, grants=BOTH))
    stage.start(user_id="ada")
    running = asyncio.create_task(here.memory.run())
    try:
        async with stage.owner("one", on_run_ended=here.memory.on_run_ended), asyncio.timeout(30):
            await stage.until(lambda: stage.has(RunCompleted))
            while len(here.entities.asked) < 2:
                await asyncio.sleep(0.001)
            here.end("r_2", user_id="bob", grants=AgentGrants(memory_scopes=("user",)))
            while len(here.entities.asked) < 3:
                await asyncio.sleep(0.001)
    finally:
        running.cancel()
    assert names(here.entities.asked) == ["user/ada", "agent/helper", "user/bob"]
