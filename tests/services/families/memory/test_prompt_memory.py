"""Runs whose prompt has memory: what models are sent, what is recorded, and how starts wait for it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from loomlog.connectors.crypto.content_encryption import is_token
from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.tools.agent import AgentTool
from loomlog.schemas.generated.run_commands import ForkRun
from loomlog.schemas.generated.run_events import RunCompleted, RunRefused, RunStarted
from loomlog.schemas.generated.values import (
    AgentDefinition,
    AgentGrants,
    CommandEnvelope,
    CoreBlock,
    DefinitionOverrides,
    MemoryContext,
)
from loomlog.schemas.records import replace
from loomlog.services.core.refusals import Refused
from loomlog.services.core.run.commands import CommandRefusal
from loomlog.services.families.memory import FAMILY, prompt_memory
from loomlog.services.families.memory.api import MemoryFacts, MemoryHit, MemoryHits, MemoryRecall, MemorySearch
from loomlog.services.families.memory.author import Author, Scope
from loomlog.services.families.memory.prompt import INTRODUCTION
from loomlog.services.families.memory.prompt_memory import NOT_SEARCHED, PromptMemory
from loomlog.services.families.memory.store import Change, MemoryStore
from loomlog.services.runtime.content.definition_texts import DefinitionTexts
from loomlog.services.runtime.content.encryption import PLAINTEXT, ContentEncryption
from tests.services.entities import NOW_MS, MemoryEntities
from tests.services.runtime.content.counting_blobs import CountingBlobs
from tests.services.runtime.fakes import AGENT, SECRET, OneAgent
from tests.services.runtime.small_runtime import RUN, SmallRuntime, Stage
from tests.services.runtime.test_long_prompts import Delegating, Reader
from tests.services.stream.encryption.test_subject_keys import TOPIC, keys_over

PERSONA, HUMAN = CoreBlock(label="persona"), CoreBlock(label="human", scope="user", limit_bytes=200)
GRANTS = AgentGrants(core_blocks=(PERSONA, HUMAN), memory_scopes=("agent", "user", "tenant"))
KEEPER = replace(AGENT, system_prompt="Be kind.", grants=GRANTS)
AGENT_SCOPE, USER_SCOPE = Scope("acme", "agent", "helper"), Scope("acme", "user", "ada")
TENANT_SCOPE = Scope("acme", "tenant")


class Finder:
    """A search that finds one entry in each scope, or fails."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.error: Exception | None = None

    async def search(self, scope: Scope, asked: MemorySearch, author: Author) -> MemoryHits:
        self.asked.append((scope.name, asked.query))
        if self.error is not None:
            raise self.error
        return MemoryHits(entries=[MemoryHit(key=f"notes/{scope.name}", value={"said": 1})])

    async def recall(self, scope: Scope, asked: MemoryRecall, author: Author) -> MemoryFacts:
        raise AssertionError("prompts do not recall")


