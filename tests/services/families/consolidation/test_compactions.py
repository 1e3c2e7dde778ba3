"""What of a compaction goes to memory: the dialogue with its places, once, and never at the cost of the run."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from loomlog.connectors.errors import Transient
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.schemas.conversation import ImageBlock, Message, TextBlock, ToolResultBlock, ToolUseBlock
from loomlog.schemas.generated.consolidation_commands import BankPending
from loomlog.schemas.generated.values import AgentGrants, MemoryBanked, ParentCall
from loomlog.schemas.records import replace
from loomlog.services.core.refusals import Refused
from loomlog.services.core.run.state import Compacting
from loomlog.services.families.consolidation import FAMILY
from loomlog.services.families.consolidation import compactions as module
from loomlog.services.families.consolidation.chats import Dialogue
from loomlog.services.families.consolidation.chats import Message as Shown
from loomlog.services.families.consolidation.compactions import CompactionMemory, dialogue, newest, with_places
from loomlog.services.families.consolidation.limits import PAYLOAD_BYTES_MAX
from loomlog.services.families.consolidation.operations import ConsolidationOperations
from loomlog.services.families.memory.author import Author, Scope
from loomlog.services.stream.entities.answers import CommandUnanswered
from tests.services.core.run.given import RUN, compacting
from tests.services.entities import NOW_MS, MemoryEntities

BOTH = AgentGrants(memory_scopes=("agent", "user"))
AGENT_ONLY = AgentGrants(memory_scopes=("agent",))
CHILD_OF = ParentCall(run_id="r_0", agent_id="a", root_run_id="r_0", turn=1, index=0, number=0, depth=1)


def said(*texts: str) -> tuple[Message, ...]:
    roles: Any = ("user", "assistant")
    return tuple(Message(role=roles[n % 2], blocks=(TextBlock(text=text),)) for n, text in enumerate(texts))


def shown(role: str, text: str, seq: int, run_id: str = RUN) -> Shown:
    return Shown(run_id=run_id, seq=seq, role=role, text=text, at="2027-01-15T08:00:00.000Z")


class Here:
    """A process in which runs are compacted; it stands for Chats too."""

    def __init__(self) -> None:
        self.entities = MemoryEntities(FAMILY)
        self.blobs = MemoryBlobs()
        self.frames: list[Shown] = []
        self.reading: Exception | None = None
        self.asked_for: list[tuple[Scope, str]] = []
        self.is_remote = False
        self.isolated: set[str] = set()
        chats: Any = self
        operations = ConsolidationOperations(
            self.entities, self.entities, chats, self.blobs, clock_ms=lambda: NOW_MS, encrypt=self._encrypt
        )
        self.memory = CompactionMemory(
            operations,
            chats,
            internal_agents=("librarian",),
            require_local=self._require_local,
            is_isolated=lambda tenant, subject: subject in self.isolated,
            clock_ms=lambda: NOW_MS,
        )

    async def _encrypt(self, text: str, tenant: str, subject: str) -> str:
        return f"<{subject}>{text}"

    async def _require_local(self, op: str, author: Author) -> None:
        if self.is_remote:
            raise Refused("capability_unsupported", "elsewhere")

    async def dialogue(self, scope: Scope, session_id: str, *, bytes_max: int) -> Dialogue:
        self.asked_for.append((scope, session_id))
        if self.reading is not None:
            raise self.reading
        return Dialogue(messages=tuple(self.frames), is_truncated=False)

    async def bank(
        self, messages: Sequence[Message], grants: AgentGrants | None = BOTH, attempt: int = 1, **facts: Any
    ) -> MemoryBanked | None:
        state = compacting().state
        assert isinstance(state, Compacting)
        definition = replace(state.facts.definition, name=facts.pop("agent", "helper"), grants=grants)
        fields: dict[str, Any] = {"user_id": "ada", "session_id": "s_1", **facts}
        state = replace(state, attempt=attempt, facts=replace(state.facts, definition=definition, **fields))
        return await self.memory.bank(state, messages, "acme", lambda text: text.replace("hunter2", "[password]"))

    @property
    def commands(self) -> list[BankPending]:
        return self.entities.asked


@pytest.fixture
def here() -> Here:
    return Here()


def test_dialogue_is_what_was_written_and_answered() -> None:
    results = (ToolResultBlock(tool_use_id="1", name="Read", text="secret"),)
    messages = (
        Message(
            role="user",
            blocks=(
                TextBlock(text="summary", is_summary=True),
                TextBlock(text="<web_content>obey</web_content>", is_untrusted=True),
                TextBlock(text="I like tea"),
                ImageBlock(media_type="image/png", data="AAAA"),
                TextBlock(text="and Rome"),
            ),
        ),
        Message(role="assistant", blocks=(ToolUseBlock(id="1", name="Read", input="{}"),)),
        Message(role="user", blocks=results),
        Message(role="assistant", blocks=(TextBlock(text="  \n"),)),
        Message(role="assistant", blocks=(TextBlock(text="noted"), ToolUseBlock(id="2", name="Read", input="{}"))),
    )
    assert list(dialogue(messages)) == [("user", "I like tea\nand Rome"), ("assistant", "noted")]


def test_places_are_found_in_the_order_of_the_session() -> None:
    frames = [
        shown("user", "hi", 1, "r_0"),
        shown("assistant", "hello", 3, "r_0"),
        shown("user", "hi", 1),
        shown("assistant", "hello", 4),
    ]
    messages = [("user", "hi"), ("assistant", "masked"), ("user", "hi"), ("assistant", "hello"), ("user", "hi")]
    placed = [(one["run_id"], one["seq"]) for one in with_places(messages, frames, RUN)]
    assert placed == [("r_0", 1), (RUN, 0), (RUN, 1), (RUN, 4), (RUN, 0)]


def test_the_last_messages_are_kept_up_to_a_bound() -> None:
    messages = [{"content": "x" * 10} for _ in range(5)]
    size = len('{"content":"xxxxxxxxxx"},')
    assert newest(messages, 3 * size) == messages[2:]
    assert newest(messages, 3 * size - 1) == messages[3:]
    assert newest(messages, 1_000) == messages
    assert newest(messages, 5) == []


async def test_the_dialogue_becomes_a_pending_entry_of_the_user(here: Here) -> None:
    here.frames = [shown("user", "I like tea", 1), shown("assistant", "noted", 3)]
    banked = await here.bank(said("I like tea", "noted"))
    (command,) = here.commands
    assert (command.scope, command.scope_id, command.origin) == ("user", "ada", "compaction")
    assert (command.envelope.command_id, command.envelope.issued_at_ms) == (f"{RUN}:compact.1.memory", NOW_MS)
    assert command.source is not None
    assert command.source.run_id == RUN
    assert command.payload == (
        '{"messages":[{"role":"user","content":"I like tea","run_id":"r_1","seq":1},'
        '{"role":"assistant","content":"noted","run_id":"r_1","seq":3}]}'
    ).replace("r_1", RUN)
    answer = here.entities.answers["consolidation:acme/user/ada", command.envelope.command_id]
    assert banked == MemoryBanked(pending_id=answer.events[0].pending_id, messages=2)
    assert here.asked_for == [(Scope("acme", "user", "ada"), "s_1")]


async def test_an_attempt_of_another_owner_gives_the_entry_of_the_first(here: Here) -> None:
    first = await here.bank(said("I like tea"))
    again = await here.bank(said("I like tea"), attempt=2)
    assert first == again
    assert [one.envelope.issued_at_ms for one in here.commands] == [NOW_MS, 0]
    assert len(here.entities.answers) == 1


@pytest.mark.parametrize(
    ("run", "scope"),
    [
        ({"grants": AGENT_ONLY}, "agent/helper"),
        ({"user_id": ""}, "agent/helper"),
        ({"user_id": "", "subject": "confined"}, ""),
        ({"grants": AGENT_ONLY, "subject": "confined"}, ""),
        ({"grants": AgentGrants(memory_scopes=("tenant",))}, ""),
        ({"grants": None}, ""),
        ({"parent": CHILD_OF}, ""),
        ({"agent": "memory/ontologist"}, ""),
        ({"agent": "librarian"}, ""),
    ],
)
async def test_it_goes_where_the_run_may_remember_or_nowhere(here: Here, run: dict[str, Any], scope: str) -> None:
    here.isolated = {"confined"}
    banked = await here.bank(said("I like tea"), **run)
    assert [f"{one.scope}/{one.scope_id}" for one in here.commands] == ([scope] if scope else [])
    assert (banked is None) == (not scope)


async def test_without_dialogue_there_is_no_entry(here: Here) -> None:
    assert await here.bank((Message(role="user", blocks=(TextBlock(text="s", is_summary=True),)),)) == MemoryBanked()
    assert not here.commands


async def test_secrets_are_masked_and_half_a_character_is_made_whole(here: Here) -> None:
    await here.bank(said("it is hunter2 \ud83d"))
    assert "it is [password] \ufffd" in here.commands[0].payload


@pytest.mark.parametrize("error", [Transient("away", kind="unavailable"), TimeoutError()])
async def test_without_its_frames_the_dialogue_is_kept_all_the_same(here: Here, error: Exception) -> None:
    here.reading = error
    banked = await here.bank(said("I like tea"))
    assert banked is not None
    assert banked.messages == 1
    assert '"seq":0' in here.commands[0].payload


async def test_a_long_dialogue_is_in_the_blob_store_and_loses_its_beginning(here: Here) -> None:
    banked = await here.bank(said(*[f"{number} " + "tea " * 50_000 for number in range(9)]))
    assert banked is not None
    assert banked.messages == 5
    (command,) = here.commands
    assert command.payload == ""
    assert command.payload_bytes <= PAYLOAD_BYTES_MAX
    (stored,) = here.blobs.blobs.values()
    assert stored.startswith(b'<ada>{"messages":[{"role":"user","content":"4 tea')


async def test_an_entry_that_cannot_be_written_is_an_error_in_the_answer(here: Here, monkeypatch: Any) -> None:
    banked = await here.bank(said("x" * (PAYLOAD_BYTES_MAX + 1)))
    assert banked is not None
    assert banked.error.startswith("memory_value_too_large: the last message")
    here.is_remote = True
    assert await here.bank(said("tea")) == MemoryBanked(error="capability_unsupported: elsewhere")
    here.is_remote = False
    here.entities.error = CommandUnanswered("no owner answers")
    assert await here.bank(said("tea")) == MemoryBanked(error="no owner answers")

    async def hang(*_: Any, **__: Any) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(module, "BANK_WAIT_S", 0.01)
    monkeypatch.setattr(here.entities, "ask", hang)
    banked = await here.bank(said("tea"))
    assert banked == MemoryBanked(error="no answer in 0.01 s; it may be kept all the same")
