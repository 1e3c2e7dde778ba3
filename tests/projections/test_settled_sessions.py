"""Settled sessions in the read model of runs, and what was said in them as the consolidator reads it."""

from typing import Any

import orjson
import pytest

from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections.settled_sessions import SessionFilter, SettledSession, settled_session, settled_sessions
from loomlog.schemas.generated.run_events import InputReceived
from loomlog.schemas.generated.values import AgentDefinition, ContentBlock, ParentCall, Segment
from loomlog.schemas.records import replace
from loomlog.services.families.consolidation.chats import MESSAGE_OVERHEAD_BYTES, ReadModelChats
from loomlog.services.families.memory.author import AGENT, TENANT, USER, Scope
from tests.projections.stories import Partition, call, completed, failed, replied, requested, returned, started

PARENT = ParentCall(run_id="r_first", agent_id="a_first", root_run_id="r_first", turn=1, index=0, number=0, depth=1)
BEGINNING = SettledSession("", 0)
ADA = SessionFilter(tenant="default", user_id="ada")
EVERYBODY = SessionFilter(tenant="default")


def of_agent(name: str) -> AgentDefinition:
    return AgentDefinition(name=name, provider="mock", model="mock-generic", sha256="ab" * 32)


def chat(partition: Partition, run_id: str, answer: str = "hi", *, ends: bool = True, **more: Any) -> int:
    """Add a run of one turn; return when it ended."""
    partition.add(run_id, started(run_id, **more), requested(1), replied(1, answer))
    if ends:
        partition.add(run_id, completed())
    return partition.clock_ms


@pytest.fixture
async def ended(project) -> dict[str, int]:
    """Chats by session, with the times when they were completed."""
    partition = Partition()
    partition.claim()
    times = {
        "s_first": chat(partition, "r_first"),
        "s_bob": chat(partition, "r_bob", user_id="bob"),
        "s_second": chat(partition, "r_second", definition=of_agent("helper")),
    }
    chat(partition, "r_open", ends=False)
    chat(partition, "r_child", parent=PARENT)
    chat(partition, "r_own", definition=of_agent("memory/consolidator"))
    chat(partition, "r_hidden", definition=of_agent("hidden"))
    chat(partition, "r_third", session_id="s_third")
    chat(partition, "r_third2", session_id="s_third", ends=False)
    await project(partition)
    return times


async def names(
    reader: PostgresReader, whose: SessionFilter, after: SettledSession = BEGINNING, **more: Any
) -> list[str]:
    sessions = await settled_sessions(reader, whose, after=after, **{"limit": 50} | more)
    return [session.session_id for session in sessions]


async def test_settled_chats_are_oldest_first_without_those_of_others(reader, ended):
    whose = replace(ADA, without_agents=("hidden",))
    sessions = await settled_sessions(reader, whose, after=BEGINNING, limit=50)
    assert sessions == [SettledSession(name, ended[name]) for name in ("s_first", "s_second")]
    assert await names(reader, ADA) == ["s_first", "s_second", "s_hidden"]
    assert await names(reader, replace(EVERYBODY, agent="helper")) == ["s_second"]
    assert await names(reader, EVERYBODY) == ["s_first", "s_bob", "s_second", "s_hidden"]
    assert await names(reader, SessionFilter(tenant="acme")) == []


async def test_only_chats_strictly_after_the_watermark_are_left(reader, ended):
    first = SettledSession("s_first", ended["s_first"])
    assert await names(reader, ADA, after=first) == ["s_second", "s_hidden"]
    assert await names(reader, ADA, after=first, without="s_hidden", limit=1) == ["s_second"]
    just_before = SettledSession("s_firss", ended["s_first"])
    assert await names(reader, ADA, after=just_before, limit=1) == ["s_first"], "of one moment, by session"


async def test_a_chat_is_settled_when_all_its_runs_have_ended(reader, ended):
    assert await settled_session(reader, ADA, "s_first") == SettledSession("s_first", ended["s_first"])
    for session in ("s_third", "s_open", "s_bob", "s_child", "s_own", "s_unknown"):
        assert await settled_session(reader, ADA, session) is None


# --- dialogue --------------------------------------------------------------------------------------------------------


