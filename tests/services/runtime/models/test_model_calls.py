"""One model call in, one order out, whatever the provider does."""

import asyncio
from typing import Any

import pytest

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.models.pricing import Price
from loomlog.connectors.protocols import Capabilities, ModelItem, Reply, SystemBlock, TextDelta
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.schemas.conversation import Message, TextBlock, ToolResultBlock
from loomlog.schemas.generated.stream_records import ModelDelta
from loomlog.schemas.generated.values import BlobRef, ContentBlock, Sampling, Segment, ToolCall, Usage
from loomlog.schemas.records import replace
from loomlog.services.core.admission import PROVIDER_FULL
from loomlog.services.core.run.commands import ModelAnswered, ModelFailed
from loomlog.services.core.run.react import CallModel
from loomlog.services.core.run.state import AwaitingModel
from loomlog.services.runtime.content.redaction import NO_REDACTION, Redaction
from loomlog.services.runtime.content.run_credentials import NO_CREDENTIALS, Credentials
from loomlog.services.runtime.models.model_calls import ModelCalls, RuntimeProvider
from loomlog.services.runtime.models.previews import Previews
from loomlog.services.runtime.models.provider_keys import NO_KEY, ProviderKey
from loomlog.services.runtime.models.provider_queues import ProviderQueueLimits
from loomlog.services.runtime.telemetry.tracing import NO_TRACING
from loomlog.services.runtime.tools.toolset import ProcessToolset
from tests.services.core.run.given import (
    DEFINITION,
    NOW,
    RUN,
    answered,
    at_tools,
    begun,
    calls,
    erred,
    recover,
    returned,
)
from tests.services.runtime.given import ToldModel, ToldTool, values
from tests.services.stream.given import CODEC

USAGE = Usage(input_tokens=1_000_000, output_tokens=2_000_000, cache_read_input_tokens=10)
REPLY = Reply(
    text="done", stop_reason="end_turn", usage=USAGE, reasoning="hm", reasoning_signature="sig", model="large-2"
)
DELTAS = "deltas"


class Clock:
    """Time that moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.ms = NOW
        self.slept: list[float] = []

    def __call__(self) -> int:
        return self.ms

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.ms += int(seconds * 1000)


class Heard:
    """What is told of models (loomlog.services.runtime.models.availability.AvailabilityTracker), in order."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.paid: list[str] = []

    def on_success(self, provider: str, model: str, *, key: ProviderKey = NO_KEY) -> None:
        self.told.append(f"{provider}/{model} answered")
        self.paid.append(key.source)

    def on_failure(
        self, state: AwaitingModel, order: ModelFailed, *, tenant: str = "", key: ProviderKey = NO_KEY
    ) -> ModelFailed:
        self.told.append(f"{state.provider}/{state.model} {order.kind}")
        return order

    def on_saturated(self, state: AwaitingModel, order: ModelFailed, *, tenant: str = "") -> ModelFailed:
        self.told.append(f"{state.provider}/{state.model} has no place")
        return order


class Work:
    """Model calls with one provider."""

    def __init__(
        self,
        *items: ModelItem | Exception,
        waiting: ProviderQueueLimits | None = None,
        credentials: Credentials = NO_CREDENTIALS,
        redaction: Redaction = NO_REDACTION,
        **provider: Any,
    ) -> None:
        self.model = ToldModel(items=items)
        self.clock = Clock()
        self.blobs = MemoryBlobs()
        self.tool = ToldTool()
        self.heard = Heard()
        self.log = MemoryLog({DELTAS: 1})
        self.previews = Previews(CODEC, self.log, topic=DELTAS, partitions=1, term_of=lambda partition: 7)
        self.calls = ModelCalls(
            {"acme": RuntimeProvider(model=self.model, **provider)},
            prices={("acme", "large"): Price(input=2, output=3, cache_read=1)},
            currency="USD",
            tools=ProcessToolset({"Read": self.tool}),
            blobs=self.blobs,
            previews=self.previews,
            tracing=NO_TRACING,
            clock_ms=self.clock,
            sleep=self.clock.sleep,
            availability=self.heard,  # type: ignore[arg-type]  # it hears the three things calls say
            queue_limits=waiting,
            credentials=credentials,
            mask=redaction.mask_text,
            mask_prefix=redaction.mask_prefix,
        )

    async def run(self, state: Any = None, **effect: Any) -> ModelAnswered | ModelFailed:
        state = state or begun().state
        assert isinstance(state, AwaitingModel)
        return await self.calls.run(replace(effect_of(state), **effect), state)

    async def answered(self, state: Any = None) -> ModelAnswered:
        order = await self.run(state)
        assert isinstance(order, ModelAnswered)
        return order

    async def erred(self, state: Any = None, **effect: Any) -> ModelFailed:
        order = await self.run(state, **effect)
        assert isinstance(order, ModelFailed)
        return order


