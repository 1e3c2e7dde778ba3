"""A run from its request to its answer with encrypted content, over everything but the network: nothing that is said
lies in clear anywhere, its people see it all the same, and after an erasure nobody does.
"""

import asyncio
import base64
import contextlib
import gzip
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from io import BytesIO
from typing import Any

import orjson

from loomlog.connectors.crypto.content_encryption import has_tokens
from loomlog.connectors.errors import Permanent
from loomlog.connectors.protocols import (
    Capabilities,
    EffectClass,
    ModelItem,
    ModelRequest,
    ProducerRecord,
    Reply,
    TextDelta,
    Tool,
    ToolContext,
    ToolResult,
)
from loomlog.schemas.conversation import TextBlock, ToolResultBlock
from loomlog.schemas.generated.run_commands import ForkRun, PostInput, StartRun
from loomlog.schemas.generated.run_events import RunRefused, RunStarted, ToolReturned
from loomlog.schemas.generated.values import (
    AgentDefinition,
    CommandEnvelope,
    ContentBlock,
    RunOptions,
    RunPosition,
    Segment,
    ToolCall,
    Usage,
)
from loomlog.schemas.ids import partition_key
from loomlog.schemas.reader import TermReader
from loomlog.schemas.records import replace
from loomlog.services.application.admin.erasure import TENANT_SUBJECT
from loomlog.services.application.queries.audit_log import EventQuery
from loomlog.services.application.queries.history_json import comparison_json, run_at_json
from loomlog.services.application.queries.run_json import event_json, run_json
from loomlog.services.application.resources import TOPICS
from loomlog.services.application.runs.forks import ForkRequest
from loomlog.services.application.runs.requests import RunRequest, check_request, request_digest
from loomlog.services.application.streaming.items import StreamChunk
from loomlog.services.runtime.content.encryption import ContentEncryption
from loomlog.services.runtime.run.family import RunFamily
from loomlog.services.runtime.telemetry.tracing import NO_TRACING
from loomlog.services.stream.archive.bundle_replay import replay_bundle
from loomlog.services.stream.encryption.content_fields import is_in_clear, texts_of_command
from loomlog.services.stream.encryption.subject_keys import ERASED, SubjectKeys
from loomlog.services.stream.family import Topics
from loomlog.services.stream.partition.ended_aggregates import EndedAggregates
from tests.services.application.owner import PARTITIONS
from tests.services.application.world import (
    ACME,
    ADMIN_CALLER,
    IVY,
    World,
    declined,
    pieces_of,
    until,
    until_type,
    world,
)
from tests.services.runtime.fakes import AGENT
from tests.services.runtime.small_runtime import SmallRuntime, running

USER = "ivy"
PROMPT, PAGE, META, CONTEXT = "prompt-aardvark", "page-badger", "meta-cormorant", "context-dormouse"
THOUGHT, SAID, ARGUMENT, RESULT = "thought-echidna", "said-falcon", "argument-gazelle", "result-hedgehog"
ANSWER, INPUT, SIGNATURE, ERROR = "answer-ibex", "input-jackal", "signature-kiwi", "error-lemur"
WORDS = (PROMPT, PAGE, META, CONTEXT, THOUGHT, SAID, ARGUMENT, RESULT, ANSWER, INPUT, SIGNATURE, ERROR)
LONG = " and so on" * 8_000


class Talker:
    """A model that thinks, calls a tool, answers at length, and fails once before that."""

    provider = "mock"
    capabilities = Capabilities()

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []
        self.has_failed = False
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        self.requests.append(request)
        results = sum(isinstance(block, ToolResultBlock) for message in request.messages for block in message.blocks)
        if not results:
            yield TextDelta(text=f"I {SAID}", thinking=False)
            await self.go_on.wait()
            yield Reply(
                text=f"I {SAID} it" if request.tools else f"I {SAID} it <b>",
                reasoning=f"a {THOUGHT}",
                reasoning_signature=SIGNATURE,
                tool_calls=(ToolCall(id="c1", name="Echo", input=f'{{"text": "{ARGUMENT}"}}'),),
                stop_reason="tool_use",
                usage=Usage(input_tokens=1, output_tokens=1),
            )
            return
        if "fail" in str(request.messages):
            raise Permanent(f"mock 400: {ERROR} is not allowed", kind="invalid")
        yield Reply(text=f"{ANSWER}{LONG}", stop_reason="end_turn", usage=Usage(input_tokens=1, output_tokens=1))

    async def list_models(self) -> list[str]:
        return []

    async def probe(self) -> None:
        """It is always there."""

    async def close(self) -> None:
        """Nothing is open."""


