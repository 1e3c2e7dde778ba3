"""Carries out tool calls: one effect in, one order out.

A tool is looked up, its arguments parsed, its call bounded in time and number, and whatever happens becomes a result
the model sees: an unknown tool, bad arguments, a time-out, an error of the outside. Only being stopped ends a call
without a result. Hooks (hooks.py) look at calls before they are made and at what they gave; a call that nobody looks at
costs one look at an empty table more.

Before: react asked for CallTool. After: decide with ToolCompleted.
"""

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.protocols import (
    Blobs,
    ChildrenPlan,
    NoEffect,
    Reconciler,
    Tool,
    ToolContext,
    ToolResult,
    UnknownEffect,
    VolumeBinding,
)
from loomlog.schemas.generated.values import HookAct
from loomlog.services.core.hooks import HookedResult
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import (
    CANNOT_TELL,
    DID_NOT_HAPPEN,
    FAILED,
    HAPPENED,
    ChildrenRequested,
    ToolCompleted,
    ToolReconciled,
)
from loomlog.services.core.run.react import CallTool, ReconcileTool
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import OUTCOME_UNKNOWN, AwaitingTools
from loomlog.services.core.run.subagents.delegation import Delegation, compose_result
from loomlog.services.core.run.tools.unknown_outcome import find_call_of_turn
from loomlog.services.runtime.content.encryption import CLEAR, IN_CLEAR, Clear, Secrecy
from loomlog.services.runtime.content.payloads import inline_or_blob, storable
from loomlog.services.runtime.content.redaction import without
from loomlog.services.runtime.content.run_credentials import NO_CREDENTIALS, NOTHING, Credentials
from loomlog.services.runtime.models.model_calls import ToolShelf
from loomlog.services.runtime.telemetry.tracing import Tracing
from loomlog.services.runtime.tools.hooks import Chain, HookedCall, Hooks
from loomlog.services.runtime.tools.tool_context import ToolContexts
from loomlog.services.runtime.tools.tool_result import DENIED, Returned, ToolResults, as_result, error_result
from loomlog.services.stream.encryption.subject_keys import Sealer

NO_ARGUMENTS = ("", "{}")
"""Arguments that need no parser, which takes a microsecond each time."""
ASK_SLACK_S = 10.0
"""Over the time of a call, for a tool that is asked what became of one: it may wait until a little after that time."""
Called = TypeVar("Called", CallTool, ReconcileTool)