class Remembering(Stage):
    """A stage whose agents have memory, as the owner of which the process answers."""

    def __init__(self, agent: AgentDefinition = KEEPER, **more: Any) -> None:
        super().__init__(agent, **more)
        self.reader = self.model = Reader()
        self.blobs = CountingBlobs()
        self.entities = MemoryEntities(FAMILY)
        self.encryption = PLAINTEXT
        self.finder: Finder | None = None
        self.isolated = False
        self.wait_s = 2.0
        self.writes = 0

    def _store(self) -> MemoryStore:
        return MemoryStore(self.entities, self.entities, clock_ms=lambda: NOW_MS, decrypt=self.encryption.decrypt_json)

    async def remember(self, scope: Scope, key: str, value: Any, *, run_id: str = "") -> str:
        """Set a key; return the position of the change."""
        self.writes += 1
        author = Author(tenant="acme", subject="op", command_id=f"w-{self.writes}", issued_at_ms=NOW_MS, run_id=run_id)
        return (await self._store().set(scope, key, Change(text=json.dumps(value)), author)).position

    async def _encrypt(self, text: str, tenant: str, subject: str) -> str:
        return (await self.encryption.cipher(tenant, subject)).text(text)

    def _prompts(self, texts: DefinitionTexts) -> PromptMemory:
        async def backend(author: Author) -> MemoryStore:
            return self._store()

        return PromptMemory(
            backend,
            texts=texts,
            blobs=self.blobs,
            bands="BANDS",
            decrypt=self.encryption.decrypt_json,
            encrypt=self._encrypt,
            finder=self.finder,
            is_isolated=lambda tenant, subject: self.isolated,
            wait_s=self.wait_s,
        )

    @asynccontextmanager
    async def working(self, name: str = "one") -> AsyncIterator[SmallRuntime]:
        async with self.owner(name, blobs=self.blobs, secrecy=self.encryption, prompt_memory=self._prompts) as runtime:
            yield runtime

    async def system_of(self, run_id: str = RUN, **more: Any) -> tuple[str, ...]:
        """Carry out a run; return the system texts of its first call."""
        calls = len(self.reader.systems)
        self.start(run_id=run_id, **{"user_id": "ada", **more})
        done = self.completed() + 1
        await self.until(lambda: self.completed() == done)
        assert len(set(self.reader.systems[calls:])) == 1
        return self.reader.systems[calls]

    def completed(self) -> int:
        return sum(isinstance(event, RunCompleted) for event in self.events())

    def contexts(self) -> list[MemoryContext | None]:
        return [event.memory_context for event in self.events() if isinstance(event, RunStarted)]

    def fork(self, number: int, overrides: DefinitionOverrides | None = None) -> None:
        envelope = CommandEnvelope(command_id=f"f{number}", tenant="acme", subject="someone", issued_at_ms=1)
        last = next(at for at, event in enumerate(self.events()) if isinstance(event, RunCompleted)) - 1
        self.send(
            ForkRun(
                envelope=envelope, origin_run_id=RUN, at_seq=last - 1, run_id=f"r_one-{number}", overrides=overrides
            )
        )


def core(persona: str, human: str) -> str:
    return (
        f"{INTRODUCTION}\n<memory>\n[core/persona: scope agent]\n{persona}\n\n"
        f"[core/human: scope user, at most 200 bytes]\n{human}\n</memory>"
    )


async def test_core_blocks_follow_the_prompt_and_are_recorded_with_their_position() -> None:
    stage = Remembering()
    await stage.remember(AGENT_SCOPE, "core/persona", "I am Iris.")
    last = await stage.remember(USER_SCOPE, "core/human", {"name": "Ada"})
    async with stage.working():
        assert await stage.system_of() == ("Be kind.", core("I am Iris.", '{"name": "Ada"}'))
    (context,) = stage.contexts()
    assert context == MemoryContext(text=core("I am Iris.", '{"name": "Ada"}'), positions=(last,))


async def test_a_run_keeps_to_what_was_read_and_the_next_run_reads_again() -> None:
    stage = Remembering()
    await stage.remember(AGENT_SCOPE, "core/persona", "before")
    stage.reader.held = True
    stage.start(user_id="ada")
    async with stage.working("one"):
        await stage.reader.holding.wait()
    await stage.remember(AGENT_SCOPE, "core/persona", "after")
    stage.reader.let_go.set()
    stage.entities.error = Transient("nothing may be read", kind="unavailable")
    async with stage.working("two"):
        await stage.until(lambda: stage.completed() == 1)
        assert set(stage.reader.systems) == {("Be kind.", core("before", "(empty)"))}
        stage.entities.error = None
        assert await stage.system_of("r_two") == ("Be kind.", core("after", "(empty)"))


async def test_a_run_that_continues_a_session_reads_again_after_what_the_run_before_saw() -> None:
    stage = Remembering()
    position = await stage.remember(AGENT_SCOPE, "core/persona", "before")
    async with stage.working():
        await stage.system_of("r_one-1")
        session = next(event.session_id for event in stage.events() if isinstance(event, RunStarted))
        await stage.remember(AGENT_SCOPE, "core/persona", "after")
        stage.entities.is_owner = False
        stage.entities.waited.clear()
        assert await stage.system_of("r_one-2", session_id=session) == ("Be kind.", core("after", "(empty)"))
    assert stage.entities.waited
    assert all(position in positions for positions in stage.entities.waited)


