"""Carries out model calls: one effect in, one command out.

The request is read off the folded state, blobs are loaded, the stream is read, previews are sent in small groups, and
the outcome (a whole turn, or a typed failure) becomes a command. Nothing is decided here: retries, limits and ends are
up to the core. Calls are bounded for each provider, so that one slow provider cannot take every connection.

Before: react requested CallModel, and the intent is in the log. After: decide with ModelAnswered or ModelFailed.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.json_schema import SchemaRefused
from loomlog.connectors.models.output_tool import read_output
from loomlog.connectors.models.pricing import Price, cost_micros
from loomlog.connectors.output_schema import OutputSchemas
from loomlog.connectors.protocols import (
    Blobs,
    Model,
    ModelRequest,
    Reply,
    ScriptRun,
    SystemBlock,
    TextDelta,
    Tool,
    ToolSpec,
)
from loomlog.connectors.tools.references import mask_credentials
from loomlog.schemas.client_names import TOOL_NAME_PREFIX as CLIENT_PREFIX
from loomlog.schemas.conversation import ToolUseBlock
from loomlog.schemas.generated.values import (
    AgentDefinition,
    InterruptionRequest,
    OutputCheck,
    ToolCall,
    ToolListPin,
    Usage,
)
from loomlog.schemas.records import replace
from loomlog.services.core.admission import PROVIDER_FULL
from loomlog.services.core.run.commands import BudgetExceeded, ModelAnswered, ModelFailed
from loomlog.services.core.run.interrupts import interruptions
from loomlog.services.core.run.limits import FALLBACK_CAUSE_MAX
from loomlog.services.core.run.react import CallModel, Summarise
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import AwaitingModel, Compacting
from loomlog.services.core.run.turns.completion import owes_record
from loomlog.services.families.ports.call_budgets import CallAttempt, CallBudgets, CallReservation, NoBudgets, WorstCase
from loomlog.services.runtime.content.definition_texts import DefinitionTexts
from loomlog.services.runtime.content.encryption import NO_CIPHER, PLAINTEXT, ContentEncryption, NoCipher
from loomlog.services.runtime.content.payloads import fence_results, inline_or_blob, load_messages, make_storable
from loomlog.services.runtime.content.redaction import NO_REDACTION
from loomlog.services.runtime.content.run_credentials import NO_CREDENTIALS, NO_VALUES, Credentials
from loomlog.services.runtime.models import provider_keys
from loomlog.services.runtime.models.availability import AvailabilityTracker
from loomlog.services.runtime.models.context_plugins import ContextPlugins, OutboundConversation
from loomlog.services.runtime.models.partial_output import PartialOutputs
from loomlog.services.runtime.models.previews import Previews
from loomlog.services.runtime.models.provider_keys import NO_KEY, ProviderKey
from loomlog.services.runtime.models.provider_queues import ProviderQueue, ProviderQueueLimits
from loomlog.services.runtime.models.worst_case import DEFAULT_MAX_TOKENS, total_tokens, worst_case
from loomlog.services.runtime.telemetry.tracing import Tracing
from loomlog.services.runtime.tools.approval_verdicts import ApprovalRules, decide_calls
from loomlog.services.stream.encryption.subject_keys import ContentCipher

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeProvider:
    """A configured provider. `retries_rate_limits`: calls wait out its 429s (every driver but the mock)."""

    model: Model
    max_concurrent: int = 0
    """Largest number of concurrent calls; 0 = not configured."""
    is_external: bool = True
    """Whether context plugins and budgets apply; false for code agents, which run here and spend nothing."""
    retries_rate_limits: bool = True
    api_key_env: str = ""
    """Name of the credential that is a key for it; empty = it needs none."""
    has_key: bool = True
    """Whether the operator has a key."""


class Toolset(Protocol):
    """The tools as a model sees them, and the possible effects of their calls."""

    def for_principal(self, tenant: str, subject: str) -> "Toolset":
        """Return the toolset with the tools that clients of that principal offer to its runs."""
        ...

    def grants(self, names: tuple[str, ...], name: str) -> bool: ...
    def specs(self, names: tuple[str, ...]) -> tuple[ToolSpec, ...]: ...
    def effect_class(self, name: str, input_json: str) -> str: ...
    def is_reconcilable(self, name: str) -> bool: ...
    def find(self, name: str) -> Tool | None: ...
    async def prepare(self, tenant: str, names: tuple[str, ...]) -> None: ...
    def shown_lists(self, specs: tuple[ToolSpec, ...]) -> Mapping[str, str]: ...


class ModelCalls:
    """Makes the model calls of all providers."""

    def __init__(
        self,
        providers: Mapping[str, RuntimeProvider],
        *,
        prices: Mapping[tuple[str, str], Price],
        currency: str,
        tools: Toolset,
        blobs: Blobs,
        previews: Previews,
        tracing: Tracing,
        clock_ms: Callable[[], int],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        mask: Callable[[str], str] = str,
        mask_prefix: Callable[[str], tuple[str, str]] = NO_REDACTION.mask_prefix,
        encryption: ContentEncryption = PLAINTEXT,
        budgets: CallBudgets | None = None,
        availability: AvailabilityTracker | None = None,
        plugins: ContextPlugins | None = None,
        queue_limits: ProviderQueueLimits | None = None,
        credentials: Credentials = NO_CREDENTIALS,
        definition_texts: DefinitionTexts | None = None,
    ) -> None:
        """`mask` and `mask_prefix` hide secrets in what goes to the log (services/runtime/content/redaction.py),
        `encryption` encrypts it.

        `availability` receives the outcome of calls and knows the alternatives; without it there is no fallback.
        `plugins` change what is sent to providers (context_plugins.py). `queue_limits` bounds how calls wait for a
        slot. `credentials` that came with runs may be keys for their calls (provider_keys.py).
        """
        self._credentials = credentials
        self._plugins = plugins
        self._availability = availability
        self._mask = mask
        self._mask_prefix = mask_prefix
        self._encryption = encryption
        self.partial_outputs = PartialOutputs(blobs, mask=mask)
        self._budgets = NoBudgets() if budgets is None else budgets
        self._providers = dict(providers)
        self._prices = prices
        self._currency = currency
        self._tools = tools
        self._blobs = blobs
        self.definition_texts = definition_texts or DefinitionTexts(blobs)
        self.approval_rules = ApprovalRules(self.definition_texts)
        self._output_schemas = OutputSchemas()
        self._previews = previews
        self._tracing = tracing
        self._clock_ms = clock_ms
        self._sleep = sleep
        self.queues: Mapping[str, ProviderQueue] = {
            name: ProviderQueue(name, slots=provider.max_concurrent, limits=queue_limits)
            for name, provider in self._providers.items()
        }

    async def run(
        self, effect: CallModel, state: AwaitingModel, tenant: str = ""
    ) -> ModelAnswered | ModelFailed | BudgetExceeded:
        """Make the call and return its outcome as a command for the core. Cancelling it closes the connection."""
        wait_ms = effect.not_before_ms - self._clock_ms() if effect.not_before_ms else 0
        if wait_ms > 0:
            await self._sleep(wait_ms / 1000)
        provider = self._providers.get(effect.provider)
        began = time.monotonic()
        sealer: ContentCipher | NoCipher = NO_CIPHER
        if provider is None:
            return self._build_failure(
                effect, self._unknown_provider(effect.provider), began, sealer, retries_rate_limits=False
            )
        is_with_provider = False
        key = NO_KEY
        user_id = state.facts.user_id
        place = CallAttempt(effect.run_id, str(effect.turn), effect.attempt)
        hold: CallReservation | None = None
        try:
            hold = await self._open_reservation(provider, place, tenant, user_id)
            if self._encryption.is_enabled:
                sealer = await self._encryption.cipher(tenant, user_id)
            rules = await self.approval_rules.load(state.facts.definition)
            if provider.api_key_env:
                key = await self._resolve_key(effect.provider, provider, state.facts, tenant)
            request: ModelRequest | None = None
            if hold is not None:
                request = await self._build_request(provider, effect, state, tenant)
                request, worst = self._with_worst_case(effect.provider, request)
                refused = await hold.reserve(worst)
                if refused is not None:
                    return BudgetExceeded(
                        at_ms=self._clock_ms(), turn=effect.turn, attempt=effect.attempt, notice=refused
                    )
            async with self.queues[effect.provider].slot(tenant, user_id):
                began = time.monotonic()
                if hold is not None:
                    hold.was_sent = True
                with self._tracing.model_call(effect, state) as span:
                    request = request or await self._build_request(provider, effect, state, tenant)
                    request = replace(request, api_key=key.value) if key.value else request
                    tools = self._tools.for_principal(tenant, state.facts.subject)
                    shown = _pins(tools.shown_lists(tuple(request.tools)))
                    is_with_provider = True
                    reply = await self._stream_reply(provider.model, effect, request, sealer)
                    is_with_provider = False
                    span.record_reply(reply)
                if self._availability is not None:
                    self._availability.on_success(effect.provider, effect.model, key=key)
            hold = hold or self._reservation(
                provider, place, tenant, user_id
            )  # the first limit may be newer than the call
            spent_micros, _ = self.cost(effect.provider, effect.model, reply.usage)
            notices = await hold.settle(total_tokens(reply.usage), spent_micros) if hold is not None else ()
            answered = await self._build_answer(
                effect, provider.model, state.facts, request, reply, began, span.traceparent, sealer, key, tools
            )
            if shown:
                answered = replace(answered, tool_lists=shown)
            if rules.policies:
                verdicts, cases = decide_calls(
                    rules, state.facts, tenant, _stored_calls(reply), sealer.text, cost_micros=answered.cost_micros
                )
                answered = replace(answered, verdicts=verdicts, cases=cases)
            return replace(answered, notices=notices) if notices else answered
        except (Transient, Permanent) as error:
            if hold is not None:
                hold.on_failure(error)
            order = self._build_failure(
                effect, error, began, sealer, retries_rate_limits=provider.retries_rate_limits, key=key
            )
            if self._availability is None:
                return order
            if error.kind == PROVIDER_FULL:
                return self._availability.on_saturated(state, order, tenant=tenant)
            # An unavailable blob store, key or budget proves nothing about the model; another model would not help.
            if not is_with_provider:
                return order
            return self._availability.on_failure(state, order, tenant=tenant, key=key)
        finally:
            if hold is not None:
                hold.close()

    async def call_summary_model(
        self, effect: Summarise, request: ModelRequest, state: Compacting, tenant: str
    ) -> tuple[Reply, ProviderKey]:
        """Return one answer outside the turns of a run, without previews, and the key it was made with.

        Raises Transient or Permanent.
        """
        provider = self._providers.get(effect.provider)
        if provider is None:
            raise self._unknown_provider(effect.provider)
        place = CallAttempt(effect.run_id, f"compact.{effect.number}", effect.attempt)
        hold: CallReservation | None = None
        try:
            hold = await self._open_reservation(provider, place, tenant, state.facts.user_id)
            key = await self._resolve_key(effect.provider, provider, state.facts, tenant)
            request = replace(request, api_key=key.value) if key.value else request
            if hold is not None:
                request, worst = self._with_worst_case(effect.provider, request)
                refused = await hold.reserve(worst)
                if refused is not None:
                    raise Permanent(f"token_limit_exceeded: {refused.message}", kind="refused")
            async with self.queues[effect.provider].slot(tenant, state.facts.user_id):
                if hold is not None:
                    hold.was_sent = True
                reply = await self._stream_summary(provider, effect, request, state, tenant)
            if hold is not None:
                await hold.settle(total_tokens(reply.usage), self.cost(effect.provider, effect.model, reply.usage)[0])
            return reply, key
        except (Transient, Permanent) as error:
            if hold is not None:
                hold.on_failure(error)
            raise
        finally:
            if hold is not None:
                hold.close()

    async def _stream_summary(
        self, provider: RuntimeProvider, effect: Summarise, request: ModelRequest, state: Compacting, tenant: str
    ) -> Reply:
        if self._plugins is not None and provider.is_external:
            system = tuple([block.text for block in request.system])
            whole = OutboundConversation(system=system, messages=tuple(request.messages))
            sent = await self._plugins.apply(whole, state.facts, tenant)
            blocks = tuple([SystemBlock(text=text) for text in sent.system])
            request = replace(request, system=blocks, messages=sent.messages)
        with self._tracing.model_call(effect, state) as span:
            async with aclosing(provider.model.stream(request)) as items:  # type: ignore[type-var]  # as below
                async for item in items:
                    if isinstance(item, Reply):
                        span.record_reply(item)
                        return item
        raise Transient(f"{effect.provider}: the stream ended without a reply", kind="broken_off")

    async def _resolve_key(self, name: str, provider: RuntimeProvider, facts: RunFacts, tenant: str) -> ProviderKey:
        """Return the key for a call of the run. Raises ConnectorError: no key, or its store is unavailable."""
        values = NO_VALUES
        if provider.api_key_env in facts.options.credentials:
            values = await self._credentials.load_values(facts, tenant)
            if not values.get(provider.api_key_env):
                # No fallback to the operator's key: a caller who brought a key did not mean to spend another party's
                # money.
                raise Permanent(
                    f"{name}: the credential {provider.api_key_env} that came with the run has expired",
                    kind="refused",
                )
        sources = [provider_keys.run_key_source(facts, values)]
        if provider.api_key_env and not values:
            try:
                stored = await self._credentials.read_stored(facts, tenant, provider.api_key_env, f"model {name}")
            except Permanent as error:  # no fallback, as above
                raise Permanent(f"{name}: {error}", kind="refused", status=error.status) from error
            if stored is not None:
                owner = stored.key
                values_of_owner = {provider.api_key_env: stored.value}
                sources.append(
                    provider_keys.KeySource(source=owner.scope, scope=owner.scope_id or tenant, values=values_of_owner)
                )
        return provider_keys.resolve_key(
            name,
            provider.api_key_env,
            sources,
            operator_has_key=provider.has_key,
            may_use_operator_key=not facts.options.operator_key_restricted,
        )

    async def _open_reservation(
        self, provider: RuntimeProvider, place: CallAttempt, tenant: str, user_id: str
    ) -> CallReservation | None:
        """Open the reservation once every limit that must apply to the run is known. Raises BudgetUnavailable."""
        if provider.is_external:
            await self._budgets.wait_for_limits()
        return self._reservation(provider, place, tenant, user_id)

    def _reservation(
        self, provider: RuntimeProvider, place: CallAttempt, tenant: str, user_id: str
    ) -> CallReservation | None:
        """Return the reservation; None when no limit applies, or nothing can be spent: a script uses no tokens, and a
        reservation for one would only block others from what is left.
        """
        return self._budgets.reservation_for(place, tenant, user_id) if provider.is_external else None

    def _with_worst_case(self, provider: str, request: ModelRequest) -> tuple[ModelRequest, WorstCase]:
        """Return the request with max_tokens set, and the most it may cost."""
        request = replace(request, max_tokens=request.max_tokens or DEFAULT_MAX_TOKENS)
        price = self._prices.get((provider, request.model))
        return request, worst_case(request, price, self._providers[provider].model.capabilities.max_context_tokens)

    def cost(self, provider: str, model: str, usage: Usage) -> tuple[int, str]:
        """Return the cost of an answer in millionths and its currency; 0 and "" without a price or token count."""
        price = self._prices.get((provider, model)) if total_tokens(usage) else None
        return (cost_micros(price, usage), self._currency) if price is not None else (0, "")

    def _unknown_provider(self, provider: str) -> Permanent:
        known = ", ".join(sorted(self._providers)) or "none"
        return Permanent(f"{provider}: no such provider in this runtime; it has {known}", kind="unsupported")

    async def _build_request(
        self, provider: RuntimeProvider, effect: CallModel, state: AwaitingModel, tenant: str
    ) -> ModelRequest:
        facts = state.facts
        system = tuple(
            [text if isinstance(text, str) else await self.definition_texts.load(text) for text in facts.system]
        )
        system = await self._encryption.decrypt_texts(system, tenant)
        messages = await load_messages(facts.messages, self._blobs, self._encryption, tenant)
        if self._plugins is not None and provider.is_external:
            sent = await self._plugins.apply(OutboundConversation(system=system, messages=messages), facts, tenant)
            system, messages = sent.system, sent.messages
        if not provider.model.capabilities.metadata_via_input:
            messages = fence_results(messages)  # a script takes values, so no prompt injection is possible
        definition = facts.definition
        await self._tools.prepare(tenant, definition.tools)
        return ModelRequest(
            call_id=f"{effect.run_id}:{effect.turn}.{effect.attempt}",
            idempotency_key=idempotency_key(effect, state),
            model=effect.model,
            system=tuple([SystemBlock(text=text, cacheable=at in facts.cache_marks) for at, text in enumerate(system)]),
            messages=messages,
            tools=self._visible_tools(provider, facts, tenant),
            max_tokens=definition.max_tokens,
            effort=facts.current_model.effort,
            sampling=definition.sampling,
            output_schema=await self._output_schema(facts),
            script=await self._build_script_run(effect, facts, tenant)
            if provider.model.capabilities.metadata_via_input
            else None,
        )

    async def _output_schema(self, facts: RunFacts) -> Mapping[str, Any] | None:
        """Return the schema of the final answer; None when it is any text. Raises ConnectorError."""
        if not owes_record(facts):
            return None
        blob = facts.definition.output_schema_blob
        text = facts.definition.output_schema if blob is None else await self.definition_texts.load(blob)
        schema: Mapping[str, Any] = orjson.loads(text)
        return schema

    def _visible_tools(self, provider: RuntimeProvider, facts: RunFacts, tenant: str) -> tuple[ToolSpec, ...]:
        """Return the tools that the model is shown.

        A script is executed again from its beginning: tools that it names or has called exist, even when their client
        has left.
        """
        granted = facts.definition.tools
        specs = self._tools.for_principal(tenant, facts.subject).specs(granted)
        if not provider.model.capabilities.metadata_via_input:
            return specs
        blocks = (block for message in facts.messages for block in message.blocks if isinstance(block, ToolUseBlock))
        needed = (*(name for name in granted if not name.endswith("*")), *(block.name for block in blocks))
        there = {spec.name for spec in specs}
        lost = [name for name in dict.fromkeys(needed) if name.startswith(CLIENT_PREFIX) and name not in there]
        return (*specs, *(ToolSpec(name=name, description="", input_schema={"type": "object"}) for name in lost))

    async def _stream_reply(
        self, model: Model, effect: CallModel, request: ModelRequest, cipher: ContentCipher | NoCipher
    ) -> Reply:
        reply: Reply | None = None
        with (
            self._previews.open_preview(effect, cipher.text, self._mask_prefix) as preview,
            self.partial_outputs.track(effect, cipher) as saying,
        ):
            async with aclosing(model.stream(request)) as items:  # type: ignore[type-var]  # drivers are generators
                async for item in items:
                    if isinstance(item, TextDelta):
                        # A record is shown whole: the text of the answer may become another one (read_output).
                        if item.thinking or request.output_schema is None:
                            preview.add(item.text, thinking=item.thinking)
                        if not item.thinking:
                            saying.pieces.append(item.text)
                    else:
                        reply = item
        if reply is None:
            raise Transient(f"{effect.provider}: the stream ended without a reply", kind="broken_off")
        return reply if request.output_schema is None else read_output(reply)

    async def _build_script_run(self, effect: CallModel, facts: RunFacts, tenant: str) -> ScriptRun:
        """Return the run as plaintext values for a script. Raises ConnectorError."""
        definition = facts.definition
        body = definition.code_body
        if definition.code_blob is not None:
            body = await self.definition_texts.load(definition.code_blob)
        return ScriptRun(
            run_id=effect.run_id,
            agent=definition.name,
            user_id=facts.user_id,
            turn=effect.turn,
            started_at_ms=facts.started_at_ms,
            time_left_ms=facts.deadline_ms - self._clock_ms() if facts.deadline_ms else None,
            body=body,
            metadata=await self._encryption.decrypt_values(facts.options.metadata, tenant),
            payload_metadata=await self._encryption.decrypt_values(facts.options.payload_metadata, tenant),
        )

    async def close(self) -> None:
        """Close every provider."""
        for provider in self._providers.values():
            await provider.model.close()

    async def _build_answer(
        self,
        effect: CallModel,
        model: Model,
        facts: RunFacts,
        request: ModelRequest,
        reply: Reply,
        started_at: float,
        traceparent: str,
        cipher: ContentCipher | NoCipher,
        key: ProviderKey,
        tools: Toolset,
    ) -> ModelAnswered:
        answer = make_storable(self._mask(reply.text))
        output = None if reply.tool_calls else self._check_output(facts, request, answer)
        if output is not None and output.result:
            answer = output.result  # what continues the session, and what a parent is given, is the record alone
        text, blob = await inline_or_blob(cipher.text(answer), self._blobs)
        reasoning = self._mask(reply.reasoning)
        # Changed reasoning no longer fits its signature, and providers refuse that; unsigned reasoning is not sent to
        # them. A signature may carry blocks of the provider with text in them, so it is checked for secrets too.
        signature = reply.reasoning_signature
        if reasoning != reply.reasoning or self._mask(signature) != signature or (output and answer != reply.text):
            signature = ""
        spent_micros, currency = self.cost(effect.provider, effect.model, reply.usage)
        calls = _stored_calls(reply)
        return ModelAnswered(
            at_ms=self._clock_ms(),
            turn=effect.turn,
            attempt=effect.attempt,
            text=text,
            text_blob=blob,
            reasoning=cipher.text(make_storable(reasoning)),
            reasoning_signature=cipher.text(signature),
            tool_calls=calls if cipher is NO_CIPHER else tuple([_encrypt_call(call, cipher) for call in calls]),
            effect_classes=tuple([tools.effect_class(call.name, call.input) for call in calls]),
            reconcilable=tuple([tools.is_reconcilable(call.name) for call in calls]),
            interruption_requests=self._interruption_requests(calls, facts.definition, cipher),
            stop_reason=reply.stop_reason,
            usage=reply.usage,
            provider=effect.provider,
            model=reply.model or effect.model,
            max_context_tokens=reply.max_context_tokens or model.capabilities.max_context_tokens,
            cost_micros=spent_micros,
            currency=currency,
            duration_ms=_elapsed_ms(started_at),
            traceparent=traceparent,
            credential_source=key.source,
            credential_scope=key.scope,
            output=output if output is None or cipher is NO_CIPHER else _encrypt_output(output, cipher),
        )

    def _check_output(self, facts: RunFacts, request: ModelRequest, answer: str) -> OutputCheck | None:
        """Return the answer against the output schema of the run; None without one. Raises Permanent."""
        if request.output_schema is None:
            return None
        try:
            return self._output_schemas.check(facts.definition.output_schema_sha256, request.output_schema, answer)
        except SchemaRefused as refused:
            raise Permanent(f"the output schema of the run cannot be used: {refused}", kind="invalid") from refused

    def _interruption_requests(
        self, calls: tuple[ToolCall, ...], definition: AgentDefinition, cipher: ContentCipher | NoCipher
    ) -> tuple[InterruptionRequest, ...]:
        """Return the requests in calls of Interruption, read while the calls are in plaintext."""
        if interruptions.TOOL_NAME not in [call.name for call in calls]:
            return ()
        if not any(spec.name == interruptions.TOOL_NAME for spec in self._tools.specs(definition.tools)):
            return ()  # the agent has no such tool; the call fails like that of any unknown tool
        return tuple(
            [
                self._encrypt_request(interruptions.parse_request(index, call.input), cipher)
                for index, call in enumerate(calls)
                if call.name == interruptions.TOOL_NAME
            ]
        )

    def _encrypt_request(self, request: InterruptionRequest, cipher: ContentCipher | NoCipher) -> InterruptionRequest:
        def kept(text: str) -> str:
            return cipher.text(make_storable(self._mask(text)))

        return replace(
            request,
            problem=kept(request.problem),
            question=kept(request.question),
            options=tuple(map(kept, request.options)),
            context=kept(request.context),
            kind=make_storable(request.kind),
            interrupt_id=make_storable(request.interrupt_id),
        )

    def _build_failure(
        self,
        effect: CallModel,
        error: Transient | Permanent,
        started_at: float,
        cipher: ContentCipher | NoCipher,
        *,
        retries_rate_limits: bool,
        key: ProviderKey = NO_KEY,
    ) -> ModelFailed:
        retry_after_s = error.retry_after_s if isinstance(error, Transient) else None
        place = f"{effect.turn}.{effect.attempt}"
        # The message may quote the conversation, which is encrypted elsewhere.
        log.warning("model call %s of %s/%s failed: %s", place, effect.provider, effect.model, error.kind)
        # The drivers remove the key from their messages; this covers the code around them.
        message = make_storable(mask_credentials((key.value,), self._mask(str(error))))
        return ModelFailed(
            at_ms=self._clock_ms(),
            turn=effect.turn,
            attempt=effect.attempt,
            kind=error.kind,
            transient=isinstance(error, Transient),
            message=cipher.short_text(message),
            retry_after_ms=int((retry_after_s or 0) * 1000),
            retries_rate_limits=retries_rate_limits,
            duration_ms=_elapsed_ms(started_at),
            cause=cipher.short_text(message[:FALLBACK_CAUSE_MAX]),
        )


def _pins(lists: Mapping[str, str]) -> tuple[ToolListPin, ...]:
    return tuple([ToolListPin(server=server, digest=digest) for server, digest in lists.items()])


def _stored_calls(reply: Reply) -> tuple[ToolCall, ...]:
    """Return the calls of a reply as they are executed, in plaintext."""
    return tuple(
        [
            ToolCall(id=make_storable(call.id), name=make_storable(call.name), input=make_storable(call.input))
            for call in reply.tool_calls
        ]
    )


def _encrypt_call(call: ToolCall, cipher: ContentCipher | NoCipher) -> ToolCall:
    return replace(call, input=cipher.text(call.input))


def _encrypt_output(output: OutputCheck, cipher: ContentCipher | NoCipher) -> OutputCheck:
    return OutputCheck(
        result=cipher.text(output.result),
        path=cipher.text(output.path),
        problem=cipher.text(output.problem),
        error=cipher.short_text(output.error),
    )


def idempotency_key(effect: CallModel, state: AwaitingModel) -> str:
    """Return run, turn and the number of the try; attempts lost with their owner do not count.

    The next owner repeats the same try, so that a provider which honours the key answers from memory. After a failure
    that was answered a new try begins: under the old key such a provider would repeat the failure.
    """
    return f"{effect.run_id}:{effect.turn}.{effect.attempt - state.lost_attempts}"


def _elapsed_ms(started_at: float) -> int:
    return int((time.monotonic() - started_at) * 1000)