class Answering:
    """A tool that gives RESULT."""

    name = "Echo"
    description = "Answers."
    input_schema: Mapping[str, Any] = {"type": "object"}
    timeout_s = 5.0

    def __init__(self) -> None:
        self.calls: list[tuple[Mapping[str, Any], Mapping[str, str]]] = []
        self.crashes = False

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        return EffectClass.PURE

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        self.calls.append((arguments, context.metadata))
        if self.crashes:
            raise ValueError(f"a bug met {RESULT}")
        return ToolResult(text=f"the {RESULT}")


class Stage:
    """A command layer and a runtime over one log, each with its own idea of the keys."""

    def __init__(
        self, made: World, model: Talker, tool: Answering, runtime_keys: SubjectKeys, runtime: SmallRuntime
    ) -> None:
        self.runtime = runtime
        self.world = made
        self.layer = made.layer
        self.model = model
        self.tool = tool
        self.runtime_keys = runtime_keys

    def stored(self) -> bytes:
        """Everything that is kept anywhere."""
        records = [record for log in self.world.log.records.values() for record in log]
        in_log = b"\n".join((r.key or b"") + (r.value or b"") + repr(r.headers).encode() for r in records)
        self.world.project()
        return in_log + repr(self.world.twin.tables).encode() + b"\n".join(self.world.blobs.blobs.values())

    def events(self) -> list[Any]:
        """Every event of every run."""
        found = []
        for partition in range(PARTITIONS):
            reader = TermReader()
            raws = [reader.read(one.offset, one.value) for one in self.world.log.records[TOPICS.events, partition]]
            found += [raw.decode().record for raw in raws if raw is not None]
        return found

    def put(self, command: Any) -> None:
        """A command as a microservice sends it."""
        key = partition_key(command.run_id)
        value = self.world.codec.encode(command)
        partition = self.layer.publisher.partition_of(key)
        self.world.log.put(TOPICS.commands, partition, [ProducerRecord(key=key.encode(), value=value)])


@contextlib.asynccontextmanager
async def stage(
    model: Any = None, *, agent: AgentDefinition = AGENT, tools: Mapping[str, Tool] | None = None
) -> AsyncIterator[Stage]:
    """`model` instead of a Talker, `tools` beside the one that answers."""
    async with world(owner=False, encrypted=True) as made:
        model, tool = model or Talker(), Answering()
        runtime_keys = made.keys_of_a_process()
        commands = made.log.tail(TOPICS.commands, dict.fromkeys(range(PARTITIONS), 0))
        commands.pause(range(PARTITIONS))
        runtime = SmallRuntime(
            made.log,
            made.log,
            commands,
            partitions=PARTITIONS,
            topics=Topics.of("run"),
            model=model,
            tracing=NO_TRACING,
            name="one",
            secrecy=ContentEncryption(runtime_keys),
            blobs=made.blobs,
            previews_topic=TOPICS.previews,
            tools={"Echo": tool, **(tools or {})},
            agent=agent,
        )
        following = asyncio.create_task(runtime_keys.global_table.follow(made.log.tail(TOPICS.subjects, {0: 0})))
        previews = asyncio.create_task(runtime.previews.run())
        try:
            async with running(runtime):
                made_here = Stage(made, model, tool, runtime_keys, runtime)
                yield made_here
                results = [event.text for event in made_here.events() if isinstance(event, ToolReturned) and event.text]
                assert all(map(has_tokens, results))
                assert not [event for event in made_here.events() if is_in_clear(event)]
        finally:
            following.cancel()
            previews.cancel()