def effect_of(state: AwaitingModel) -> CallModel:
    return CallModel(
        run_id=RUN,
        turn=state.turn,
        attempt=state.attempt,
        provider=state.provider,
        model=state.model,
        not_before_ms=state.not_before_ms,
    )


# --- answers ---------------------------------------------------------------------------------------------------------


async def test_a_whole_turn_becomes_an_answer_with_everything_the_run_needs() -> None:
    order = await Work(TextDelta(text="do"), TextDelta(text="ne"), REPLY).answered()
    assert (order.text, order.text_blob, order.stop_reason, order.usage) == ("done", None, "end_turn", USAGE)
    assert (order.reasoning, order.reasoning_signature) == ("hm", "sig")
    assert (order.turn, order.attempt, order.at_ms) == (1, 1, NOW)
    assert (order.provider, order.model, order.max_context_tokens) == ("acme", "large-2", 1_000)


async def test_the_window_of_the_model_counts_where_the_provider_says_it() -> None:
    assert (await Work(replace(REPLY, max_context_tokens=16_384)).answered()).max_context_tokens == 16_384


async def test_the_model_that_was_asked_is_named_when_the_provider_says_none() -> None:
    assert (await Work(replace(REPLY, model="")).answered()).model == "large"


async def test_a_turn_costs_what_its_tokens_cost() -> None:
    order = await Work(REPLY).answered()
    assert (order.cost_micros, order.currency) == (2 + 6, "USD")


async def test_a_model_without_a_price_costs_nothing_and_has_no_currency() -> None:
    state = begun(replace(DEFINITION, model="unpriced")).state
    order = await Work(REPLY).answered(state)
    assert (order.cost_micros, order.currency) == (0, "")


async def test_an_answer_that_nobody_counted_has_no_price() -> None:
    order = await Work(replace(REPLY, usage=Usage())).answered()
    assert (order.cost_micros, order.currency) == (0, "")


async def test_each_call_is_classed_by_what_it_would_do() -> None:
    asked = (
        ToolCall(id="a", name="Read", input="{}"),
        ToolCall(id="b", name="Read", input='{"write":true}'),
        ToolCall(id="c", name="Nobody", input="{}"),
        ToolCall(id="d", name="Read", input="not json"),
        ToolCall(id="e", name="Read", input="[" * 100_000),
    )
    order = await Work(replace(REPLY, tool_calls=asked)).answered()
    assert order.tool_calls == asked
    assert order.effect_classes == ("read", "unsafe", "pure", "read", "read")


async def test_a_long_answer_goes_to_the_blob_store() -> None:
    work = Work(replace(REPLY, text="ä" * 40_000))
    order = await work.answered()
    assert order.text == ""
    assert order.text_blob is not None
    assert order.text_blob.size_bytes == 80_000
    assert (await work.blobs.get(order.text_blob)).decode() == "ä" * 40_000


@pytest.mark.parametrize("text", ["x" * 65_536, "ä" * 32_768])
async def test_an_answer_of_just_the_bound_stays_in_the_event(text: str) -> None:
    order = await Work(replace(REPLY, text=text)).answered()
    assert (order.text, order.text_blob) == (text, None)


async def test_what_a_foreign_driver_lets_through_is_made_storable() -> None:
    """The log takes UTF-8 only; half a surrogate pair would stop the run for good."""
    broken = "\ud83d"
    reply = replace(
        REPLY,
        text=f"smile {broken}\ude00 {broken}",
        reasoning=broken,
        tool_calls=(ToolCall(id=broken, name=broken, input=broken),),
    )
    order = await Work(reply).answered()
    assert order.text == "smile \U0001f600 \ufffd"
    assert order.reasoning == "\ufffd"
    assert order.tool_calls == (ToolCall(id="\ufffd", name="\ufffd", input="\ufffd"),)


