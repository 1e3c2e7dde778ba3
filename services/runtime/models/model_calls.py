"""Carries out model calls: one effect in, one order out.

The request is read off the folded state, blobs are loaded, the stream is followed, previews go out in small groups, and
what comes back (a whole turn, or a typed failure) becomes an order. Nothing is decided here: retries, limits and ends
are the core's. Calls are bounded for each provider, so that one slow provider cannot take every connection.

Before: react asked for CallModel, and the intent is in the log. After: decide with ModelAnswered or ModelFailed.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Protocol

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.models.pricing import Price, cost_micros
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
from loomlog.schemas.client_names import TOOL_NAME_PREFIX as CLIENT_PREFIX
from loomlog.schemas.conversation import ToolUseBlock
from loomlog.schemas.generated.values import AgentDefinition, InterruptionWish, ToolCall, Usage
from loomlog.schemas.making import maker
from loomlog.services.core.admission import PROVIDER_FULL
from loomlog.services.core.run.commands import BudgetExceeded, ModelAnswered, ModelFailed
from loomlog.services.core.run.interrupts import interruptions
from loomlog.services.core.run.limits import FALLBACK_CAUSE_MAX
from loomlog.services.core.run.react import CallModel, Summarise
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import AwaitingModel, Compacting
from loomlog.services.runtime.content.encryption import CLEAR, IN_CLEAR, Clear, Secrecy
from loomlog.services.runtime.content.payloads import inline_or_blob, loaded, storable, with_fenced_results
from loomlog.services.runtime.content.redaction import NO_REDACTION, without
from loomlog.services.runtime.content.run_credentials import NO_CREDENTIALS, NOTHING, Credentials
from loomlog.services.runtime.models import provider_keys
from loomlog.services.runtime.models.availability import Availability
from loomlog.services.runtime.models.budget_reservation import (
    MAX_TOKENS_UNSAID,
    Budgets,
    CallPlace,
    Hold,
    NoBudgets,
    Worst,
    tokens_of,
    worst_case,
)
from loomlog.services.runtime.models.context_plugins import ContextPlugins, Outbound
from loomlog.services.runtime.models.partial_output import SoFar
from loomlog.services.runtime.models.previews import Previews
from loomlog.services.runtime.models.provider_keys import NO_KEY, ProviderKey
from loomlog.services.runtime.models.provider_queues import ProviderQueue, Waiting
from loomlog.services.runtime.telemetry.tracing import Tracing
from loomlog.services.stream.encryption.subject_keys import Sealer

# At each call; see schemas/making.py.
_model_request, _system_block = maker(ModelRequest), maker(SystemBlock)
_model_answered, _tool_call = maker(ModelAnswered), maker(ToolCall)


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A configured provider. retries_rate_limits: its 429s are waited for (every driver but the mock)."""

    model: Model
    max_concurrent: int = 0
    """0 = nobody named a bound."""
    is_outside: bool = True
    """Context plugins and budgets apply; not for code agents, which run here and spend nothing."""
    retries_rate_limits: bool = True
    api_key_env: str = ""
    """The name under which a credential is a key for it; empty = it needs none."""
    has_key: bool = True
    """The operator has one."""


class ToolShelf(Protocol):
    """What the tools look like to a model, and what their calls may do."""

    def of(self, tenant: str, subject: str) -> "ToolShelf":
        """With what clients of that principal offer to its runs."""
        ...

    def grants(self, names: tuple[str, ...], name: str) -> bool: ...
    def specs(self, names: tuple[str, ...]) -> tuple[ToolSpec, ...]: ...
    def effect_class(self, name: str, input_json: str) -> str: ...
    def is_reconcilable(self, name: str) -> bool: ...
    def find(self, name: str) -> Tool | None: ...