REQUEST = RunRequest(
    agent="helper",
    segments=(
        Segment(
            role="user",
            content=(ContentBlock(type="untrusted-block", kind="web_content", text=f"</web_content>{PAGE}<b>"),),
        ),
        Segment(role="system", content=(ContentBlock(type="trusted-text", text="Mind the rules."),)),
        Segment(role="user", content=(ContentBlock(type="trusted-text", text=f"a {PROMPT}"),)),
    ),
    metadata={"note": META, "number": 7},
    parent_context={"root_agent_run_id": CONTEXT},
)


async def ran(on: Stage, request: RunRequest = REQUEST) -> tuple[str, list[StreamChunk]]:
    accepted = await on.layer.runs.start(IVY, request)
    return accepted.run_id, await pieces_of(accepted.stream)


def told(pieces: list[StreamChunk]) -> str:
    return b"\n".join(piece.data for piece in pieces).decode()


async def test_nothing_that_is_said_lies_anywhere_in_clear_and_its_people_see_all_of_it() -> None:
    async with stage() as on:
        _, pieces = await ran(on)
        text = told(pieces)
        for word in (THOUGHT, SAID, ARGUMENT, RESULT, ANSWER):
            assert word in text
        call = next(orjson.loads(piece.data) for piece in pieces if piece.type == "tool_call")
        result = next(orjson.loads(piece.data) for piece in pieces if piece.type == "tool_result")
        assert call["tool_use"]["input"] == result["tool_use"]["input"] == {"text": ARGUMENT}
        assert "lenc1" not in text
        stored = on.stored()
        assert not [word for word in WORDS if word.encode() in stored]
        assert on.world.blobs.blobs, "the long answer is in the blob store"


async def test_a_model_and_a_tool_are_given_what_was_said() -> None:
    async with stage() as on:
        await ran(on)
        first, second = on.model.requests
        blocks = [block.text for block in first.messages[0].blocks if isinstance(block, TextBlock)]
        assert blocks == [f"<web_content>\n&lt;/web_content>{PAGE}&lt;b>\n</web_content>", f"a {PROMPT}"]
        assert META in first.system[-1].text
        assert second.messages[1].reasoning == f"a {THOUGHT}"
        assert second.messages[1].reasoning_signature == SIGNATURE
        assert "lenc1" not in repr(on.model.requests)
        assert on.tool.calls == [({"text": ARGUMENT}, {"note": f'"{META}"', "number": "7"})]


async def test_every_read_shows_it_in_clear() -> None:
    async with stage() as on:
        run_id, _ = await ran(on)
        row = run_json(await on.layer.queries.run(IVY, run_id), TOPICS.events)
        assert row["metadata"] == {"note": META, "number": 7}
        assert orjson.loads(orjson.dumps(row))["parent_context"] == {"root_agent_run_id": CONTEXT}
        transcript = repr((await on.layer.queries.transcript(IVY, row["session_id"])).rows)
        moment = orjson.dumps(run_at_json(await on.layer.histories.state_at(IVY, run_id, 0))).decode()
        events = await on.layer.audit_log.events(ACME, EventQuery(run_id=run_id))
        views = orjson.dumps([event_json(view) for view in events.events]).decode()
        replayed = told(await pieces_of(await on.layer.queries.stream(IVY, run_id)))
        for shown in (transcript, moment, views):
            assert not [word for word in (PROMPT, PAGE, THOUGHT, SAID, ARGUMENT, RESULT) if word not in shown]
            assert "lenc1" not in shown
        assert PROMPT in replayed
        assert ANSWER in replayed
        again, _ = await ran(on)
        two = await on.layer.histories.compare(IVY, run_id, again)
        # The same was said under other tokens. Only the long answer differs: of what is in the blob store the hash is
        # compared, and no two encryptions have the same.
        assert comparison_json(two)["first"]["place"] == len(two.comparison.steps) - 1