# --- requests --------------------------------------------------------------------------------------------------------


async def test_the_request_is_what_the_run_is_pinned_to() -> None:
    definition = replace(
        DEFINITION,
        max_tokens=99,
        effort="high",
        sampling=Sampling(seed=1),
        tools=("Read", "Gone"),
        system_prompt="Be kind.",
    )
    work = Work(REPLY)
    await work.run(begun(definition, metadata={"k": "1"}).state)
    request = work.model.requests[0]
    assert (request.call_id, request.model) == (f"{RUN}:1.1", "large")
    assert request.system[0] == SystemBlock(text="Be kind.", cacheable=True)
    assert [block.cacheable for block in request.system] == [True, False]
    assert (request.max_tokens, request.effort, request.sampling) == (99, "high", Sampling(seed=1))
    assert [spec.name for spec in request.tools] == ["Read"]


async def test_only_the_agents_prompt_and_what_its_caller_marked_may_be_cached() -> None:
    segments = [
        Segment(role="system", content=(ContentBlock(type="trusted-text", text="of this hour"),)),
        Segment(
            role="system",
            content=(
                ContentBlock(type="trusted-text", text="rules", cacheable=True),
                ContentBlock(type="untrusted-block", text="a page", cacheable=True),
            ),
        ),
        Segment(role="user", content=(ContentBlock(type="trusted-text", text="go", cacheable=True),)),
    ]
    for prompt, marked in (("Be kind.", [True, False, True, True, False]), ("", [False, True, True, False])):
        work = Work(REPLY)
        definition = replace(DEFINITION, system_prompt=prompt)
        await work.run(begun(definition, prompt="", segments=tuple(segments), metadata={"k": "1"}).state)
        assert [block.cacheable for block in work.model.requests[0].system] == marked


async def test_a_script_keeps_the_tools_of_clients_that_it_names_or_has_called() -> None:
    """It is executed again from its beginning, also after the client has left."""
    granted = replace(DEFINITION, tools=("Read", "client__add", "client__page_*"))
    run = at_tools("client__page_read", "Bash", definition=granted)
    run.give(returned(run.state, 0, "a page"))
    run.give(returned(run.state, 1, "no"))
    for is_script, shown in ((False, ["Read"]), (True, ["Read", "client__add", "client__page_read"])):
        work = Work(REPLY)
        work.model.capabilities = Capabilities(metadata_via_input=is_script)
        await work.run(run.live)
        assert [spec.name for spec in work.model.requests[0].tools] == shown


async def test_the_key_of_a_call_is_another_one_for_each_attempt() -> None:
    work = Work(REPLY)
    await work.run(turn=2, attempt=3)
    assert work.model.requests[0].call_id == f"{RUN}:2.3"


async def test_texts_in_the_blob_store_are_loaded_and_fenced_where_they_have_to_be() -> None:
    work = Work(REPLY)
    long = await work.blobs.put(b"a long <b>result</b>")
    run = at_tools("Read")
    run.give(returned(run.state, 0, "", text_blob=long))
    state = run.live
    assert isinstance(state, AwaitingModel)
    first = replace(state.facts.messages[0], blocks=(TextBlock(text="", blob=long, fence="uploaded_cv"),))
    state = replace(state, facts=replace(state.facts, messages=(first, *state.facts.messages[1:])))
    await work.run(state)
    messages = work.model.requests[0].messages
    assert messages[0].blocks == (
        TextBlock(text="<uploaded_cv>\na long &lt;b>result&lt;/b>\n</uploaded_cv>", fence="uploaded_cv"),
    )
    result = messages[-1].blocks[0]
    assert isinstance(result, ToolResultBlock)
    assert (result.text, result.blob) == ('<tool_output tool="Read">\na long <b>result</b>\n</tool_output>', None)


async def test_a_conversation_without_blobs_is_handed_on_as_it_is() -> None:
    work = Work(REPLY)
    state = begun().state
    assert isinstance(state, AwaitingModel)
    await work.run(state)
    assert work.model.requests[0].messages is state.facts.messages


