"""Hooks at the end of a run: who gets which value, and what is refused or tried again."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from loomlog.connectors.configuration.trigger_block import CompletionHook
from loomlog.connectors.definitions.triggers import hook_texts
from loomlog.connectors.errors import Transient
from loomlog.connectors.mcp.peer import NotSent
from loomlog.connectors.protocols import ToolResult
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.schemas.conversation import Message, TextBlock
from loomlog.schemas.generated.callback_commands import RequestCallback
from loomlog.schemas.generated.values import AgentGrants
from loomlog.schemas.records import replace
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import Ended
from loomlog.services.families.callback import FAMILY
from loomlog.services.families.channel.api import ChannelPublish
from loomlog.services.families.channel.caller import ChannelCaller, Origin
from loomlog.services.families.channel.run_messages import RunMessages
from loomlog.services.families.memory.api import MemorySet
from loomlog.services.families.memory.author import Author, Scope
from loomlog.services.families.memory.run_entries import RunEntries
from loomlog.services.families.ports.run_ends import TRIES_MS, EndedRun
from loomlog.services.runtime.run.end_hooks import TEXT_BYTES_MAX, RunEndHooks
from loomlog.services.runtime.run.run_end_actions import RunEnd
from tests.services.core.run.given import begun
from tests.services.entities import NOW_MS, UNANSWERED, MemoryEntities
from tests.services.runtime.tools.test_approval_verdicts import pin

PAYLOAD = {"text": "{{run.final_text}}!", "list": ["{{ run.id }}", 1, None], "{{run.id}}": "{{run.status}} {{run.x}}"}


class Here:
    """A process in which a run has ended."""

    def __init__(self) -> None:
        self.commands = MemoryEntities(FAMILY)
        self.published: list[tuple[Mapping[str, Any], ChannelCaller]] = []
        self.entries: list[tuple[MemorySet, Author, Scope]] = []
        self.error: Exception | None = None
        self.calls: list[tuple[EndedRun, str, str, Any]] = []
        self.result = ToolResult(text="noted")
        self.blobs = MemoryBlobs()
        self.isolated: set[str] = set()
        self.now_ms = NOW_MS
        self.hooks = RunEndHooks(
            self.commands,
            RunMessages(self, self.is_isolated),
            RunEntries(self, self.is_isolated, lambda: self.now_ms),
            self.blobs,
            self,
            clock_ms=lambda: self.now_ms,
        )
        facts = begun().live.facts
        messages = (*facts.messages, Message(role="assistant", blocks=(TextBlock(text="the answer"),)))
        self.facts = replace(facts, run_id="r_1", agent_id="a_1", subject="app", user_id="ada", messages=messages)

    def is_isolated(self, tenant: str, subject: str) -> bool:
        return subject in self.isolated

    async def call(self, run: EndedRun, server: str, tool: str, arguments: Any) -> ToolResult:
        self.calls.append((run, server, tool, arguments))
        if self.error is not None:
            raise self.error
        return self.result

    async def publish(self, asked: ChannelPublish, caller: ChannelCaller) -> Any:
        self.published.append(({"channel": asked.channel, "value": asked.value}, caller))
        if self.error is not None:
            raise self.error

    async def set(self, asked: MemorySet, author: Author, scope: Scope) -> None:
        self.entries.append((asked, author, scope))
        if self.error is not None:
            raise self.error

    async def carry_out(
        self, hook: CompletionHook | str, status: str = "completed", reason: str = "end_turn", **source: str
    ) -> bool:
        text = hook if isinstance(hook, str) else hook_texts([hook], source)[0]
        end = RunEnd(
            tenant="acme", partition=0, run_id="r_1", first_offset=1, last_offset=9, ended_at_ms=NOW_MS - 5_000
        )
        return await self.hooks.carry_out(text, end, Ended(facts=self.facts, status=status, reason=reason), 3)


@pytest.fixture
def here() -> Here:
    return Here()


def publish(**fields: Any) -> CompletionHook:
    return CompletionHook(**{"kind": "channel.publish", "channel": "done", "payload": PAYLOAD, **fields})


def remember(scope: str = "user") -> CompletionHook:
    return CompletionHook(kind="memory.set", scope=scope, key="last", payload="{{run.final_text}}")


def request(**fields: Any) -> CompletionHook:
    return CompletionHook(**{"kind": "http", "url": "https://a.example/x", "secret_env": "A_SECRET", **fields})


# --- the value -------------------------------------------------------------------------------------------------------


async def test_templates_are_replaced_in_every_text(here: Here) -> None:
    assert await here.carry_out(publish())
    ((fields, _),) = here.published
    assert fields == {
        "channel": "done",
        "value": {
            "run_id": "r_1",
            "agent_id": "a_1",
            "payload": {
                "text": "the answer!",
                "list": ["r_1", 1, None],
                "{{run.id}}": "completed {{run.x}}",
            },
        },
    }


@pytest.mark.parametrize("source", [{"schedule_name": "nightly"}, {"webhook_name": "issues"}])
async def test_the_value_names_the_schedule_or_webhook(here: Here, source: dict[str, str]) -> None:
    await here.carry_out(publish(payload=None), **source)
    assert here.published[0][0]["value"] == {**source, "run_id": "r_1", "agent_id": "a_1", "payload": None}


def typed(facts: RunFacts, text: str) -> RunFacts:
    """The facts of a run with an output schema that has answered with the text."""
    answer = Message(role="assistant", blocks=(TextBlock(text=text),))
    return replace(facts, messages=(answer,), definition=replace(facts.definition, output_schema_sha256="ab" * 32))


async def test_a_record_is_put_in_as_json(here: Here) -> None:
    here.facts = typed(here.facts, '{"total":3}')
    await here.carry_out(publish(payload={"whole": "{{run.result}}", "within": "it is {{run.result}}"}))
    payload = here.published[0][0]["value"]["payload"]
    assert payload == {"whole": {"total": 3}, "within": 'it is {"total":3}'}


async def test_without_a_record_the_result_is_null(here: Here) -> None:
    await here.carry_out(publish(payload="{{run.result}}"))
    here.facts = typed(here.facts, "prose")
    await here.carry_out(publish(payload="{{run.result}}", on="failed"), status="failed", reason="output_invalid: ...")
    assert [fields["value"]["payload"] for fields, _ in here.published] == [None, None]


async def test_what_is_put_in_is_not_read_again(here: Here) -> None:
    answer = Message(role="assistant", blocks=(TextBlock(text="{{run.id}}\0{{run.final_text}}"),))
    here.facts = replace(here.facts, messages=(answer,))
    await here.carry_out(publish(payload="{{run.final_text}}"))
    assert here.published[0][0]["value"]["payload"] == "{{run.id}}{{run.final_text}}"


async def test_a_long_text_is_cut(here: Here) -> None:
    blob = await here.blobs.put("é".encode() * TEXT_BYTES_MAX)
    answer = Message(role="assistant", blocks=(TextBlock(text="", blob=blob),))
    here.facts = replace(here.facts, messages=(answer,))
    await here.carry_out(publish(payload="{{run.final_text}}"))
    text = here.published[0][0]["value"]["payload"]
    assert text == "é" * ((TEXT_BYTES_MAX - 3) // 2) + "…"
    assert len(text.encode()) <= TEXT_BYTES_MAX


async def test_the_final_text_of_a_failed_run_is_why_it_failed(here: Here) -> None:
    await here.carry_out(publish(on="failed", payload="{{run.status}}: {{run.final_text}}"), "failed", "no key")
    assert here.published[0][0]["value"]["payload"] == "failed: no key"


@pytest.mark.parametrize("status", ["failed", "cancelled"])
async def test_a_hook_of_completed_runs_leaves_others_alone(here: Here, status: str) -> None:
    assert not await here.carry_out(publish(), status, "x")
    assert await here.carry_out(publish(on="any"), status, "x")
    assert len(here.published) == 1


# --- channels --------------------------------------------------------------------------------------------------------


async def test_a_message_is_published_for_the_user_once_and_to_no_other_channel(here: Here) -> None:
    here.isolated = {"app"}
    await here.carry_out(publish())
    ((_, caller),) = here.published
    assert (caller.command_id, caller.issued_at_ms) == ("r_1:end:3", NOW_MS - 5_000)
    assert (caller.tenant, caller.subject, caller.user_id, caller.publisher) == ("acme", "app", "ada", "ada")
    assert (caller.publish, caller.subscribe, caller.origin, caller.is_isolated) == (("done",), (), Origin.AGENT, True)
    assert caller.agent == here.facts.definition.name


async def test_refusals_are_told_from_what_does_not_answer(here: Here) -> None:
    here.error = Refused("channel_not_declared", "there is no channel 'done'")
    with pytest.raises(Refused, match="there is no channel 'done'"):
        await here.carry_out(publish())
    here.error = Unavailable("no owner")
    with pytest.raises(Unavailable, match="no owner"):
        await here.carry_out(publish())
    here.error = Refused("quota", "full")
    with pytest.raises(Refused, match="full"):
        await here.carry_out(remember())
    here.error = Unavailable("no rows")
    with pytest.raises(Unavailable, match="no rows"):
        await here.carry_out(remember())
    here.commands.error = UNANSWERED
    with pytest.raises(Unavailable, match="no owner answered"):
        await here.carry_out(request())
    here.commands.error = Transient("the log is away", kind="unavailable")
    with pytest.raises(Unavailable, match="the log is away"):
        await here.carry_out(request())


@pytest.mark.parametrize("text", ["no json", '{"kind":"mail"}'])
async def test_what_is_no_hook_is_refused(here: Here, text: str) -> None:
    with pytest.raises(Refused):
        await here.carry_out(text)


# --- tools of MCP servers --------------------------------------------------------------------------------------------


def note(**fields: Any) -> CompletionHook:
    args = {"title": "{{run.status}}: {{run.final_text}}"}
    return CompletionHook(kind="mcp.call", server="crm", tool="add_note", args=args, **fields)


async def test_a_tool_is_called_with_its_arguments_rendered(here: Here) -> None:
    assert await here.carry_out(note())
    [(run, server, tool, arguments)] = here.calls
    assert (run.tenant, server, tool, run.command_id) == ("acme", "crm", "add_note", "r_1:end:3")
    assert arguments == {"title": "completed: the answer"}


async def test_a_call_that_was_not_sent_is_tried_again_for_a_while(here: Here) -> None:
    here.error = NotSent("it refused the connection")
    with pytest.raises(Unavailable, match="refused the connection"):
        await here.carry_out(note())
    here.now_ms += 3_600_000
    with pytest.raises(Refused, match="refused the connection"):
        await here.carry_out(note())


async def test_a_call_that_may_have_been_made_is_not_made_again(here: Here) -> None:
    here.error = Transient("it broke off", kind="broken_off")
    with pytest.raises(Refused, match="it broke off"):
        await here.carry_out(note())
    here.error, here.result = None, ToolResult(text="no such customer", is_error=True)
    with pytest.raises(Refused, match="no such customer"):
        await here.carry_out(note())


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"name": "no_notes", "then": "deny", "tools": ["mcp__crm__*"], "reason": "closed"}, "no_notes: closed"),
        ({"name": "ask", "then": "ask", "tools": ["*"], "ask": {"subjects": ["ann"], "within_s": 60}}, "approval"),
    ],
)
async def test_a_call_meets_the_rules_of_its_run(here: Here, rule: dict[str, Any], said: str) -> None:
    here.facts = replace(here.facts, definition=replace(here.facts.definition, approvals=(pin(rule),)))
    with pytest.raises(Refused, match=said):
        await here.carry_out(note())
    assert here.calls == []
    allowed = pin({**rule, "tools": ["mcp__crm__delete"]})
    here.facts = replace(here.facts, definition=replace(here.facts.definition, approvals=(allowed,)))
    assert await here.carry_out(note())


# --- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "source", "expected"),
    [
        ("user", {}, ("user", "ada")),
        ("tenant", {}, ("tenant", "")),
        ("global", {}, ("tenant", "")),
        ("agent", {"schedule_name": "nightly"}, ("agent", "nightly")),
    ],
)
async def test_an_entry_is_set_in_its_scope(
    here: Here, scope: str, source: dict[str, str], expected: tuple[str, str]
) -> None:
    await here.carry_out(remember(scope), **source)
    ((asked, author, of),) = here.entries
    assert of == Scope("acme", *expected)
    assert asked.key == "last"
    assert asked.value == {**source, "run_id": "r_1", "agent_id": "a_1", "payload": "the answer"}
    assert (author.command_id, author.issued_at_ms) == ("r_1:end:3", NOW_MS - 5_000)


async def test_the_memory_of_an_agent_is_that_of_its_name(here: Here) -> None:
    await here.carry_out(remember("agent"), webhook_name="issues")
    assert here.entries[0][2] == Scope("acme", "agent", here.facts.definition.name)


async def test_a_scope_that_the_run_has_not_is_refused(here: Here) -> None:
    here.isolated = {"app"}
    with pytest.raises(Refused, match="confined to its own memory"):
        await here.carry_out(remember("tenant"))
    here.facts = replace(here.facts, user_id="")
    with pytest.raises(Refused, match="the run has no user_id"):
        await here.carry_out(remember("user"))
    assert here.entries == []


async def test_the_memory_of_another_installation_is_not_tried_for_ever(here: Here) -> None:
    grants = AgentGrants(memory_backend="elsewhere")
    here.facts = replace(here.facts, definition=replace(here.facts.definition, grants=grants))
    here.error = Unavailable("the peer is down")
    with pytest.raises(Unavailable):
        await here.carry_out(remember())
    here.now_ms += TRIES_MS
    with pytest.raises(Refused, match="the peer is down"):
        await here.carry_out(remember())


# --- requests --------------------------------------------------------------------------------------------------------


async def test_a_request_is_asked_for_once(here: Here) -> None:
    await here.carry_out(request(payload={"id": "{{run.id}}"}))
    await here.carry_out(request(payload={"id": "{{run.id}}"}))
    first, second = here.commands.asked
    assert first == second
    assert isinstance(first, RequestCallback)
    assert (first.envelope.command_id, first.envelope.subject) == ("r_1:end:3", "ada")
    assert (first.run_id, first.hook, first.url, first.secret_env) == ("r_1", 3, "https://a.example/x", "A_SECRET")
    assert json.loads(first.body) == {"run_id": "r_1", "agent_id": "a_1", "payload": {"id": "r_1"}}


async def test_a_request_without_a_payload_has_status_and_text(here: Here) -> None:
    await here.carry_out(request(on="any"), "failed", "no key")
    assert json.loads(here.commands.asked[0].body)["payload"] == {"status": "failed", "final_text": "no key"}


async def test_a_request_that_its_owner_refuses_is_refused(here: Here) -> None:
    here.facts = replace(here.facts, messages=())
    text = json.dumps({"kind": "http", "url": "https://a.example/" + "x" * 3_000})
    with pytest.raises(Refused, match="bad_request: url"):
        await here.carry_out(text)