async def test_a_summary_is_encrypted_and_shown_fenced() -> None:
    async with stage() as on:
        accepted = await on.layer.runs.start(IVY, replace(REQUEST, interactive=True))
        await until_type(accepted.stream, "awaiting_input")
        for number in range(2):
            await on.layer.control.post_input(IVY, accepted.run_id, f"{INPUT} {number}")
            await until_type(accepted.stream, "awaiting_input")
        found = await on.layer.compactions.compact(IVY, accepted.run_id)
        assert found.applied == "live"
        asked = repr(on.model.requests[-1].messages)
        assert PAGE in asked
        assert RESULT in asked
        assert "lenc1" not in asked
        shown = await until_type(accepted.stream, "awaiting_input")
        compaction = next(orjson.loads(piece.data) for piece in shown if piece.type == "context_compaction")
        assert compaction["context_compaction"]["summary"] == f"I {SAID} it <b>"
        await on.layer.control.post_input(IVY, accepted.run_id, "and now?")
        await until(lambda: "and now?" in repr(on.model.requests[-1].messages))
        accepted.stream.close()
        first = on.model.requests[-1].messages[0]
        assert f"<summary>\nI {SAID} it &lt;b>\n</summary>" in "".join(
            block.text for block in first.blocks if isinstance(block, TextBlock)
        )
        assert SAID.encode() not in on.stored()


async def test_a_long_text_of_a_person_is_encrypted_where_it_lies_and_the_model_reads_it() -> None:
    long = f"{INPUT} " * 9_000
    async with stage() as on:
        accepted = await on.layer.runs.start(IVY, replace(REQUEST, interactive=True))
        await until_type(accepted.stream, "awaiting_input")
        await on.layer.control.post_input(IVY, accepted.run_id, long)
        shown = await until_type(accepted.stream, "awaiting_input")
        steer = next(orjson.loads(piece.data) for piece in shown if piece.type == "steer")
        assert steer["user_input"]["text"] == long
        assert any(long in repr(message) for message in on.model.requests[-1].messages)
        accepted.stream.close()
        assert INPUT.encode() not in on.stored()


async def test_data_of_a_trigger_is_encrypted_and_shown_fenced() -> None:
    async with stage() as on:
        await ran(on, replace(REQUEST, payload_metadata={"body": f"<b>{META}"}))
        (block,) = [b for b in on.model.requests[0].messages[0].blocks if "run_metadata" in getattr(b, "text", "")]
        assert getattr(block, "text", "") == f'<run_metadata>\n{{\n  "body": "&lt;b>{META}"\n}}\n</run_metadata>'
        assert META.encode() not in on.stored()


async def test_previews_are_encrypted_and_shown_once() -> None:
    async with stage() as on:
        on.model.go_on.clear()
        accepted = await on.layer.runs.start(IVY, REQUEST)
        before = await until_type(accepted.stream, "text")
        on.model.go_on.set()
        pieces = [*before, *await pieces_of(accepted.stream)]
        said = [orjson.loads(piece.data)["text"] for piece in pieces if piece.type == "text"]
        assert said[:2] == [f"I {SAID}", " it"]
        assert on.world.log.records[TOPICS.previews, on.layer.publisher.partition_of(partition_key(accepted.run_id))]
        assert SAID.encode() not in on.stored()


async def test_what_a_microservice_says_in_clear_is_encrypted_before_it_is_decided() -> None:
    async with stage() as on:
        envelope = CommandEnvelope(command_id="c_1", tenant="acme", subject="shop", issued_at_ms=1)
        start = StartRun(
            envelope=envelope,
            agent="helper",
            prompt=PROMPT,
            run_id="r_shop1",
            user_id=USER,
            options=RunOptions(metadata={"note": META}, interactive=True),
        )
        on.put(start)
        stream = await follow(on, "r_shop1")
        await until_type(stream, "awaiting_input")
        on.put(PostInput(envelope=replace(envelope, command_id="c_2"), run_id="r_shop1", text=INPUT))
        await until(lambda: len(on.model.requests) == 3)
        stream.close()
        assert INPUT in repr(on.model.requests[-1].messages)
        fork = ForkRun(
            envelope=replace(envelope, command_id="c_3"),
            origin_run_id="r_shop1",
            at_seq=1,
            run_id="r_shop1-fork",
            prompt=f"fork {ERROR}",
        )
        on.put(fork)
        await until(lambda: ERROR in repr(on.model.requests[-1].messages))
        del on.world.log.records[TOPICS.commands, on.layer.publisher.partition_of("shop1")][:]
        stored = on.stored()
        assert not [word for word in WORDS if word.encode() in stored]