async def test_placeholders_are_filled_in_the_prompt() -> None:
    prompt = r"A {{memory:user_info}} B {{memory:tenant_info}} C {{memory:consolidation_bands}} \{{memory:ontology}}"
    stage = Remembering(replace(KEEPER, system_prompt=prompt, grants=replace(GRANTS, core_blocks=())))
    await stage.remember(USER_SCOPE, "info/name", "Ada")
    await stage.remember(USER_SCOPE, "other", "not shown")
    await stage.remember(TENANT_SCOPE, "info/plan", ["gold"])
    async with stage.working():
        (system,) = await stage.system_of()
    user = f"{INTRODUCTION}\n<memory>\n[info/name: scope user]\nAda\n</memory>"
    tenant = f'{INTRODUCTION}\n<memory>\n[info/plan: scope tenant]\n["gold"]\n</memory>'
    assert system == f"A {user} B {tenant} C BANDS {{{{memory:ontology}}}}"
    (context,) = stage.contexts()
    assert context is not None
    assert context.replaces_prompt


@pytest.mark.parametrize(
    ("scopes", "user_id", "isolated", "shown"),
    [
        (("user", "tenant"), "ada", False, ["USER", "TENANT"]),
        (("user",), "ada", False, ["USER"]),
        ((), "ada", False, []),
        (("user", "tenant"), "", False, ["TENANT"]),
        (("user", "tenant"), "ada", True, ["USER"]),
    ],
)
async def test_a_prompt_has_the_scopes_that_the_run_may_read(
    scopes: tuple[str, ...], user_id: str, isolated: bool, shown: list[str]
) -> None:
    prompt = "{{memory:user_info}}{{memory:tenant_info}}."
    stage = Remembering(replace(KEEPER, system_prompt=prompt, grants=AgentGrants(memory_scopes=scopes)))
    stage.isolated = isolated
    await stage.remember(USER_SCOPE, "info/a", "USER")
    await stage.remember(TENANT_SCOPE, "info/a", "TENANT")
    async with stage.working():
        (system,) = await stage.system_of(user_id=user_id)
    assert [word for word in ("USER", "TENANT") if word in system] == shown


@pytest.mark.parametrize(("run_id", "ontology"), [("", "person > friend"), ("r_9", "")])
async def test_only_operators_and_applications_write_the_ontology(run_id: str, ontology: str) -> None:
    stage = Remembering(replace(AGENT, system_prompt="Types: {{memory:ontology}}."))
    await stage.remember(TENANT_SCOPE, "/memory/ontology", "person > friend", run_id=run_id)
    async with stage.working():
        assert await stage.system_of() == (f"Types: {ontology}.",)


@pytest.mark.parametrize(
    ("roots", "shown"),
    [("", ["trips: trips/*"]), ("suppress", []), ("force", ["trips: trips/*", "core/persona\nfood"])],
)
async def test_the_protocol_has_the_indexes(roots: str, shown: list[str]) -> None:
    grants = AgentGrants(memory_protocol=True, memory_scopes=("user", "agent"), memory_roots=roots)
    stage = Remembering(replace(KEEPER, grants=grants))
    await stage.remember(USER_SCOPE, "/memory/index", "trips: trips/*")
    await stage.remember(AGENT_SCOPE, "food", "not shown")
    await stage.remember(AGENT_SCOPE, "core/persona", "not shown")
    async with stage.working():
        prompt, protocol = await stage.system_of()
    assert prompt == "Be kind."
    assert "You may use these scopes: user, agent." in protocol
    assert "not shown" not in protocol
    assert [text for text in ("trips: trips/*", "core/persona\nfood") if text in protocol] == shown


async def test_the_request_is_searched_for_in_each_scope() -> None:
    stage = Remembering(
        replace(KEEPER, system_prompt="{{memory:search_request}}", grants=replace(GRANTS, core_blocks=()))
    )
    stage.finder = Finder()
    async with stage.working():
        (system,) = await stage.system_of()
    assert stage.finder.asked == [("agent", SECRET), ("user", SECRET), ("tenant", SECRET)]
    assert '[notes/user: scope user]\n{"said": 1}' in system