class ToolCalls:
    """Runs tools. `parallelism` bounds the calls of one turn, 1 to 64; `volumes` are this process's folders."""

    def __init__(
        self,
        tools: ToolShelf,
        *,
        volumes: Mapping[str, VolumeBinding],
        operator_hosts: tuple[str, ...],
        parallelism: int,
        blobs: Blobs,
        tracing: Tracing,
        clock_ms: Callable[[], int],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        mask: Callable[[str], str] = str,
        secrecy: Secrecy = IN_CLEAR,
        hooks: Hooks | None = None,
        credentials: Credentials = NO_CREDENTIALS,
        mask_results: Callable[[str], str] | None = None,
        callers_choose_hosts: bool = False,
    ) -> None:
        """`mask` and `mask_results` as ToolResults takes them, `callers_choose_hosts` as ToolContexts; `secrecy`
        encrypts what goes to the log."""
        self._hooks = hooks
        self._credentials = credentials
        self._secrecy = secrecy
        self._tools = tools
        self._contexts = ToolContexts(
            tools, volumes=volumes, operator_hosts=operator_hosts, callers_choose_hosts=callers_choose_hosts
        )
        self._results = ToolResults(blobs=blobs, clock_ms=clock_ms, mask=mask, mask_results=mask_results)
        self._parallelism = parallelism
        self._blobs = blobs
        self._tracing = tracing
        self._clock_ms = clock_ms
        self._sleep = sleep
        self._slots: OrderedDict[str, asyncio.Semaphore] = OrderedDict()
        self._in_use: dict[str, int] = {}

    async def run(self, effect: CallTool, state: AwaitingTools, tenant: str) -> ToolCompleted | ChildrenRequested:
        """The order that tells the core how the call went."""
        # Before the call: afterwards nothing may come between its result and the log.
        sealer: Sealer | Clear = CLEAR
        if self._secrecy.is_on:
            sealer = await self._secrecy.sealer(tenant, state.facts.user_id)
            effect, state = await self._opened(effect, state, tenant)
        opened = find_call_of_turn(state, effect.turn, effect.index)
        if opened is not None and opened.delegation is not None:
            return await self._gathered(effect, state, opened.delegation, sealer, tenant)
        # By the name of the method: a look at a runtime protocol takes 10 microseconds.
        tool: Any = self._tools.find(effect.name)
        if hasattr(tool, "plan") and effect.name in self._contexts.granted(state.facts, tenant):
            return await self._planned(effect, state, tool, sealer, tenant)
        if len(state.requested_calls) <= self._parallelism:
            called = await self._called(effect, state, tenant)  # all calls of the turn fit at once
        else:
            slot = self._slots.setdefault(effect.run_id, asyncio.Semaphore(self._parallelism))
            self._in_use[effect.run_id] = self._in_use.get(effect.run_id, 0) + 1
            try:
                async with slot:
                    called = await self._called(effect, state, tenant)
            finally:
                self._in_use[effect.run_id] -= 1
                if self._in_use[effect.run_id] == 0:
                    del self._in_use[effect.run_id], self._slots[effect.run_id]
        return await self._results.done(effect, called, sealer)

    async def _planned(
        self, effect: CallTool, state: AwaitingTools, tool: Any, sealer: Sealer | Clear, tenant: str
    ) -> ToolCompleted | ChildrenRequested:
        """What a call wants of sub-agents, after the hooks before it; nothing of it is done here."""
        arguments: Mapping[str, Any] | None = None
        try:
            arguments = json.loads(effect.input or "{}")
        except (ValueError, RecursionError):
            arguments = None
        if not isinstance(arguments, dict):
            return await self._results.done(
                effect, error_result(f"the arguments of {effect.name} must be a JSON object"), sealer
            )
        acts: Sequence[HookAct] = ()
        chain = self._chain(effect, state.facts, tenant)
        if chain is not None and self._hooks is not None:
            call = _hooked_call(effect, state, tenant, effect_class=effect.effect_class)
            before = await self._hooks.before(chain, call, arguments, lambda given: tool.effect_class(given).value)
            acts, arguments = before.acts, dict(before.input)
            if before.denied is not None:
                denied = Returned(result=as_result(before.denied), outcome=DENIED, acts=acts)
                return await self._results.done(effect, await self._after(chain, call, arguments, denied), sealer)
        wanted = tool.plan(arguments)
        if not isinstance(wanted, ChildrenPlan):
            return await self._results.done(effect, Returned(result=wanted, outcome="error", acts=acts), sealer)
        return ChildrenRequested(
            at_ms=self._clock_ms(),
            turn=effect.turn,
            index=effect.index,
            attempt=effect.attempt,
            op=wanted.op,
            spawns=tuple(
                [replace(spawn, prompt=sealer.text(self._results.masked(spawn.prompt))) for spawn in wanted.spawns]
            ),
            child_run_id=storable(wanted.child_run_id),
            prompt=sealer.text(self._results.masked(wanted.prompt)),
            timeout_ms=wanted.timeout_ms,
            idle_ttl_s=wanted.idle_ttl_s,
            residents_max=wanted.residents_max or limits.RESIDENTS_MAX,
            is_sealed=self._secrecy.is_on,
            is_looked_at=chain is not None and bool(chain.post),
            hook_acts=self._results.told(acts, sealer),
        )

    async def _gathered(
        self, effect: CallTool, state: AwaitingTools, wanted: Delegation, sealer: Sealer | Clear, tenant: str
    ) -> ToolCompleted:
        """The result of a call whose children have all returned, for results the core cannot put together."""
        try:
            texts = [
                await self._secrecy.text(
                    child.text if child.blob is None else (await self._blobs.get(child.blob)).decode(), tenant
                )
                for child in wanted.children
            ]
        except ConnectorError as error:
            failed = error_result(f"the sub-agents returned, but their results cannot be read: {error}")
            return await self._results.done(effect, failed, sealer)
        text, is_error = compose_result(wanted, texts)
        returned = Returned(result=ToolResult(text=text, is_error=is_error), outcome="error" if is_error else "ok")
        chain = self._chain(effect, state.facts, tenant)
        if chain is not None:
            call = _hooked_call(effect, state, tenant, effect_class=effect.effect_class)
            returned = await self._after(chain, call, parsed(effect.input), returned)
        returned.duration_ms = max(0, self._clock_ms() - wanted.began_at_ms)
        return await self._results.done(effect, returned, sealer)

    async def reconcile(self, effect: ReconcileTool, state: AwaitingTools, tenant: str) -> ToolReconciled:
        """The order that tells the core what the tool knows of a lost call. Whatever goes wrong is `failed`."""
        wait_ms = effect.not_before_ms - self._clock_ms()
        if effect.not_before_ms and wait_ms > 0:
            await self._sleep(wait_ms / 1000)
        began = time.monotonic()
        blob, is_error = None, False
        acts: Sequence[HookAct] = ()
        values = NOTHING
        sealer = await self._secrecy.sealer(tenant, state.facts.user_id)
        effect, state = await self._opened(effect, state, tenant)
        try:
            values = await self._credentials.of(state.facts, tenant)
            answer = await self._asked(effect, state.facts, tenant, values)
            match answer:
                case ToolResult():
                    told = HookedResult(text=self._results.kept(answer.text, values), is_error=answer.is_error)
                    told, acts = await self._looked_at(effect, state, tenant, told)
                    verdict, is_error = HAPPENED, told.is_error
                    text, blob = await inline_or_blob(sealer.text(storable(self._results.kept(told.text))), self._blobs)
                case NoEffect(reason=reason):
                    verdict, text = DID_NOT_HAPPEN, sealer.short(storable(self._results.kept(reason, values)))
                case UnknownEffect(reason=reason):
                    verdict, text = CANNOT_TELL, sealer.short(storable(self._results.kept(reason, values)))
        except TimeoutError:
            verdict, text = FAILED, f"{effect.name} did not say in time what became of the call"
        except ConnectorError as error:
            verdict, text = FAILED, sealer.short(storable(self._results.kept(str(error), values)))
        return ToolReconciled(
            at_ms=self._clock_ms(),
            turn=effect.turn,
            index=effect.index,
            attempt=effect.attempt,
            ask=effect.ask,
            verdict=verdict,
            text=text,
            text_blob=blob,
            is_error=is_error,
            duration_ms=int((time.monotonic() - began) * 1000),
            hook_acts=self._results.told(acts, sealer) if acts else (),
        )

    async def _opened(self, effect: Called, state: AwaitingTools, tenant: str) -> tuple[Called, AwaitingTools]:
        """The call with its arguments, and the run with its metadata, in clear. Raises ConnectorError."""
        if not self._secrecy.is_on:
            return effect, state
        names, values = zip(*state.facts.metadata, strict=True) if state.facts.metadata else ((), ())
        metadata = tuple(zip(names, await self._secrecy.texts(values, tenant), strict=True))
        opened = replace(effect, input=await self._secrecy.text(effect.input, tenant))
        return opened, replace(state, facts=replace(state.facts, metadata=metadata))

    async def _asked(
        self, effect: ReconcileTool, facts: RunFacts, tenant: str, credentials: Mapping[str, str]
    ) -> ToolResult | NoEffect | UnknownEffect:
        tool: Tool | None = self._contexts.shelf(facts, tenant).find(effect.name)
        if tool is None or not isinstance(tool, Reconciler):
            return UnknownEffect(reason=f"this process has no tool {effect.name} that could be asked")
        granted = self._contexts.granted(facts, tenant)
        context = replace(self._contexts.context(effect, facts, tenant, granted), credentials=credentials)
        async with asyncio.timeout(tool.timeout_s + ASK_SLACK_S):
            return await tool.reconcile(parsed(effect.input), context)

    # --- hooks -------------------------------------------------------------------------------------------------------

    def _chain(self, effect: Called, facts: RunFacts, tenant: str) -> Chain | None:
        return None if self._hooks is None else self._hooks.chain(tenant, facts.definition.name, effect.name)

    async def _looked_at(
        self, effect: ReconcileTool, state: AwaitingTools, tenant: str, result: HookedResult
    ) -> tuple[HookedResult, Sequence[HookAct]]:
        """What a tool remembers of a lost call, after the hooks that look at results.

        They are told the input as the model wrote it: what a pre hook made of it was lost with the attempt.
        """
        chain = self._chain(effect, state.facts, tenant)
        if chain is None or self._hooks is None:
            return result, ()
        call = _hooked_call(effect, state, tenant, effect_class="")
        return await self._hooks.after(chain, call, parsed(effect.input), result)

    async def _called(self, effect: CallTool, state: AwaitingTools, tenant: str) -> Returned:
        began = time.monotonic()
        with self._tracing.tool_call(effect, state) as span:
            returned = await self._bounded(effect, state, tenant)
            span.returned(returned.outcome)
        returned.duration_ms = int((time.monotonic() - began) * 1000)
        return returned

    async def _bounded(self, effect: CallTool, state: AwaitingTools, tenant: str) -> Returned:
        """The policy floor, then the hooks around the tool."""
        facts = state.facts
        shelf = self._contexts.shelf(facts, tenant)
        tool = shelf.find(effect.name)
        granted = self._contexts.granted(facts, tenant)
        if tool is None or not shelf.grants(facts.definition.tools, effect.name):
            return error_result(f"tool not found: {effect.name}")
        try:
            arguments = json.loads(effect.input) if effect.input not in NO_ARGUMENTS else {}
        except (ValueError, RecursionError) as error:
            return error_result(f"the arguments of {effect.name} are not JSON: {error}")
        if not isinstance(arguments, dict):
            return error_result(f"the arguments of {effect.name} must be a JSON object")
        context = self._contexts.context(effect, facts, tenant, granted)
        chain = self._chain(effect, facts, tenant)
        if chain is None or self._hooks is None:
            return await self._made(tool, arguments, context, facts, tenant)
        call = _hooked_call(effect, state, tenant, effect_class=effect.effect_class)
        before = await self._hooks.before(chain, call, arguments, lambda given: tool.effect_class(given).value)
        if before.denied is not None:
            returned = Returned(result=as_result(before.denied), outcome=DENIED)
        else:
            if before.hosts:
                hosts = (*context.allowed_hosts, *before.hosts)
                context = replace(context, allowed_hosts=tuple(dict.fromkeys(hosts)))
            returned = await self._made(tool, before.input, context, facts, tenant)
        returned.acts = before.acts
        return await self._after(chain, call, before.input, returned)

    async def _after(self, chain: Chain, call: HookedCall, given: Mapping[str, Any], returned: Returned) -> Returned:
        """What a call gave, as the hooks after it leave it."""
        assert self._hooks is not None
        before = HookedResult(text=self._results.kept(returned.result.text), is_error=returned.result.is_error)
        left, acts = await self._hooks.after(chain, call, given, before)
        returned.acts = [*returned.acts, *acts]
        if left != before:
            returned.result = replace(returned.result, text=left.text, is_error=left.is_error)
            returned.outcome = "error" if left.is_error else "ok"
        return returned

    async def _made(
        self, tool: Tool, arguments: Mapping[str, Any], context: ToolContext, facts: RunFacts, tenant: str
    ) -> Returned:
        """The call itself, within its time. Secrets of the run are masked in what it gives."""
        try:
            if facts.credentials:
                # Without them no call is made: an echo of one could not be masked.
                context = replace(context, credentials=await self._credentials.of(facts, tenant))
            async with asyncio.timeout(tool.timeout_s):
                result = await tool.call(arguments, context)
        except TimeoutError:
            text = f"{tool.name} did not return within {tool.timeout_s:g} s and was stopped"
            return Returned(result=ToolResult(text=text, is_error=True), outcome="timeout")
        except ConnectorError as error:
            result = ToolResult(text=str(error), is_error=True)
        if context.credentials:
            result = replace(result, text=without(context.credentials.values(), result.text))
        if result.is_unknown:
            return Returned(result=result, outcome=OUTCOME_UNKNOWN)
        return Returned(result=result, outcome="error" if result.is_error else "ok")


def _hooked_call(
    effect: CallTool | ReconcileTool, state: AwaitingTools, tenant: str, *, effect_class: str
) -> HookedCall:
    facts = state.facts
    return HookedCall(
        tenant=tenant,
        agent=facts.definition.name,
        user_id=facts.user_id,
        agent_id=facts.agent_id,
        run_id=effect.run_id,
        session_id=facts.session_id,
        turn=effect.turn,
        index=effect.index,
        attempt=effect.attempt,
        call_id=state.requested_calls[effect.index].id,
        name=effect.name,
        effect_class=effect_class,
    )


def parsed(input_json: str) -> Mapping[str, Any]:
    """The arguments of a call as far as they can be read; empty when they cannot."""
    if input_json in NO_ARGUMENTS:
        return {}
    try:
        arguments = json.loads(input_json)
    except (ValueError, RecursionError):
        return {}
    return arguments if isinstance(arguments, dict) else {}