async def test_a_secret_in_reasoning_is_masked_and_the_signature_that_no_longer_fits_is_left_out() -> None:
    redaction = Redaction({"KEY": "sk-12345"})
    reply = replace(REPLY, text="sk-12345", reasoning="my key is sk-12345")
    order = await Work(reply, redaction=redaction).answered()
    assert order.text == "[redacted:KEY]"
    assert (order.reasoning, order.reasoning_signature) == ("my key is [redacted:KEY]", "")
    order = await Work(replace(reply, reasoning="hm"), redaction=redaction).answered()
    assert (order.reasoning, order.reasoning_signature) == ("hm", "sig")
    blocks = replace(REPLY, reasoning_signature='openai:{"message":{"reasoning_details":["sk-12345"]}}')
    assert (await Work(blocks, redaction=redaction).answered()).reasoning_signature == ""


# --- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "transient", "retry_after_ms"),
    [
        (Transient("acme 429: slow down", kind="rate_limited", status=429, retry_after_s=2.5), True, 2_500),
        (Transient("acme 529: busy", kind="overloaded", status=529), True, 0),
        (Permanent("acme 401: who?", kind="unauthorised", status=401), False, 0),
    ],
)
@pytest.mark.parametrize("after", [(), (TextDelta(text="half an ans"),)], ids=["at once", "in the middle"])
async def test_a_failure_says_what_it_was(
    error: Transient | Permanent, transient: bool, retry_after_ms: int, after: tuple[ModelItem, ...]
) -> None:
    order = await Work(*after, error).erred()
    assert (order.kind, order.transient, order.message) == (error.kind, transient, str(error))
    assert (order.retry_after_ms, order.retries_rate_limits) == (retry_after_ms, True)
    assert (order.turn, order.attempt, order.at_ms) == (1, 1, NOW)


async def test_a_driver_whose_rate_limits_are_not_waited_for_says_so() -> None:
    work = Work(Transient("mock 429: no", kind="rate_limited"), retries_rate_limits=False)
    assert not (await work.erred()).retries_rate_limits


async def test_a_stream_without_a_reply_is_a_failure_worth_another_try() -> None:
    order = await Work(TextDelta(text="hm")).erred()
    assert (order.kind, order.transient) == ("broken_off", True)
    assert "ended without a reply" in order.message


async def test_an_unknown_provider_is_named_with_those_there_are() -> None:
    order = await Work(REPLY).erred(provider="nobody")
    assert (order.kind, order.transient) == ("unsupported", False)
    assert order.message == "nobody: no such provider in this runtime; it has acme"


async def test_a_blob_that_is_gone_is_a_failure_of_the_call() -> None:
    ref = BlobRef(sha256="0" * 64, size_bytes=1)
    run = at_tools("Read")
    run.give(returned(run.state, 0, "", text_blob=ref))
    order = await Work(REPLY).erred(run.state)
    assert (order.kind, order.transient) == ("not_found", False)


async def test_an_answer_that_cannot_be_stored_is_a_failure_of_the_call_and_no_crash() -> None:
    work = Work(replace(REPLY, text="x" * 100_000))

    async def full(data: bytes, media_type: str = "") -> BlobRef:
        raise Transient("blobs: no space left", kind="unavailable")

    work.blobs.put = full  # type: ignore[method-assign]  # the fault is asked for
    order = await work.erred()
    assert (order.kind, order.transient) == ("unavailable", True)


async def test_the_stream_is_closed_however_the_call_ends() -> None:
    for items in ((REPLY,), (Transient("x", kind="network"),), (TextDelta(text="x"),)):
        work = Work(*items)
        await work.run()
        assert work.model.closed == 1


async def test_a_stopped_call_closes_its_stream() -> None:
    work = Work(REPLY)
    work.model.before = asyncio.Event().wait
    task = asyncio.get_running_loop().create_task(work.run())
    while not work.model.requests:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert work.model.closed == 1


# --- waiting ---------------------------------------------------------------------------------------------------------


async def test_a_call_waits_for_its_time_and_no_longer() -> None:
    work = Work(REPLY)
    await work.run(not_before_ms=NOW + 2_500)
    assert work.clock.slept == [2.5]


@pytest.mark.parametrize("not_before_ms", [0, NOW, NOW - 5_000])
async def test_a_call_whose_time_has_come_does_not_wait(not_before_ms: int) -> None:
    work = Work(REPLY)
    await work.run(not_before_ms=not_before_ms)
    assert work.clock.slept == []