@pytest.mark.parametrize("error", [Refused("search_unavailable", "no index"), None])
async def test_a_search_that_fails_holds_back_no_run(error: Exception | None) -> None:
    stage = Remembering(replace(KEEPER, system_prompt="Be kind. {{memory:search_request}}"))
    if error is not None:
        stage.finder = Finder()
        stage.finder.error = error
    async with stage.working():
        (system,) = await stage.system_of()
    assert system.startswith(f"Be kind. {NOT_SEARCHED}\n\n")
    assert "core/persona" in system


async def test_without_memory_in_the_prompt_nothing_is_read_or_recorded() -> None:
    stage = Remembering(replace(KEEPER, grants=replace(GRANTS, core_blocks=())))
    stage.entities.error = Transient("nothing may be read", kind="unavailable")
    async with stage.working():
        assert await stage.system_of() == ("Be kind.",)
    assert stage.contexts() == [None]


# --- while memory cannot be read -------------------------------------------------------------------------------------


async def test_a_start_waits_for_memory_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_memory, "RETRY_S", 0.01)

    class Two(OneAgent):
        def resolve(self, agent: str, **_: object) -> AgentDefinition | CommandRefusal:
            return KEEPER if agent == KEEPER.name else replace(AGENT, name=agent)

    stage = Remembering()
    stage.definitions = Two()
    await stage.remember(AGENT_SCOPE, "core/persona", "I am Iris.")
    stage.entities.is_owner = False
    stage.entities.error = Transient("the database is away", kind="unavailable")
    async with stage.working():
        stage.start(run_id="r_one", user_id="ada")
        stage.start(run_id="r_two", agent="other")
        await stage.until(lambda: stage.completed() == 1)
        assert stage.contexts() == [None]
        stage.entities.error = None
        await stage.until(lambda: stage.completed() == 2)
    assert "I am Iris." in stage.reader.systems[-1][1]


async def test_a_run_with_a_time_limit_is_refused_when_memory_cannot_be_read_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prompt_memory, "RETRY_S", 0.3)
    stage = Remembering(replace(KEEPER, run_timeout_s=1))
    stage.entities.is_owner = False
    stage.entities.error = Transient("the database is away", kind="unavailable")
    async with stage.working():
        stage.start(user_id="ada")
        await stage.until(lambda: stage.has(RunRefused))
    (refused,) = [event for event in stage.events() if isinstance(event, RunRefused)]
    assert refused.code == "memory_unavailable"
    assert "the memory of the prompt of helper cannot be read" in refused.message
    assert "the database is away" in refused.message