async def test_what_a_person_says_to_a_run_under_way_is_encrypted_before_it_is_sent() -> None:
    async with stage() as on:
        accepted = await on.layer.runs.start(IVY, replace(REQUEST, interactive=True))
        await until_type(accepted.stream, "awaiting_input")
        await on.layer.control.post_input(IVY, accepted.run_id, INPUT)
        pieces = await until_type(accepted.stream, "steer")
        assert INPUT in told(pieces)
        await until(lambda: INPUT in repr(on.model.requests[-1].messages))
        accepted.stream.close()
        assert INPUT.encode() not in on.stored()


async def follow(on: Stage, run_id: str) -> Any:
    await until(lambda: on.layer.hub.recent(run_id))
    return await on.layer.queries.stream(IVY, run_id)


async def test_an_error_that_repeats_what_was_said_is_encrypted_and_shown() -> None:
    async with stage() as on:
        run_id, pieces = await ran(on, replace(REQUEST, prompt="fail", segments=()))
        assert ERROR in told(pieces)
        assert ERROR in (await on.layer.queries.run(IVY, run_id)).error
        assert ERROR.encode() not in on.stored()


async def test_a_token_of_somebody_else_is_opened_nowhere_by_handing_it_in() -> None:
    async with stage() as on:
        theirs = await on.layer.runs.start(ACME, REQUEST)
        await pieces_of(theirs.stream)
        started = on.world.commands()[0]
        token = next(text for text in texts_of_command(started) if text)
        assert RESULT not in token
        request = replace(REQUEST, prompt=token, metadata={"note": token}, segments=(), interactive=True)
        accepted = await on.layer.runs.start(IVY, request)
        pieces = await until_type(accepted.stream, "awaiting_input")
        await on.layer.control.pause(IVY, accepted.run_id, f"because {token}")
        await on.layer.control.cancel(IVY, accepted.agent_id, token)
        pieces += await pieces_of(accepted.stream)
        row = orjson.dumps(run_json(await on.layer.queries.run(IVY, accepted.run_id), TOPICS.events)).decode()
        moment = orjson.dumps(run_at_json(await on.layer.histories.state_at(IVY, accepted.run_id, 0))).decode()
        events = await on.layer.audit_log.events(ACME, EventQuery(run_id=accepted.run_id))
        views = orjson.dumps([event_json(view) for view in events.events]).decode()
        words = [PROMPT, PAGE]
        for shown in (told(pieces), row, moment, views, repr(on.model.requests[-1])):
            assert not [word for word in words if word in shown]
        for refused in (
            on.layer.runs.start(IVY, replace(REQUEST, tools=(token,))),
            on.layer.forks.fork(
                IVY, accepted.run_id, ForkRequest(at_seq=1, overrides={"system_prompt": f"say {token}"})
            ),
        ):
            assert (await declined(refused)).code == "bad_request"


async def test_the_long_prompt_of_an_agent_is_no_content_of_its_users() -> None:
    rules = "Be kind. " * 4_000
    async with stage(agent=replace(AGENT, system_prompt=rules)) as on:
        run_id, _ = await ran(on)
        ref = next(event for event in on.events() if isinstance(event, RunStarted)).definition.system_prompt_blob
        assert ref is not None
        assert [request.system[0].text for request in on.model.requests] == [rules, rules]
        moment = run_at_json(await on.layer.histories.state_at(IVY, run_id, 0))
        assert moment["system"][:2] == [{"blob": ref.to_avro()}, "Mind the rules."]
        report = await on.layer.erasure.report(ADMIN_CALLER, "acme", USER)
        assert (report.findings.blobs_in_clear, report.findings.blobs_encrypted) == (0, 1)
        bundle = gzip.decompress(b"".join([piece async for piece in await on.layer.histories.export(IVY, run_id)]))
        assert base64.b64encode(rules.encode()) in bundle