async def test_calls_of_one_provider_are_bounded() -> None:
    work = Work(REPLY, max_concurrent=2)
    opened = asyncio.Event()
    work.model.before = opened.wait
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(work.run()) for _ in range(5)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(work.model.requests) == 2
    opened.set()
    await asyncio.wait(tasks, timeout=30)
    assert len(work.model.requests) == 5


async def test_a_call_without_a_place_has_failed_for_now_and_says_nothing_of_the_model() -> None:
    work = Work(REPLY, waiting=ProviderQueueLimits(depth=0, wait_s=0.01), max_concurrent=1)
    opened = asyncio.Event()
    work.model.before = opened.wait
    first = asyncio.get_running_loop().create_task(work.run())
    await asyncio.sleep(0)
    order = await work.erred()
    opened.set()
    await first
    assert (order.kind, order.transient, order.retry_after_ms) == (PROVIDER_FULL, True, 5_000)
    assert work.heard.told == ["acme/large has no place", "acme/large answered"]
    assert len(work.model.requests) == 1


async def test_what_streams_is_previewed_while_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loomlog.services.runtime.models.previews.FLUSH_INTERVAL_S", 0.0)
    work = Work(TextDelta(text="thin", thinking=True), TextDelta(text="do"), REPLY)
    opened = asyncio.Event()
    shown: list[Any] = []
    work.model.before_reply = opened.wait  # the reply waits until the preview was seen
    sending = asyncio.get_running_loop().create_task(work.previews.run())
    calling = asyncio.get_running_loop().create_task(work.run())
    async with asyncio.timeout(30):
        while not shown:
            shown = values(work.log, DELTAS)
            await asyncio.sleep(0)
    opened.set()
    await calling
    sending.cancel()
    await asyncio.wait([sending])
    assert shown == [
        ModelDelta(term=7, run_id=RUN, turn=1, attempt=1, start=0, text="thin", thinking=True),
        ModelDelta(term=7, run_id=RUN, turn=1, attempt=1, start=0, text="do"),
    ]


async def test_an_answer_is_what_the_core_awaits() -> None:
    run = begun()
    order = await Work(replace(REPLY, tool_calls=calls("Read"))).answered(run.state)
    assert order.key == answered(run.state).key
    assert [type(event).__name__ for event in run.give(order)] == ["ModelReplied", "ToolCallRequested"]


async def test_the_next_owner_asks_again_under_the_key_of_the_lost_attempt_and_a_retry_under_another() -> None:
    run, work = begun(definition=replace(DEFINITION, retry_attempts=2)), Work(REPLY)
    keys = []
    for order in (None, recover(), erred(run.state, "overloaded", transient=True, attempt=2), recover()):
        if order is not None:
            run.give(order)
        await work.run(run.state)
        keys.append(work.model.requests[-1].effective_idempotency_key)
    assert keys == [f"{RUN}:1.1", f"{RUN}:1.1", f"{RUN}:1.2", f"{RUN}:1.2"]
    assert len({request.call_id for request in work.model.requests}) == 4


# --- what calls say of the model -------------------------------------------------------------------------------------


async def test_an_answer_and_a_failure_of_the_provider_are_told() -> None:
    work = Work(REPLY)
    await work.answered()
    work.model.items = (Transient("acme 500: no", kind="unavailable", status=500),)
    await work.erred()
    assert work.heard.told == ["acme/large answered", "acme/large unavailable"]


async def test_what_fails_on_our_side_of_the_wire_is_no_matter_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any) -> BlobRef:
        raise Transient("the blob store is away", kind="unavailable")

    work = Work(replace(REPLY, text="x" * 70_000))
    monkeypatch.setattr(work.blobs, "put", away)
    assert (await work.erred()).kind == "unavailable"
    assert work.heard.told == ["acme/large answered"]
    monkeypatch.setattr(work.blobs, "get", away)
    ref = BlobRef(sha256="ab" * 32, size_bytes=1)
    state = begun().state
    assert isinstance(state, AwaitingModel)
    message = Message(role="user", blocks=(TextBlock(text="", blob=ref),))
    assert (await work.erred(replace(state, facts=replace(state.facts, messages=(message,))))).kind == "unavailable"
    assert work.heard.told == ["acme/large answered"]