async def test_an_attempt_to_read_memory_ends_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_memory, "RETRY_S", 0.01)
    stage = Remembering(replace(KEEPER, run_timeout_s=1))
    stage.wait_s = 0.05

    async def hang(*_: Any, **__: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(stage.entities, "local", hang)
    async with stage.working():
        stage.start(user_id="ada")
        await stage.until(lambda: stage.has(RunRefused))
    (refused,) = [event for event in stage.events() if isinstance(event, RunRefused)]
    assert "no answer in 0.05 s" in refused.message


async def test_what_can_never_be_read_is_shown_as_such() -> None:
    stage = Remembering()
    stage.entities.is_owner = False
    stage.entities.error = Permanent("content sealed by the key k cannot be read here", kind="invalid")
    async with stage.working():
        assert await stage.system_of() == ("Be kind.", core("(it cannot be read)", "(it cannot be read)"))


# --- encryption ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3_000], ids=["inline", "in the blob store"])
async def test_with_a_key_the_log_has_no_memory_in_clear(size: int) -> None:
    stage = Remembering(replace(KEEPER, grants=replace(GRANTS, memory_inject_max_tokens=50_000)))
    keys = keys_over(MemoryLog({TOPIC: 1}))
    stage.encryption = ContentEncryption(keys)
    await stage.remember(AGENT_SCOPE, "core/persona", "the unspeakable " * size)
    async with stage.working():
        assert await stage.system_of() == ("Be kind.", core("the unspeakable " * size, "(empty)"))
    (context,) = stage.contexts()
    assert context is not None
    text = context.text if context.text_blob is None else (await stage.blobs.get(context.text_blob)).decode()
    assert is_token(text)
    assert (context.text_blob is None) is (size == 1)
    assert not any(
        b"unspeakable" in (record.value or b"") for records in stage.log.records.values() for record in records
    )
    await keys.erase("acme", "ada", erasure_id="e_1", reason="asked", by="op")
    assert keys.decrypt(text, "acme") == "[erased]"


async def test_the_encrypted_prompt_of_a_fork_is_filled_too() -> None:
    stage = Remembering()
    stage.encryption = ContentEncryption(keys_over(MemoryLog({TOPIC: 1})))
    await stage.remember(AGENT_SCOPE, "core/persona", "I am Iris.")
    async with stage.working():
        await stage.system_of()
        stage.fork(1, DefinitionOverrides(system_prompt="Be stern. {{memory:core_blocks}}"))
        await stage.until(lambda: stage.completed() == 2)
    assert stage.reader.systems[-1] == (f"Be stern. {core('I am Iris.', '(empty)')}",)
    assert all(context is not None and is_token(context.text) for context in stage.contexts())


# --- children and forks ----------------------------------------------------------------------------------------------

CHILD_GRANTS = AgentGrants(
    core_blocks=(CoreBlock(label="rules", scope="tenant", read_only=True),), inherit_core_blocks=True
)


@pytest.mark.parametrize("inherits", [True, False])
async def test_a_child_has_its_blocks_and_those_it_inherits(inherits: bool) -> None:
    child = replace(AGENT, name="child", tools=(), grants=replace(CHILD_GRANTS, inherit_core_blocks=inherits))

    class Tree(OneAgent):
        def resolve(self, agent: str, **_: object) -> AgentDefinition | CommandRefusal:
            theirs = CoreBlock(label="rules", scope="user")
            grants = replace(GRANTS, core_blocks=(*GRANTS.core_blocks, theirs))
            return {"helper": replace(KEEPER, tools=("Agent",), grants=grants), "child": child}[agent]

    stage = Remembering(tools={"Agent": AgentTool()})
    stage.definitions = Tree()
    stage.model = stage.reader = Delegating()
    await stage.remember(TENANT_SCOPE, "core/rules", "Be brief.")
    await stage.remember(AGENT_SCOPE, "core/persona", "the parent's own")
    await stage.remember(USER_SCOPE, "core/human", "Ada")
    async with stage.working():
        stage.start(user_id="ada")
        await stage.until(lambda: stage.completed() == 2)
    (system,) = stage.reader.systems[1]
    blocks = ["[core/rules: scope tenant, read-only]\nBe brief."]
    blocks += ["[core/human: scope user, at most 200 bytes]\nAda"] if inherits else []
    shown = "\n\n".join(blocks)
    assert system == f"{INTRODUCTION}\n<memory>\n{shown}\n</memory>"
    started = [event for event in stage.events() if isinstance(event, RunStarted)][1]
    labels = [block.label for block in started.definition.grants.core_blocks] if started.definition.grants else []
    assert labels == (["rules", "human"] if inherits else ["rules"])


async def test_a_fork_keeps_what_its_origin_recorded_unless_its_prompt_is_another() -> None:
    stage = Remembering()
    await stage.remember(AGENT_SCOPE, "core/persona", "before")
    async with stage.working():
        first = await stage.system_of()
        await stage.remember(AGENT_SCOPE, "core/persona", "after")
        for number, overrides in enumerate((None, DefinitionOverrides(max_tokens=7)), 1):
            stage.fork(number, overrides)
            await stage.until(lambda number=number: stage.completed() == number + 1)  # type: ignore[misc]
            assert stage.reader.systems[-1] == first
        stage.fork(3, DefinitionOverrides(system_prompt="Be stern. {{memory:core_blocks}}"))
        await stage.until(lambda: stage.completed() == 4)
    assert stage.reader.systems[-1] == (f"Be stern. {core('after', '(empty)')}",)
    before, *same, other = stage.contexts()
    assert same == [before, before]
    assert other != before