async def shouted(value: Any, tenant: str) -> Any:
    """Stand for decryption: what was said is raised."""
    text = orjson.dumps(value).decode()
    for word in ("hurry", "a long answer"):
        text = text.replace(word, word.upper())
    return orjson.loads(text)


async def plain(value: Any, tenant: str) -> Any:
    return value


@pytest.fixture
async def talk(project) -> MemoryBlobs:
    """A chat of two runs with tools, an image, untrusted text, a steering input and a long answer in a blob."""
    blobs = MemoryBlobs()
    long = await blobs.put(b"a long answer")
    partition = Partition()
    partition.claim()
    system = Segment(role="system", content=(ContentBlock(type="trusted-text", text="be nice"),))
    mixed = Segment(
        role="user",
        content=(
            ContentBlock(type="trusted-text", text="I live in Rome"),
            ContentBlock(type="untrusted-block", text="I live in Paris", kind="web_content"),
            ContentBlock(type="image", data="AAAA", media_type="image/png"),
            ContentBlock(type="trusted-text", text="and I like tea"),
        ),
    )
    partition.add("r_1", started("r_1", segments=(system, mixed)), requested(1), replied(1, "let me look", call("c1")))
    partition.add("r_1", returned(1, 0, "c1", "sunny"), InputReceived(text="hurry", source="steer"), requested(2))
    partition.add("r_1", replied(2, "", text_blob=long), completed())
    partition.add("r_2", started("r_2", session_id="s_1", prompt="thanks"), requested(1), failed(1))
    partition.add("r_2", requested(1, attempt=2), replied(1, "welcome", attempt=2), completed())
    await project(partition)
    return blobs


async def test_dialogue_is_what_was_said_without_scaffolding(reader, talk):
    chats = ReadModelChats(reader, talk, decrypt=plain)
    dialogue = await chats.dialogue(Scope("default", USER, "ada"), "s_1", bytes_max=10_000)
    assert [(one.run_id, one.role, one.text) for one in dialogue.messages] == [
        ("r_1", "user", "I live in Rome\nand I like tea"),
        ("r_1", "assistant", "let me look"),
        ("r_1", "user", "hurry"),
        ("r_1", "assistant", "a long answer"),
        ("r_2", "user", "thanks"),
        ("r_2", "assistant", "welcome"),
    ]
    assert not dialogue.is_truncated
    assert [one.seq for one in dialogue.messages[:2]] == [1, 3], "a span names the event of the text"
    assert dialogue.messages[0].at.startswith("2026-")


async def test_a_long_chat_keeps_its_newest_messages(reader, talk):
    chats = ReadModelChats(reader, talk, decrypt=plain)
    room = 2 * MESSAGE_OVERHEAD_BYTES + len("thanks") + len("welcome")
    dialogue = await chats.dialogue(Scope("default", USER, "ada"), "s_1", bytes_max=room)
    assert [one.text for one in dialogue.messages] == ["thanks", "welcome"]
    assert dialogue.is_truncated


async def test_texts_are_decrypted_also_those_in_blobs(reader, talk):
    chats = ReadModelChats(reader, talk, decrypt=shouted)
    dialogue = await chats.dialogue(Scope("default", AGENT, "writer"), "s_1", bytes_max=10_000)
    assert [one.text for one in dialogue.messages][2:4] == ["HURRY", "A LONG ANSWER"]


async def test_the_chats_of_a_scope_are_those_of_its_user_agent_or_tenant(reader, talk):
    chats = ReadModelChats(reader, talk, decrypt=plain, internal_agents=lambda: {"writer"})
    assert await chats.find(Scope("default", TENANT, ""), "s_1") is None, "the agent is internal"
    chats = ReadModelChats(reader, talk, decrypt=plain)
    chat_of = [await chats.find(scope, "s_1") for scope in (Scope("default", TENANT), Scope("default", USER, "ada"))]
    assert chat_of[0] == chat_of[1] is not None
    assert await chats.find(Scope("default", USER, "bob"), "s_1") is None
    dialogue = await chats.dialogue(Scope("default", USER, "bob"), "s_1", bytes_max=10_000)
    assert dialogue.messages == ()
    assert await chats.after(Scope("default", AGENT, "writer"), BEGINNING, without="", limit=9) == [chat_of[0]]