class ModelCalls:
    """Makes model calls of all providers."""

    def __init__(
        self,
        providers: Mapping[str, Provider],
        *,
        prices: Mapping[tuple[str, str], Price],
        currency: str,
        tools: ToolShelf,
        blobs: Blobs,
        previews: Previews,
        tracing: Tracing,
        clock_ms: Callable[[], int],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        mask: Callable[[str], str] = str,
        mask_beginning: Callable[[str], tuple[str, str]] = NO_REDACTION.beginning,
        secrecy: Secrecy = IN_CLEAR,
        budgets: Budgets | None = None,
        availability: Availability | None = None,
        plugins: ContextPlugins | None = None,
        waiting: Waiting | None = None,
        credentials: Credentials = NO_CREDENTIALS,
    ) -> None:
        """`mask` and `mask_beginning` hide secrets in what goes to the log (redaction.py), `secrecy` encrypts it.

        `availability` is told how calls went and knows what else could be called; without it nothing falls back.
        `plugins` change what providers are sent (context_plugins.py). `waiting` bounds how calls wait for a place.
        `credentials` that came with runs may be keys for their calls (provider_keys.py).
        """
        self._credentials = credentials
        self._plugins = plugins
        self._availability = availability
        self._mask = mask
        self._mask_beginning = mask_beginning
        self._secrecy = secrecy
        self.so_far = SoFar(blobs, mask=mask)
        self._budgets = NoBudgets() if budgets is None else budgets
        self._providers = dict(providers)
        self._prices = prices
        self._currency = currency
        self._tools = tools
        self._blobs = blobs
        self._previews = previews
        self._tracing = tracing
        self._clock_ms = clock_ms
        self._sleep = sleep
        self.queues: Mapping[str, ProviderQueue] = {
            name: ProviderQueue(name, places=provider.max_concurrent, waiting=waiting)
            for name, provider in self._providers.items()
        }

    async def run(
        self, effect: CallModel, state: AwaitingModel, tenant: str = ""
    ) -> ModelAnswered | ModelFailed | BudgetExceeded:
        """The order that tells the core how the call went. Cancelling it closes the connection."""
        wait_ms = effect.not_before_ms - self._clock_ms() if effect.not_before_ms else 0
        if wait_ms > 0:
            await self._sleep(wait_ms / 1000)
        provider = self._providers.get(effect.provider)
        began = time.monotonic()
        sealer: Sealer | Clear = CLEAR
        if provider is None:
            return self._erred(effect, self._unknown(effect.provider), began, sealer, retries_rate_limits=False)
        is_with_provider = False
        key = NO_KEY
        user_id = state.facts.user_id
        place = CallPlace(effect.run_id, str(effect.turn), effect.attempt)
        hold: Hold | None = None
        try:
            hold = await self._first_hold(provider, place, tenant, user_id)
            if self._secrecy.is_on:
                sealer = await self._secrecy.sealer(tenant, user_id)
            if provider.api_key_env:
                key = await self._key(effect.provider, provider, state.facts, tenant)
            request: ModelRequest | None = None
            if hold is not None:
                request = await self._request(provider, effect, state, tenant)
                request, worst = self._worst(effect.provider, request)
                refused = await hold.reserve(worst)
                if refused is not None:
                    return BudgetExceeded(
                        at_ms=self._clock_ms(), turn=effect.turn, attempt=effect.attempt, notice=refused
                    )
            async with self.queues[effect.provider].place(tenant, user_id):
                began = time.monotonic()
                if hold is not None:
                    hold.begun = True
                with self._tracing.model_call(effect, state) as span:
                    request = request or await self._request(provider, effect, state, tenant)
                    request = replace(request, api_key=key.value) if key.value else request
                    is_with_provider = True
                    reply = await self._call(provider.model, effect, request, sealer)
                    is_with_provider = False
                    span.answered(reply)
                if self._availability is not None:
                    self._availability.answered(effect.provider, effect.model, key=key)
            hold = hold or self._hold(provider, place, tenant, user_id)  # the first limit may be younger than the call
            spent_micros, _ = self.cost(effect.provider, effect.model, reply.usage)
            notices = await hold.settle(tokens_of(reply.usage), spent_micros) if hold is not None else ()
            definition = state.facts.definition
            answered = await self._answered(
                effect, provider.model, definition, reply, began, span.traceparent, sealer, key
            )
            return replace(answered, notices=notices) if notices else answered
        except (Transient, Permanent) as error:
            if hold is not None:
                hold.failed(error)
            order = self._erred(effect, error, began, sealer, retries_rate_limits=provider.retries_rate_limits, key=key)
            if self._availability is None:
                return order
            if error.kind == PROVIDER_FULL:
                return self._availability.crowded(state, order)
            # A blob store, a key or a budget that is away says nothing of the model, and is no better at another one.
            return self._availability.erred(state, order, key=key) if is_with_provider else order
        finally:
            if hold is not None:
                hold.close()

    async def ask(
        self, effect: Summarise, request: ModelRequest, state: Compacting, tenant: str
    ) -> tuple[Reply, ProviderKey]:
        """One answer beside the turns of a run, without previews, and the key it was had with.

        Raises Transient or Permanent.
        """
        provider = self._providers.get(effect.provider)
        if provider is None:
            raise self._unknown(effect.provider)
        place = CallPlace(effect.run_id, f"compact.{effect.number}", effect.attempt)
        hold: Hold | None = None
        try:
            hold = await self._first_hold(provider, place, tenant, state.facts.user_id)
            key = await self._key(effect.provider, provider, state.facts, tenant)
            request = replace(request, api_key=key.value) if key.value else request
            if hold is not None:
                request, worst = self._worst(effect.provider, request)
                refused = await hold.reserve(worst)
                if refused is not None:
                    raise Permanent(f"token_limit_exceeded: {refused.message}", kind="refused")
            async with self.queues[effect.provider].place(tenant, state.facts.user_id):
                if hold is not None:
                    hold.begun = True
                reply = await self._summary(provider, effect, request, state, tenant)
            if hold is not None:
                await hold.settle(tokens_of(reply.usage), self.cost(effect.provider, effect.model, reply.usage)[0])
            return reply, key
        except (Transient, Permanent) as error:
            if hold is not None:
                hold.failed(error)
            raise
        finally:
            if hold is not None:
                hold.close()

    async def _summary(
        self, provider: Provider, effect: Summarise, request: ModelRequest, state: Compacting, tenant: str
    ) -> Reply:
        if self._plugins is not None and provider.is_outside:
            system = tuple([block.text for block in request.system])
            whole = Outbound(system=system, messages=tuple(request.messages))
            sent = await self._plugins.applied(whole, state.facts, tenant)
            blocks = tuple([SystemBlock(text=text) for text in sent.system])
            request = replace(request, system=blocks, messages=sent.messages)
        with self._tracing.model_call(effect, state) as span:
            async with aclosing(provider.model.stream(request)) as items:  # type: ignore[type-var]  # as below
                async for item in items:
                    if isinstance(item, Reply):
                        span.answered(item)
                        return item
        raise Transient(f"{effect.provider}: the stream ended without a reply", kind="broken_off")

    async def _key(self, name: str, provider: Provider, facts: RunFacts, tenant: str) -> ProviderKey:
        """What a call of the run is made with. Raises ConnectorError: no key, or its store is away."""
        values = NOTHING
        if provider.api_key_env in facts.credentials:
            values = await self._credentials.of(facts, tenant)
            if not values.get(provider.api_key_env):
                # Not the operator's instead: whoever brought a key did not mean to spend somebody else's money.
                raise Permanent(
                    f"{name}: the credential {provider.api_key_env} that came with the run is gone, its time is over",
                    kind="refused",
                )
        return provider_keys.resolved(
            name,
            provider.api_key_env,
            (provider_keys.of_run(facts, values),),
            operator_has_one=provider.has_key,
            may_use_operators=not facts.operator_key_restricted,
        )

    async def _first_hold(self, provider: Provider, place: CallPlace, tenant: str, user_id: str) -> Hold | None:
        """With every limit known that its run has to be under. Raises BooksAway."""
        if provider.is_outside:
            await self._budgets.caught_up()
        return self._hold(provider, place, tenant, user_id)

    def _hold(self, provider: Provider, place: CallPlace, tenant: str, user_id: str) -> Hold | None:
        """None when no limit applies, or nothing can be spent: a script uses no tokens, and a reservation for one would
        only keep others from what is left."""
        return self._budgets.hold(place, tenant, user_id) if provider.is_outside else None

    def _worst(self, provider: str, request: ModelRequest) -> tuple[ModelRequest, Worst]:
        """The request with a bound, and the most it may cost."""
        request = replace(request, max_tokens=request.max_tokens or MAX_TOKENS_UNSAID)
        price = self._prices.get((provider, request.model))
        return request, worst_case(request, price, self._providers[provider].model.capabilities.max_context_tokens)

    def cost(self, provider: str, model: str, usage: Usage) -> tuple[int, str]:
        """What an answer costs, in millionths, and its currency; 0 and empty without a price, or without a count."""
        price = self._prices.get((provider, model)) if tokens_of(usage) else None
        return (cost_micros(price, usage), self._currency) if price is not None else (0, "")

    def _unknown(self, provider: str) -> Permanent:
        known = ", ".join(sorted(self._providers)) or "none"
        return Permanent(f"{provider}: no such provider in this runtime; it has {known}", kind="unsupported")

    async def _request(self, provider: Provider, effect: CallModel, state: AwaitingModel, tenant: str) -> ModelRequest:
        facts = state.facts
        system = await self._secrecy.texts(facts.system, tenant) if self._secrecy.is_on else facts.system
        messages = await loaded(facts.messages, self._blobs, self._secrecy, tenant)
        if self._plugins is not None and provider.is_outside:
            sent = await self._plugins.applied(Outbound(system=system, messages=messages), facts, tenant)
            system, messages = sent.system, sent.messages
        if not provider.model.capabilities.metadata_via_input:
            messages = with_fenced_results(messages)  # a script takes values, and no text can talk it into anything
        definition = facts.definition
        return _model_request(
            call_id=f"{effect.run_id}:{effect.turn}.{effect.attempt}",
            idempotency_key=idempotency_key(effect, state),
            model=effect.model,
            system=tuple(
                [_system_block(text=text, cacheable=at in facts.cache_marks) for at, text in enumerate(system)]
            ),
            messages=messages,
            tools=self._shown(provider, facts, tenant),
            max_tokens=definition.max_tokens,
            effort=facts.current_model.effort,
            sampling=definition.sampling,
            script=await self._script(effect, facts, tenant)
            if provider.model.capabilities.metadata_via_input
            else None,
        )

    def _shown(self, provider: Provider, facts: RunFacts, tenant: str) -> tuple[ToolSpec, ...]:
        """The tools that the model is shown.

        A script is executed again from its beginning: what it names or has called exists, also when its client left.
        """
        granted = facts.definition.tools
        specs = self._tools.of(tenant, facts.subject).specs(granted)
        if not provider.model.capabilities.metadata_via_input:
            return specs
        blocks = (block for message in facts.messages for block in message.blocks if isinstance(block, ToolUseBlock))
        wanted = (*(name for name in granted if not name.endswith("*")), *(block.name for block in blocks))
        there = {spec.name for spec in specs}
        lost = [name for name in dict.fromkeys(wanted) if name.startswith(CLIENT_PREFIX) and name not in there]
        return (*specs, *(ToolSpec(name=name, description="", input_schema={"type": "object"}) for name in lost))

    async def _call(self, model: Model, effect: CallModel, request: ModelRequest, sealer: Sealer | Clear) -> Reply:
        reply: Reply | None = None
        with (
            self._previews.of(effect, sealer.text, self._mask_beginning) as preview,
            self.so_far.of(effect, sealer) as saying,
        ):
            async with aclosing(model.stream(request)) as items:  # type: ignore[type-var]  # drivers are generators
                async for item in items:
                    if isinstance(item, TextDelta):
                        preview.add(item.text, thinking=item.thinking)
                        if not item.thinking:
                            saying.pieces.append(item.text)
                    else:
                        reply = item
        if reply is None:
            raise Transient(f"{effect.provider}: the stream ended without a reply", kind="broken_off")
        return reply

    async def _script(self, effect: CallModel, facts: RunFacts, tenant: str) -> ScriptRun:
        """The run as values, in clear. Raises ConnectorError."""
        definition = facts.definition
        body = definition.code_body
        if definition.code_blob is not None:
            body = (await self._blobs.get(definition.code_blob)).decode()
        return ScriptRun(
            run_id=effect.run_id,
            agent=definition.name,
            user_id=facts.user_id,
            turn=effect.turn,
            started_at_ms=facts.started_at_ms,
            time_left_ms=facts.deadline_ms - self._clock_ms() if facts.deadline_ms else None,
            body=body,
            metadata=await self._values(facts.metadata, tenant),
            payload_metadata=await self._values(facts.payload_metadata, tenant),
        )

    async def _values(self, values: tuple[tuple[str, str], ...], tenant: str) -> dict[str, str]:
        texts = await self._secrecy.texts(tuple([text for _, text in values]), tenant)
        return dict(zip([name for name, _ in values], texts, strict=True))

    async def close(self) -> None:
        """Closes every provider."""
        for provider in self._providers.values():
            await provider.model.close()

    async def _answered(
        self,
        effect: CallModel,
        model: Model,
        definition: AgentDefinition,
        reply: Reply,
        began: float,
        traceparent: str,
        sealer: Sealer | Clear,
        key: ProviderKey,
    ) -> ModelAnswered:
        text, blob = await inline_or_blob(sealer.text(storable(self._mask(reply.text))), self._blobs)
        reasoning = self._mask(reply.reasoning)
        # Changed reasoning no longer fits its signature, and providers refuse that; without one they are not sent it.
        signature = reply.reasoning_signature if reasoning == reply.reasoning else ""
        spent_micros, currency = self.cost(effect.provider, effect.model, reply.usage)
        calls = tuple(
            [
                _tool_call(id=storable(call.id), name=storable(call.name), input=storable(call.input))
                for call in reply.tool_calls
            ]
        )
        return _model_answered(
            at_ms=self._clock_ms(),
            turn=effect.turn,
            attempt=effect.attempt,
            text=text,
            text_blob=blob,
            reasoning=sealer.text(storable(reasoning)),
            reasoning_signature=sealer.text(signature),
            tool_calls=calls if sealer is CLEAR else tuple([_sealed(call, sealer) for call in calls]),
            effect_classes=tuple([self._tools.effect_class(call.name, call.input) for call in calls]),
            reconcilable=tuple([self._tools.is_reconcilable(call.name) for call in calls]),
            interruption_requests=self._wishes(calls, definition, sealer),
            stop_reason=reply.stop_reason,
            usage=reply.usage,
            provider=effect.provider,
            model=reply.model or effect.model,
            max_context_tokens=reply.max_context_tokens or model.capabilities.max_context_tokens,
            cost_micros=spent_micros,
            currency=currency,
            duration_ms=_since_ms(began),
            traceparent=traceparent,
            credential_source=key.source,
            credential_scope=key.scope,
        )

    def _wishes(
        self, calls: tuple[ToolCall, ...], definition: AgentDefinition, sealer: Sealer | Clear
    ) -> tuple[InterruptionWish, ...]:
        """What calls of Interruption ask for, read off while they are in clear."""
        if interruptions.TOOL_NAME not in [call.name for call in calls]:
            return ()
        if not any(spec.name == interruptions.TOOL_NAME for spec in self._tools.specs(definition.tools)):
            return ()  # the agent has no such tool, and hears that as of any other
        return tuple(
            [
                self._kept_wish(interruptions.parse_request(index, call.input), sealer)
                for index, call in enumerate(calls)
                if call.name == interruptions.TOOL_NAME
            ]
        )

    def _kept_wish(self, wish: InterruptionWish, sealer: Sealer | Clear) -> InterruptionWish:
        def kept(text: str) -> str:
            return sealer.text(storable(self._mask(text)))

        return replace(
            wish,
            problem=kept(wish.problem),
            question=kept(wish.question),
            options=tuple(map(kept, wish.options)),
            context=kept(wish.context),
            kind=storable(wish.kind),
            interrupt_id=storable(wish.interrupt_id),
        )

    def _erred(
        self,
        effect: CallModel,
        error: Transient | Permanent,
        began: float,
        sealer: Sealer | Clear,
        *,
        retries_rate_limits: bool,
        key: ProviderKey = NO_KEY,
    ) -> ModelFailed:
        retry_after_s = error.retry_after_s if isinstance(error, Transient) else None
        # The drivers cut the key out of what they say; this is for whatever stands around them.
        message = storable(without((key.value,), self._mask(str(error))))
        return ModelFailed(
            at_ms=self._clock_ms(),
            turn=effect.turn,
            attempt=effect.attempt,
            kind=error.kind,
            transient=isinstance(error, Transient),
            message=sealer.short(message),
            retry_after_ms=int((retry_after_s or 0) * 1000),
            retries_rate_limits=retries_rate_limits,
            duration_ms=_since_ms(began),
            cause=sealer.short(message[:FALLBACK_CAUSE_MAX]),
        )


def _sealed(call: ToolCall, sealer: Sealer | Clear) -> ToolCall:
    return replace(call, input=sealer.text(call.input))


def idempotency_key(effect: CallModel, state: AwaitingModel) -> str:
    """Run, turn and the number of the try, in which attempts lost with their owner do not count.

    The next owner asks for the same try, so that a provider which honours the key answers from memory. A failure that
    was answered begins a new try: under the old key such a provider would repeat the failure.
    """
    return f"{effect.run_id}:{effect.turn}.{effect.attempt - state.lost_attempts}"


def _since_ms(began: float) -> int:
    return int((time.monotonic() - began) * 1000)