async def test_a_long_prompt_that_a_fork_brings_lies_nowhere_in_clear() -> None:
    stern = f"say {META}. " * 2_000
    async with stage() as on:
        run_id, _ = await ran(on)
        last = (await on.layer.queries.run(IVY, run_id)).last_seq
        request = ForkRequest(at_seq=last, prompt="go on", overrides={"system_prompt": stern})
        accepted = await on.layer.forks.fork(IVY, run_id, request)
        await pieces_of(accepted.stream)
        assert on.model.requests[-1].system[0].text == stern
        fork = [event for event in on.events() if isinstance(event, RunStarted)][-1]
        assert (fork.definition.system_prompt, fork.definition.system_prompt_blob is None) == ("", False)
        assert META.encode() not in on.stored()


async def test_a_crash_is_told_without_what_it_quotes() -> None:
    async with stage() as on:
        on.tool.crashes = True
        _, pieces = await ran(on)
        assert "the tool Echo crashed: ValueError" in told(pieces)
        assert RESULT.encode() not in on.stored()


async def test_runs_that_name_no_user_are_erased_as_the_tenant_itself() -> None:
    async with stage() as on:
        envelope = CommandEnvelope(command_id="c_1", tenant="acme", subject="shop", issued_at_ms=1)
        on.put(StartRun(envelope=envelope, agent="helper", prompt=PROMPT, run_id="r_shop1"))
        await until(lambda: on.layer.hub.recent("r_shop1"))
        assert PROMPT in told(await pieces_of(await on.layer.queries.stream(ACME, "r_shop1")))
        await ran(on)
        report = await on.layer.erasure.report(ADMIN_CALLER, "acme", TENANT_SUBJECT)
        assert (report.findings.runs, len(report.keys), report.findings.frames_in_clear) == (1, 1, 0)
        await on.layer.erasure.erase(ADMIN_CALLER, "acme", TENANT_SUBJECT)
        assert PROMPT not in told(await pieces_of(await on.layer.queries.stream(ACME, "r_shop1")))
        hers = await on.layer.erasure.report(ADMIN_CALLER, "acme", USER)
        assert [key.erasure for key in hers.keys] == [None]


async def test_an_idempotent_request_is_recognised_although_its_digest_tells_nothing() -> None:
    async with stage() as on:
        request = replace(REQUEST, idempotency_key="k1")
        run_id, _ = await ran(on, request)
        again = await on.layer.runs.start(IVY, request)
        again.stream.close()
        assert (again.run_id, again.is_repeated) == (run_id, True)
        plain = request_digest(check_request(request))
        assert plain.encode() not in on.stored()
        other = await declined(on.layer.runs.start(IVY, replace(request, prompt="else", segments=())))
        assert other.code == "idempotency_key_reused"


async def test_an_idempotent_request_of_before_an_erasure_is_said_to_be_erased() -> None:
    async with stage() as on:
        request = replace(REQUEST, idempotency_key="k1")
        run_id, _ = await ran(on, request)
        last = (await on.layer.queries.run(IVY, run_id)).last_seq
        fork = ForkRequest(at_seq=last, prompt="and now?", idempotency_key="k2")
        forked = await on.layer.forks.fork(IVY, run_id, fork)
        await pieces_of(forked.stream)
        await on.layer.erasure.erase(ADMIN_CALLER, "acme", USER)
        for repeated in (on.layer.runs.start(IVY, request), on.layer.forks.fork(IVY, run_id, fork)):
            found = await declined(repeated)
            assert (found.code, run_id in found.message) == ("content_erased", True)
        assert (
            "use a new key"
            in (await declined(on.layer.runs.start(IVY, replace(request, prompt="else", segments=())))).message
        )
        report = await on.layer.erasure.report(ADMIN_CALLER, "acme", USER)
        assert all(key.erasure for key in report.keys), "nobody gave her a fresh key"
        again = await on.layer.runs.start(IVY, replace(request, idempotency_key="k3"))
        await pieces_of(again.stream)


