"""Operations of a target over the rules in memory: what each answers, what is refused, what a repetition does."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec import to_builtins

from loomlog.connectors.errors import Transient
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.projections.settled_sessions import SettledSession
from loomlog.schemas.generated.consolidation_commands import BankPending
from loomlog.schemas.generated.values import Provenance
from loomlog.schemas.records import replace
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.consolidation import FAMILY, limits
from loomlog.services.families.consolidation import operations as module
from loomlog.services.families.consolidation.chats import Dialogue, Message
from loomlog.services.families.consolidation.facts import FactLearning
from loomlog.services.families.consolidation.handlers import ConsolidationHandlers
from loomlog.services.families.consolidation.operations import ConsolidationOperations
from loomlog.services.families.memory.api import MemoryAdd
from loomlog.services.families.memory.author import USER, Author, Grants, Scope
from tests.services.entities import NOW_MS, UNANSWERED, MemoryEntities
from tests.services.families.memory.calls import carry_out, on_part, parse_call

SCOPE = Scope("acme", USER, "ada")
GRANTS = Grants(memory_scopes=("user",), memory_consolidation=True)
CONSOLIDATOR = Author(
    tenant="acme", subject="ada", command_id="c", issued_at_ms=NOW_MS, user_id="ada", agent="memory/consolidator",
    run_id="r_c", root_run_id="r_c", session_id="s_c", grants=GRANTS,
)  # fmt: skip
AGENT = replace(CONSOLIDATOR, agent="helper", run_id="r_1", session_id="s_1", grants=Grants(memory_scopes=("user",)))
OPERATOR = Author(tenant="acme", subject="op", command_id="o", issued_at_ms=NOW_MS)
CHATS = {"s_1": NOW_MS - 5_000, "s_2": NOW_MS - 4_000, "s_3": NOW_MS - 4_000, "s_c": NOW_MS - 1_000}
SAID = Message(run_id="r_1", seq=3, role="user", text="I like tea", at="2027-01-15T07:59:55.000Z")


class Here:
    """A process with the chats of CHATS; it stands for Chats too."""

    def __init__(self) -> None:
        self.entities = MemoryEntities(FAMILY)
        self.blobs = MemoryBlobs()
        self.chats = dict(CHATS)
        self.now_ms = NOW_MS
        self.is_erased = False
        self.facts: list[tuple[str, Any, Provenance]] = []
        self.operations = self.restarted()
        self.learning = FactLearning(self.operations, self.set_fact)
        self.number = 0

    def restarted(self, **more: Any) -> ConsolidationOperations:
        return ConsolidationOperations(
            self.entities,
            self.entities,
            self,
            self.blobs,
            clock_ms=lambda: self.now_ms,
            encrypt=self.encrypt,
            decrypt=self.decrypt,
            **more,
        )

    async def encrypt(self, text: str, tenant: str, subject: str) -> str:
        return f"<{subject}>{text}"

    async def decrypt(self, value: Any, tenant: str) -> Any:
        return "[erased]" if self.is_erased else value.removeprefix("<ada>")

    async def set_fact(
        self, scope: Scope, author: Author, key: str, value: Mapping[str, Any], provenance: Provenance
    ) -> tuple[str, ...]:
        self.facts.append((key, value, provenance))
        return ("t/1:7",)

    async def require_local(self, op: str, author: Author) -> None:
        """All entries are here."""

    async def after(
        self, scope: Scope, watermark: SettledSession, *, without: str, limit: int
    ) -> Sequence[SettledSession]:
        assert scope == SCOPE
        edge = (watermark.completed_at_ms, watermark.session_id)
        chats = sorted((at_ms, name) for name, at_ms in self.chats.items() if name != without)
        return [SettledSession(name, at_ms) for at_ms, name in chats if (at_ms, name) > edge][:limit]

    async def find(self, scope: Scope, session_id: str) -> SettledSession | None:
        at_ms = self.chats.get(session_id)
        return None if at_ms is None else SettledSession(session_id, at_ms)

    async def dialogue(self, scope: Scope, session_id: str, *, bytes_max: int) -> Dialogue:
        return Dialogue(messages=(SAID,), is_truncated=bytes_max < 2_000)

    async def do(self, op: str, author: Author = CONSOLIDATOR, **fields: Any) -> Mapping[str, Any]:
        self.number += 1
        named = replace(author, command_id=f"{author.command_id}{self.number}")
        handlers = ConsolidationHandlers(self.operations, require_local=self.require_local).by_operation()
        return (await carry_out(handlers, op, fields, named)).value

    async def refused(self, op: str, author: Author = CONSOLIDATOR, **fields: Any) -> str:
        with pytest.raises(Refused) as caught:
            await self.do(op, author, **fields)
        return caught.value.code

    async def add(self, author: Author = AGENT, **fields: Any) -> Mapping[str, Any]:
        self.number += 1
        named = replace(author, command_id=f"{author.command_id}{self.number}")
        answer = await self.learning.add(SCOPE, parse_call("add", fields).input, named)
        return to_builtins(answer.value)


@pytest.fixture
def here() -> Here:
    return Here()


# --- the watermark and the lease -------------------------------------------------------------------------------------


async def test_a_pass_goes_from_chat_to_chat(here: Here) -> None:
    assert await here.do("cursor_get") == {
        "watermark_completed_at": None,
        "watermark_session_id": "",
        "leased_by": "",
        "lease_expires_at": None,
    }
    lease = await here.do("cursor_lease")
    assert (lease["acquired"], lease["owner"], lease["lease_expires_at"]) == (True, "r_c", "2027-01-15T08:01:00.000Z")
    assert lease["consolidation"]["merge_threshold"] == 0.95
    scan = await here.do("cursor_scan", limit=2)
    assert scan == {
        "sessions": [
            {"session_id": "s_1", "completed_at": "2027-01-15T07:59:55.000Z"},
            {"session_id": "s_2", "completed_at": "2027-01-15T07:59:56.000Z"},
        ],
        "truncated": True,
    }
    for session in scan["sessions"]:
        advanced = await here.do("cursor_advance", **session)
        assert advanced == {
            "ok": True,
            "watermark_completed_at": session["completed_at"],
            "watermark_session_id": session["session_id"],
        }
    left = await here.do("cursor_scan")
    assert [one["session_id"] for one in left["sessions"]] == ["s_3"], "not itself"
    assert await here.do("cursor_release") == {"ok": True, "released": True}
    assert await here.do("cursor_release") == {"ok": True, "released": False}
    cursor = await here.do("cursor_get")
    assert (cursor["watermark_session_id"], cursor["leased_by"]) == ("s_2", "")


async def test_another_run_is_told_who_has_the_lease(here: Here) -> None:
    await here.do("cursor_lease", lease_ttl_ms=600_000)
    other = replace(CONSOLIDATOR, run_id="r_other")
    answer = await here.do("cursor_lease", other)
    assert (answer["acquired"], answer["owner"], answer["leased_by"]) == (False, "r_c", "r_c")
    assert (await here.do("cursor_get"))["leased_by"] == "r_c"
    assert (
        await here.refused("cursor_advance", other, session_id="s_1", completed_at=_time(CHATS["s_1"])) == "lease_lost"
    )
    assert await here.refused("pending_ack", other, ids=["mp_1"]) == "lease_lost"
    here.now_ms += 600_000
    assert (await here.do("cursor_get"))["leased_by"] == "", "it has expired"


async def test_so_many_passes_are_at_work_and_others_wait(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLOT_WAIT_S", 0.05)
    monkeypatch.setattr(module, "SLOT_POLL_S", 0.001)
    here.operations = here.restarted(passes_max=2)
    scopes = [Scope("acme", USER, name) for name in ("ada", "bob", "cleo")]
    runs = [replace(CONSOLIDATOR, run_id=f"r_{scope.id}", command_id=f"lease {scope.id}") for scope in scopes]

    async def lease(number: int, **more: Any) -> Mapping[str, Any]:
        author = replace(runs[number], **{"command_id": f"lease {number} {here.number}", **more})
        here.number += 1
        return (await on_part(here.operations, "cursor_lease", {}, author, scopes[number])).value

    assert [(await lease(number))["acquired"] for number in (0, 1)] == [True, True]
    refused = await lease(2)
    assert (refused["acquired"], refused["owner"], refused["watermark_session_id"]) == (False, "", "")
    assert refused["reason"] == "2 passes are at work in this process, the most there may be"
    assert (await lease(0))["acquired"], "a lease is renewed"
    assert len(here.entities.asked) == 3

    waiting = asyncio.create_task(lease(2))
    await asyncio.sleep(0.01)
    await on_part(here.operations, "cursor_release", {}, replace(runs[0], command_id="release"), scopes[0])
    assert (await waiting)["acquired"]
    assert not (await lease(0))["acquired"]
    here.operations.run_ended("r_bob")
    assert (await lease(0))["acquired"], "the run has ended without giving it back"
    here.now_ms += limits.LEASE_MS
    assert (await lease(1))["acquired"], "they have expired"


async def test_a_repeated_lease_and_one_of_the_last_owner_do_not_wait(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SLOT_WAIT_S", 0.0)
    here.operations = here.restarted(passes_max=1)
    await here.do("cursor_lease")
    other = Scope("acme", USER, "bob")
    here.operations = here.restarted(passes_max=1)
    author = replace(CONSOLIDATOR, run_id="r_bob", command_id="bob")
    assert (await on_part(here.operations, "cursor_lease", {}, author, other)).value["acquired"]
    assert (await here.do("cursor_lease"))["acquired"], "it has the lease, which another process gave"
    here.operations = here.restarted(passes_max=1)
    await here.do("cursor_lease")
    again = await on_part(here.operations, "cursor_lease", {}, replace(author, issued_at_ms=0), other)
    assert again.value["acquired"], "it is looked up"


def _time(at_ms: int) -> str:
    return format_rfc3339(at_ms)


async def test_the_watermark_is_the_servers_time_of_a_settled_chat(here: Here) -> None:
    await here.do("cursor_lease")
    near = _time(CHATS["s_2"] + 900)
    assert (await here.do("cursor_advance", session_id="s_2", completed_at=near))["watermark_completed_at"] == _time(
        CHATS["s_2"]
    )
    assert (
        await here.refused("cursor_advance", session_id="s_3", completed_at=_time(CHATS["s_3"] + 1_001)) == "not_found"
    )
    assert await here.refused("cursor_advance", session_id="s_9", completed_at=near) == "not_found"
    assert await here.refused("cursor_advance", session_id="s_3", completed_at="2099-01-01T00:00:00Z") == "not_yet"
    assert (
        await here.refused("cursor_advance", session_id="s_1", completed_at=_time(CHATS["s_1"])) == "cursor_regression"
    )


@pytest.mark.parametrize("time", ["", "yesterday", "2027-01-15T08:00:00", "1969-01-01T00:00:00Z", 5, None, "\ud800"])
async def test_a_time_that_is_none_is_refused(here: Here, time: Any) -> None:
    assert await here.refused("cursor_advance", session_id="s_1", completed_at=time) == "bad_request"


async def test_a_repeated_advance_gives_the_first_answer_although_the_chat_goes_on(here: Here) -> None:
    await here.do("cursor_lease")
    author = replace(CONSOLIDATOR, command_id="advance")
    fields = {"session_id": "s_1", "completed_at": _time(CHATS["s_1"])}
    first = await on_part(here.operations, "cursor_advance", fields, author, SCOPE)
    del here.chats["s_1"]
    again = await on_part(here.restarted(), "cursor_advance", fields, replace(author, issued_at_ms=0), SCOPE)
    assert again == first
    late = replace(author, command_id="never made", issued_at_ms=0)
    with pytest.raises(Refused) as caught:
        await on_part(here.operations, "cursor_advance", fields, late, SCOPE)
    assert caught.value.code == "not_found"


async def test_require_lease_tells_the_owner_from_others(here: Here) -> None:
    await here.do("cursor_lease")
    await here.learning.require_lease(SCOPE, CONSOLIDATOR)
    for author in (replace(CONSOLIDATOR, run_id="r_other"), OPERATOR):
        with pytest.raises(Refused, match="does not have the lease of user/ada: r_c has it"):
            await here.learning.require_lease(SCOPE, author)
    here.now_ms += limits.LEASE_MS
    with pytest.raises(Refused, match="it has expired"):
        await here.learning.require_lease(SCOPE, CONSOLIDATOR)


async def test_agents_need_the_grant_and_operators_are_no_run(here: Here) -> None:
    for op in ("cursor_get", "cursor_scan", "cursor_lease", "pending_drain"):
        assert await here.refused(op, AGENT) == "capability_unsupported"
    assert await here.refused("read_session", AGENT, session_id="s_1") == "capability_unsupported"
    assert (await on_part(here.operations, "cursor_get", {}, OPERATOR, SCOPE)).value["leased_by"] == ""
    with pytest.raises(Refused, match="a lease belongs to one"):
        await on_part(here.operations, "cursor_lease", {}, OPERATOR, SCOPE)
    assert await here.refused("cursor_none") == "bad_request"


@pytest.mark.parametrize(
    ("op", "fields"),
    [
        ("cursor_lease", {"lease_ttl_ms": 0}),
        ("cursor_lease", {"lease_ttl_ms": 3_600_001}),
        ("cursor_lease", {"lease_ttl_ms": float("nan")}),
        ("cursor_scan", {"limit": 51}),
        ("cursor_scan", {"limit": True}),
        ("pending_drain", {"limit": 201}),
        ("pending_ack", {"ids": []}),
        ("pending_ack", {"ids": ["mp_1"] * 201}),
        ("pending_ack", {"ids": "mp_1"}),
        ("pending_ack", {"ids": [1]}),
        ("pending_ack", {}),
        ("cursor_release", {"more": "yes"}),
        ("cursor_advance", {"session_id": "", "completed_at": "x"}),
        ("read_session", {}),
        ("read_session", {"session_id": "s_1", "max_bytes": 2_000_000}),
    ],
)
async def test_bad_fields_are_refused_by_name(here: Here, op: str, fields: dict[str, Any]) -> None:
    assert await here.refused(op, **fields) == "bad_request"


# --- pending entries -------------------------------------------------------------------------------------------------


async def test_what_is_added_is_drained_oldest_first_and_acknowledged(here: Here) -> None:
    added = await here.add(messages=[{"role": "user", "content": "I like tea"}], metadata={"topic": "drinks"})
    assert added["status"] == "pending"
    await here.add(content="I live in Rome")
    await here.do("cursor_lease")
    drained = await here.do("pending_drain", limit=1)
    (entry,) = drained["pending"]
    assert entry == {
        "id": added["event_id"],
        "payload": {"messages": [{"role": "user", "content": "I like tea"}], "metadata": {"topic": "drinks"}},
        "origin": "agent_explicit",
        "source_session_id": "s_1",
        "source_run_id": "r_1",
        "created_at": "2027-01-15T08:00:00.000Z",
    }
    assert drained["truncated"]
    assert await here.learning.pending_origin(SCOPE, entry["id"], CONSOLIDATOR) == {
        "origin": "agent_explicit",
        "source_session_id": "s_1",
        "source_run_id": "r_1",
    }
    assert await here.do("pending_ack", ids=[entry["id"]]) == {"ok": True, "acked": 1}
    assert await here.do("pending_ack", ids=[entry["id"]]) == {"ok": True, "acked": 0}
    left = await here.do("pending_drain")
    assert [one["payload"] for one in left["pending"]] == [{"content": "I live in Rome"}]
    assert not left["truncated"]


async def test_the_pending_entry_of_another_scope_is_not_found(here: Here) -> None:
    added = await here.add(content="secret")
    for scope, entry in ((Scope("acme", USER, "bob"), added["event_id"]), (SCOPE, "mp_none")):
        with pytest.raises(Refused) as caught:
            await here.learning.pending_origin(scope, entry, CONSOLIDATOR)
        assert caught.value.code == "not_found"


async def test_a_long_payload_is_in_the_blob_store_encrypted_for_the_user(here: Here) -> None:
    text = "tea " * 20_000
    await here.add(content=text)
    (command,) = [one for one in here.entities.asked if isinstance(one, BankPending)]
    assert (command.payload, command.payload_bytes) == ("", len(text) + len('{"content":""}'))
    (stored,) = here.blobs.blobs.values()
    assert stored.startswith(b"<ada>{")
    assert (await here.do("pending_drain"))["pending"][0]["payload"] == {"content": text}


async def test_an_answer_has_a_bounded_size(here: Here) -> None:
    for _ in range(3):
        await here.add(content="x" * 500_000)
    drained = await here.do("pending_drain")
    assert (len(drained["pending"]), drained["truncated"]) == (2, True)


async def test_a_repeated_add_is_one_entry(here: Here) -> None:
    author = replace(AGENT, command_id="same")
    first, again = [await here.learning.add(SCOPE, MemoryAdd(content="tea"), author) for _ in range(2)]
    assert first == again
    assert len((await here.do("pending_drain"))["pending"]) == 1


# --- add -------------------------------------------------------------------------------------------------------------


async def test_without_inference_a_text_is_a_fact_at_once(here: Here) -> None:
    answer = await here.add(content="Ada likes tea", infer=False, metadata={"class": "preference"})
    assert answer == {"status": "done", "event_id": "t/1:7"}
    ((key, value, provenance),) = here.facts
    assert (key, value["memory"]) == ("memory/preference/ada-likes-tea", "Ada likes tea")
    assert (provenance.fact_class, provenance.origin, provenance.source_run_id) == (
        "preference",
        "agent_explicit",
        "r_1",
    )
    assert not here.entities.asked, "nothing is pending"


async def test_messages_without_inference_are_kept_with_their_roles(here: Here) -> None:
    await here.add(messages=[{"content": "hi"}, {"role": "assistant", "content": "hello"}], infer=False)
    assert here.facts[0][:2] == ("memory/fact/user-hi-assistant-hello", {"memory": "user: hi\nassistant: hello"})


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({}, "messages or content"),
        ({"content": "x", "messages": [{"content": "x"}]}, "not both"),
        ({"content": ""}, "content"),
        ({"content": "\ud800"}, "surrogate"),
        ({"content": "a\0b"}, "NUL"),
        ({"messages": []}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [{"role": "boss", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"content": "x", "infer": "no"}, "infer"),
        ({"content": "x", "metadata": [1]}, "metadata"),
        ({"content": "x", "metadata": {"class": 5}, "infer": False}, "metadata.class"),
        ({"content": "x" * 1_100_000}, "1048576"),
        ({"content": "x", "metadata": {"n": float("nan")}}, "JSON"),
    ],
)
async def test_bad_additions_are_refused_by_name(here: Here, fields: dict[str, Any], named: str) -> None:
    with pytest.raises(Refused) as caught:
        await here.add(**fields)
    assert named in str(caught.value)
    assert not here.facts


# --- dialogue, and what does not answer ------------------------------------------------------------------------------


async def test_a_settled_chat_is_read_with_the_spans_of_its_messages(here: Here) -> None:
    answer = await here.do("read_session", session_id="s_1")
    assert answer["messages"] == [
        {"run_id": "r_1", "seq": 3, "role": "user", "text": "I like tea", "at": SAID.at},
    ]
    assert (answer["completed_at"], answer["truncated"]) == (_time(CHATS["s_1"]), False)
    assert (await here.do("read_session", session_id="s_1", max_bytes=1_024))["truncated"]
    assert await here.refused("read_session", session_id="s_open") == "not_found"


async def test_a_settled_chat_that_is_noted_sets_the_timer(here: Here) -> None:
    await here.operations.note_settled_chat(SCOPE, OPERATOR)
    assert here.entities.entities["acme", "user/ada"].state.settled_at_ms == NOW_MS


async def test_silence_is_told_as_what_it_is(here: Here) -> None:
    here.entities.error = UNANSWERED
    with pytest.raises(Unavailable) as caught:
        await here.do("cursor_lease")
    assert caught.value.is_unknown
    here.entities.error = Transient("Postgres is away", kind="unavailable")
    with pytest.raises(Unavailable) as caught:
        await here.do("pending_drain")
    assert not caught.value.is_unknown


async def test_the_state_is_read_from_the_rows_by_a_process_that_is_no_owner(here: Here) -> None:
    await here.do("cursor_lease")
    here.entities.is_owner = False
    assert (await here.do("cursor_get"))["leased_by"] == "r_c"


async def test_an_erased_payload_is_shown_as_what_is_left_of_it(here: Here) -> None:
    await here.add(content="x" * 70_000)
    here.is_erased = True
    assert (await here.do("pending_drain"))["pending"][0]["payload"] == "[erased]"