async def test_forks_and_further_runs_of_a_session_go_on_with_what_was_said() -> None:
    async with stage() as on:
        accepted = await on.layer.runs.start(IVY, REQUEST)
        await pieces_of(accepted.stream)
        last = (await on.layer.queries.run(IVY, accepted.run_id)).last_seq
        fork = await on.layer.forks.fork(IVY, accepted.run_id, ForkRequest(at_seq=last, prompt=f"fork {INPUT}"))
        await pieces_of(fork.stream)
        forked = repr(on.model.requests[-1].messages)
        assert not [word for word in (PROMPT, ARGUMENT, RESULT, ANSWER, INPUT) if word not in forked]
        more = await on.layer.runs.continue_session(IVY, accepted.session_id, RunRequest(prompt="more"))
        await pieces_of(more.stream)
        assert ANSWER in repr(on.model.requests[-1].messages)
        assert not [word for word in WORDS if word.encode() in on.stored()]

        await on.layer.erasure.erase(ADMIN_CALLER, "acme", USER)
        asked = len(on.model.requests)
        for refused in (
            on.layer.forks.fork(IVY, more.run_id, ForkRequest(at_seq=1)),
            on.layer.runs.continue_session(IVY, accepted.session_id, RunRequest(prompt="and now")),
            on.layer.compactions.compact(IVY, more.run_id),
            on.layer.compactions.replay(IVY, accepted.session_id, "helper"),
        ):
            found = await declined(refused)
            assert (found.code, more.run_id in found.message, "(erasure e_" in found.message) == (
                "content_erased",
                True,
                True,
            )
        assert len(on.model.requests) == asked
        report = await on.layer.erasure.report(ADMIN_CALLER, "acme", USER)
        assert all(key.erasure for key in report.keys), "nobody gave her a fresh key"


async def test_who_comes_back_after_an_erasure_goes_on_with_what_is_said_from_then_on() -> None:
    async with stage() as on:
        await ran(on)
        await on.layer.erasure.erase(ADMIN_CALLER, "acme", USER)
        back = await on.layer.runs.start(IVY, REQUEST)
        await pieces_of(back.stream)
        more = await on.layer.runs.continue_session(IVY, back.session_id, RunRequest(prompt="more"))
        await pieces_of(more.stream)
        assert ANSWER in repr(on.model.requests[-1].messages)


async def test_a_state_that_goes_into_a_snapshot_holds_tokens_only() -> None:
    async with stage() as on:
        run_id, _ = await ran(on)
        row = await on.layer.queries.run(IVY, run_id)
        past = EndedAggregates(RunFamily(), on.world.codec, on.world.log, TOPICS.events)
        place = RunPosition(run_id=run_id, first_offset=row.first_offset, last_offset=row.last_offset)
        state = RunFamily.states.encode((await past.load(row.partition, place)).state)
        assert b"lenc1" in state
        assert not [word for word in WORDS if word.encode() in state]


async def test_after_an_erasure_it_is_unreadable_everywhere_and_the_history_is_whole() -> None:
    async with stage() as on:
        run_id, _ = await ran(on)
        proof = await on.layer.histories.replay(IVY, run_id)
        bundle = b"".join([piece async for piece in await on.layer.histories.export(IVY, run_id)])
        assert not [word for word in WORDS if word.encode() in gzip.decompress(bundle)]
        backup = list(on.world.log.records[TOPICS.subjects, 0])
        log_before = on.stored()

        erased = await on.layer.erasure.erase(ADMIN_CALLER, "acme", USER, reason="asked by letter")
        assert erased.report_before.findings.frames_encrypted > 4
        assert (erased.report_before.findings.frames_in_clear, erased.report_before.findings.blobs_in_clear) == (0, 0)
        on.world.log.put(TOPICS.subjects, 0, [ProducerRecord(key=old.key, value=old.value) for old in backup])
        await until(lambda: on.runtime_keys.global_table.next_offset == len(on.world.log.records[TOPICS.subjects, 0]))

        row = run_json(await on.layer.queries.run(IVY, run_id), TOPICS.events)
        assert row["metadata"] == {"note": ERASED, "number": ERASED}
        shown = [
            told(await pieces_of(await on.layer.queries.stream(IVY, run_id))),
            repr((await on.layer.queries.transcript(IVY, row["session_id"])).rows),
            orjson.dumps(run_at_json(await on.layer.histories.state_at(IVY, run_id, 0))).decode(),
        ]
        for text in shown:
            assert ERASED in text
            assert not [word for word in WORDS if word in text]
        after = await on.layer.histories.replay(IVY, run_id)
        assert not after.drift
        assert after.replayed.state_sha256 == proof.replayed.state_sha256
        assert after.replayed.tail_digest == proof.replayed.tail_digest
        assert not replay_bundle(BytesIO(bundle), through_bytes=True, bytes_max=1 << 24).drift
        assert log_before, "nothing was rewritten"
        for keys in (on.world.keys, on.runtime_keys, on.world.keys_of_a_process()):
            assert keys is not None
            await keys.catch_up()
            assert keys.table.current_key("acme", USER) is None


async def test_a_run_under_way_is_cancelled_before_its_key_goes() -> None:
    async with stage() as on:
        on.model.go_on.clear()
        accepted = await on.layer.runs.start(IVY, REQUEST)
        await until_type(accepted.stream, "text")
        erased = await on.layer.erasure.erase(ADMIN_CALLER, "acme", USER)
        assert erased.cancelled == (accepted.run_id,)
        row = await on.layer.queries.run(IVY, accepted.run_id)
        assert (row.status, row.stop_reason) == ("cancelled", "subject erased")
        on.model.go_on.set()
        back, pieces = await ran(on)
        assert ANSWER in told(pieces), "who comes back gets a fresh key"
        assert back != accepted.run_id


async def test_a_start_that_waited_while_its_subject_was_erased_does_not_begin() -> None:
    async with stage() as on:
        await ran(on)
        started = on.world.commands()[0]
        await on.layer.erasure.erase(ADMIN_CALLER, "acme", USER)
        asked = len(on.model.requests)
        late = replace(
            started,
            run_id="r_late",
            session_id="",
            agent_id="",
            envelope=replace(started.envelope, command_id="c_late"),
        )
        on.put(late)
        await until(lambda: any(isinstance(event, RunRefused) for event in on.events()))
        (refused,) = [event for event in on.events() if isinstance(event, RunRefused)]
        assert (refused.code, len(on.model.requests)) == ("content_erased", asked)
        on.world.project()
        report = await on.layer.erasure.report(ADMIN_CALLER, "acme", USER)
        assert all(key.erasure for key in report.keys), "nobody gave her a fresh key"


async def test_only_the_subject_is_erased() -> None:
    async with stage() as on:
        theirs = await on.layer.runs.start(ACME, REQUEST)
        await pieces_of(theirs.stream)
        await ran(on)
        await on.layer.erasure.erase(ADMIN_CALLER, "acme", USER)
        assert await on.layer.erasure.subjects("acme") == [ACME.subject, USER]
        assert RESULT in told(await pieces_of(await on.layer.queries.stream(ACME, theirs.run_id)))


async def test_what_was_said_before_encryption_is_counted_as_not_erasable() -> None:
    async with world() as made:
        accepted = await made.layer.runs.start(IVY, RunRequest(agent="soaker", prompt="in clear"))
        await pieces_of(accepted.stream)
        report = await made.layer.erasure.report(ADMIN_CALLER, "acme", USER)
        assert (report.findings.runs, report.findings.frames_in_clear, report.findings.frames_encrypted) == (1, 2, 0)
        assert not report.is_encrypted
        assert (await declined(made.layer.erasure.erase(ADMIN_CALLER, "acme", USER))).code == "encryption_off"
