"""Carries out tool calls: one effect in, one command out.

A tool is looked up, its arguments parsed, its call bounded in time and number, and every outcome becomes a result that
the model sees: an unknown tool, bad arguments, a timeout, an error from outside. Only cancellation ends a call without
a result. Hooks check calls before they are made, and their results; a call without hooks costs only one look-up in an
empty table.

Before: react requested CallTool. After: services/families/ports/tool_hooks.py; decide with ToolCompleted.
"""

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.protocols import (
    Blobs,
    CallQuestion,
    CallWait,
    ChildrenPlan,
    EffectClass,
    GivenAnswer,
    NoEffect,
    Reconciler,
    Tool,
    ToolContext,
    ToolResult,
    UnknownEffect,
    UsesStoredCredentials,
    VolumeBinding,
)
from loomlog.connectors.tools import read
from loomlog.connectors.tools.references import mask_credentials
from loomlog.connectors.tools.registry import describe_unknown_tool
from loomlog.schemas.conversation import ToolResultBlock
from loomlog.schemas.generated.values import HookAct, ToolCall
from loomlog.schemas.records import replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import (
    CANNOT_TELL,
    DID_NOT_HAPPEN,
    FAILED,
    HAPPENED,
    CallAsks,
    CallWaits,
    ChildrenRequested,
    ToolCompleted,
    ToolReconciled,
)
from loomlog.services.core.run.react import CallTool, ReconcileTool
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import OUTCOME_UNKNOWN, AwaitingTools
from loomlog.services.core.run.subagents.delegation import Delegation, compose_result
from loomlog.services.core.run.tools.result_size import OFFSET, result_bytes_max
from loomlog.services.core.run.tools.unknown_outcome import find_call_of_turn
from loomlog.services.core.shares import ShareExhausted
from loomlog.services.families.ports.made_volumes import MadeVolumes
from loomlog.services.families.ports.tool_hooks import HookChain, HookedCall, HookedResult, ToolHooks
from loomlog.services.runtime.content.encryption import NO_CIPHER, PLAINTEXT, ContentEncryption, NoCipher
from loomlog.services.runtime.content.payloads import make_storable
from loomlog.services.runtime.content.run_credentials import NO_CREDENTIALS, NO_VALUES, Credentials
from loomlog.services.runtime.models.model_calls import Toolset
from loomlog.services.runtime.run.context import MakeResult
from loomlog.services.runtime.telemetry.tracing import Tracing
from loomlog.services.runtime.tools.approval_verdicts import HOOK_CHANGED, ApprovalRules, denies_changed_call
from loomlog.services.runtime.tools.call_order import CallOrder
from loomlog.services.runtime.tools.tool_context import ToolContextFactory
from loomlog.services.runtime.tools.tool_result import (
    DENIED,
    ResultLimit,
    ToolCallResult,
    ToolResultBuilder,
    error_result,
    to_tool_result,
)
from loomlog.services.runtime.tools.tool_slots import ToolCallSlots
from loomlog.services.stream.encryption.subject_keys import ContentCipher

EMPTY_ARGUMENTS = ("", "{}")
"""Arguments that need no parser; parsing takes a microsecond each time."""
RECONCILE_GRACE_S = 10.0
"""Seconds added to the timeout of a call for a tool that reconciles one: it may wait until a little after that time."""
OUTCOME_WAIT_S = 30.0
"""Seconds to find out what became of a write that did not return within its timeout: an owner that was lost is replaced
within this time, and the model waits for it.
"""
WITHOUT_EFFECT = frozenset({EffectClass.PURE, EffectClass.READ})
"""Effect classes of calls that a timeout ends; of any other the outcome is not known then."""
ToolOutcome = ToolCompleted | CallWaits | CallAsks | ChildrenRequested
"""Commands with the outcome of a call."""
ToolEffect = TypeVar("ToolEffect", CallTool, ReconcileTool)


class ToolCalls:
    """Runs tools. `parallelism` bounds the calls of one turn, 1 to 64; `volumes` are this process's folders."""

    def __init__(
        self,
        tools: Toolset,
        *,
        volumes: Mapping[str, VolumeBinding],
        operator_hosts: tuple[str, ...],
        parallelism: int,
        blobs: Blobs,
        tracing: Tracing,
        clock_ms: Callable[[], int],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        mask: Callable[[str], str] = str,
        encryption: ContentEncryption = PLAINTEXT,
        hooks: ToolHooks | None = None,
        credentials: Credentials = NO_CREDENTIALS,
        mask_results: Callable[[str], str] | None = None,
        callers_choose_hosts: bool = False,
        made_volumes: MadeVolumes | None = None,
        slots: ToolCallSlots | None = None,
        approval_rules: ApprovalRules | None = None,
    ) -> None:
        """Without `approval_rules` no call of a run with rules is made whose arguments a hook has changed.

        `mask` and `mask_results` as in ToolResultBuilder, `callers_choose_hosts` and `made_volumes` as in
        ToolContextFactory; `encryption` encrypts what goes to the log.
        """
        self._hooks = hooks
        self._approval_rules = approval_rules
        self._credentials = credentials
        self._encryption = encryption
        self._tools = tools
        self._contexts = ToolContextFactory(
            tools,
            volumes=volumes,
            operator_hosts=operator_hosts,
            callers_choose_hosts=callers_choose_hosts,
            made_volumes=made_volumes,
        )
        self._results = ToolResultBuilder(blobs=blobs, clock_ms=clock_ms, mask=mask, mask_results=mask_results)
        self._parallelism = parallelism
        self._blobs = blobs
        self._tracing = tracing
        self._clock_ms = clock_ms
        self._sleep = sleep
        self._order = CallOrder()
        self._call_slots = slots or ToolCallSlots()
        self._slots: OrderedDict[str, asyncio.Semaphore] = OrderedDict()
        self._in_use: dict[str, int] = {}

    async def run(self, effect: CallTool, state: AwaitingTools, tenant: str) -> ToolOutcome:
        """Make the call and return its outcome as a command for the core."""
        if getattr(self._tools.find(effect.name), "is_ordered", False):
            async with self._order.turn(effect.run_id, effect.turn):
                return await self._run(effect, state, tenant)
        return await self._run(effect, state, tenant)

    async def _run(self, effect: CallTool, state: AwaitingTools, tenant: str) -> ToolOutcome:
        # Resolved before the call: afterwards nothing may come between its result and the log.
        sealer: ContentCipher | NoCipher = NO_CIPHER
        if self._encryption.is_enabled:
            sealer = await self._encryption.cipher(tenant, state.facts.user_id)
            effect, state = await self._decrypt(effect, state, tenant)
        opened = find_call_of_turn(state, effect.turn, effect.index)
        if opened is not None and opened.delegation is not None:
            return await self._compose_children(effect, state, opened.delegation, sealer, tenant)
        # Checked by method name: an isinstance check of a runtime protocol takes 10 microseconds.
        tool: Any = self._tools.find(effect.name)
        if hasattr(tool, "plan") and effect.name in self._contexts.granted_tools(state.facts, tenant):
            return await self._plan_children(effect, state, tool, sealer, tenant)
        if len(state.requested_calls) <= self._parallelism:
            called = await self._call_traced(effect, state, tenant)  # all calls of the turn fit within the bound
        else:
            slot = self._slots.setdefault(effect.run_id, asyncio.Semaphore(self._parallelism))
            self._in_use[effect.run_id] = self._in_use.get(effect.run_id, 0) + 1
            try:
                async with slot:
                    called = await self._call_traced(effect, state, tenant)
            finally:
                self._in_use[effect.run_id] -= 1
                if self._in_use[effect.run_id] == 0:
                    del self._in_use[effect.run_id], self._slots[effect.run_id]
        if called.result.waiting is not None:
            return self._waits(effect, called.result.waiting, called.acts, sealer)
        if called.result.asking is not None:
            return self._asks(effect, called.result.asking, called.acts, sealer)
        return await self._results.build(effect, called, sealer, self._result_limit(effect, state, tenant))

    def _waits(
        self, effect: CallTool, wait: CallWait, acts: Sequence[HookAct], cipher: ContentCipher | NoCipher
    ) -> CallWaits:
        """Return the command for a call that waits: nothing is kept of it here."""
        return CallWaits(
            at_ms=self._clock_ms(),
            turn=effect.turn,
            index=effect.index,
            attempt=effect.attempt,
            wait_id=wait.wait_id,
            until_ms=wait.until_ms,
            queues=wait.queues,
            mode=wait.mode,
            needed=wait.needed,
            hook_acts=self._results.encrypt_acts(acts, cipher),
        )

    def _asks(
        self, effect: CallTool, question: CallQuestion, acts: Sequence[HookAct], cipher: ContentCipher | NoCipher
    ) -> CallAsks:
        """Return the command for a call whose tool asks a person first."""

        def stored(text: str) -> str:
            return cipher.text(make_storable(self._results.mask_text(text)))

        return CallAsks(
            at_ms=self._clock_ms(),
            turn=effect.turn,
            index=effect.index,
            attempt=effect.attempt,
            question=stored(question.question),
            context=stored(question.context),
            options=tuple(map(stored, question.options)),
            call_state=cipher.text(question.call_state),
            timeout_ms=question.timeout_ms,
            is_held=question.is_held,
            hook_acts=self._results.encrypt_acts(acts, cipher),
        )

    async def _answers_of(self, effect: CallTool, state: AwaitingTools, tenant: str) -> tuple[GivenAnswer, ...]:
        """Return what people have answered to questions of a call, in plaintext. Raises ConnectorError."""
        opened = find_call_of_turn(state, effect.turn, effect.index)
        if opened is None or not opened.answers:
            return ()
        return tuple(
            [
                GivenAnswer(
                    call_state=await self._encryption.decrypt_text(one.call_state, tenant),
                    status=one.status,
                    answer=await self._encryption.decrypt_text(one.answer, tenant),
                    is_held=one.is_held,
                )
                for one in opened.answers
            ]
        )

    async def complete(self, effect: CallTool, state: AwaitingTools, tenant: str, make: MakeResult) -> ToolCompleted:
        """Return the outcome of a call that waited, whose result is now made; as of a call, with its post hooks.

        They receive the input as the model wrote it. Raises ConnectorError; the call goes on to wait then.
        """
        cipher = await self._encryption.cipher(tenant, state.facts.user_id)
        effect, state = await self._decrypt(effect, state, tenant)
        facts = state.facts
        values = await self._credentials.load_values(facts, tenant)
        result = await make(ToolCall(id=effect.call_id, name=effect.name, input=effect.input), facts)
        if values:
            result = replace(result, text=mask_credentials(values.values(), result.text))
        returned = ToolCallResult(result=result, outcome="error" if result.is_error else "ok")
        chain = self._find_hook_chain(effect, facts, tenant)
        if chain is not None:
            call = _build_hooked_call(effect, state, tenant, effect_class=effect.effect_class)
            returned = await self._run_post_hooks(chain, call, parse_arguments(effect.input), returned)
        return await self._results.build_stored(effect, returned, cipher, self._result_limit(effect, state, tenant))

    async def _plan_children(
        self, effect: CallTool, state: AwaitingTools, tool: Any, cipher: ContentCipher | NoCipher, tenant: str
    ) -> ToolCompleted | ChildrenRequested:
        """Return the sub-agents that a call requests, after its pre hooks; nothing is started here."""
        limit = self._result_limit(effect, state, tenant)
        arguments: Mapping[str, Any] | None = None
        try:
            arguments = json.loads(effect.input or "{}")
        except (ValueError, RecursionError):
            arguments = None
        if not isinstance(arguments, dict):
            return await self._results.build(
                effect, error_result(f"the arguments of {effect.name} must be a JSON object"), cipher, limit
            )
        acts: Sequence[HookAct] = ()
        chain = self._find_hook_chain(effect, state.facts, tenant)
        if chain is not None:
            call = _build_hooked_call(effect, state, tenant, effect_class=effect.effect_class)
            before = await chain.run_pre_hooks(call, arguments, lambda changed: tool.effect_class(changed).value)
            acts, asked, arguments = before.acts, arguments, dict(before.input)
            if before.denial is not None:
                denied = ToolCallResult(result=to_tool_result(before.denial), outcome=DENIED, acts=acts)
                return await self._results.build(
                    effect, await self._run_post_hooks(chain, call, arguments, denied), cipher, limit
                )
            denial = await self._rule_denial(effect, state, tenant, asked, arguments)
            if denial:
                refused = ToolCallResult(result=ToolResult(text=denial, is_error=True), outcome=DENIED, acts=acts)
                return await self._results.build(effect, refused, cipher, limit)
        plan = tool.plan(arguments)
        if not isinstance(plan, ChildrenPlan):
            refused = ToolCallResult(result=plan, outcome="error", acts=acts)
            return await self._results.build(effect, refused, cipher, limit)
        return ChildrenRequested(
            at_ms=self._clock_ms(),
            turn=effect.turn,
            index=effect.index,
            attempt=effect.attempt,
            op=plan.op,
            spawns=tuple(
                [replace(spawn, prompt=cipher.text(self._results.mask_text(spawn.prompt))) for spawn in plan.spawns]
            ),
            child_run_id=make_storable(plan.child_run_id),
            prompt=cipher.text(self._results.mask_text(plan.prompt)),
            timeout_ms=plan.timeout_ms,
            idle_ttl_s=plan.idle_ttl_s,
            residents_max=plan.residents_max or limits.RESIDENTS_MAX,
            is_sealed=self._encryption.is_enabled,
            is_looked_at=chain is not None and chain.sees_results,
            hook_acts=self._results.encrypt_acts(acts, cipher),
        )

    async def _compose_children(
        self, effect: CallTool, state: AwaitingTools, plan: Delegation, cipher: ContentCipher | NoCipher, tenant: str
    ) -> ToolCompleted:
        """Return the result of a call whose children have all returned, for results that the core cannot compose."""
        try:
            texts = [
                await self._encryption.decrypt_text(
                    child.text if child.blob is None else (await self._blobs.get(child.blob)).decode(), tenant
                )
                for child in plan.children
            ]
        except ConnectorError as error:
            failed = error_result(f"the sub-agents returned, but their results cannot be read: {error}")
            return await self._results.build(effect, failed, cipher, ResultLimit())
        text, is_error = compose_result(plan, texts)
        returned = ToolCallResult(
            result=ToolResult(text=text, is_error=is_error), outcome="error" if is_error else "ok"
        )
        chain = self._find_hook_chain(effect, state.facts, tenant)
        if chain is not None:
            call = _build_hooked_call(effect, state, tenant, effect_class=effect.effect_class)
            returned = await self._run_post_hooks(chain, call, parse_arguments(effect.input), returned)
        returned.duration_ms = max(0, self._clock_ms() - plan.began_at_ms)
        return await self._results.build(effect, returned, cipher, self._result_limit(effect, state, tenant))

    async def reconcile(self, effect: ReconcileTool, state: AwaitingTools, tenant: str) -> ToolReconciled:
        """Ask the tool about a lost call; return the answer as a command. Any error becomes `failed`."""
        wait_ms = effect.not_before_ms - self._clock_ms()
        if effect.not_before_ms and wait_ms > 0:
            await self._sleep(wait_ms / 1000)
        began = time.monotonic()
        blob = whole = None
        is_error = False
        acts: Sequence[HookAct] = ()
        values = NO_VALUES
        sealer = await self._encryption.cipher(tenant, state.facts.user_id)
        effect, state = await self._decrypt(effect, state, tenant)
        try:
            values = await self._credentials.load_values(state.facts, tenant)
            answer = await self._ask_reconciler(effect, state.facts, tenant, values)
            match answer:
                case ToolResult():
                    result = HookedResult(
                        text=self._results.mask_and_truncate(answer.text, values), is_error=answer.is_error
                    )
                    result, acts = await self._apply_post_hooks(effect, state, tenant, result)
                    verdict, is_error = HAPPENED, result.is_error
                    stored = await self._results.store(result.text, sealer, self._result_limit(effect, state, tenant))
                    text, blob, whole = stored.text, stored.blob, stored.whole
                case NoEffect(reason=reason):
                    verdict, text = (
                        DID_NOT_HAPPEN,
                        sealer.short_text(make_storable(self._results.mask_and_truncate(reason, values))),
                    )
                case UnknownEffect(reason=reason):
                    verdict, text = (
                        CANNOT_TELL,
                        sealer.short_text(make_storable(self._results.mask_and_truncate(reason, values))),
                    )
        except TimeoutError:
            verdict, text = FAILED, f"{effect.name} did not report in time what happened to the call"
        except ConnectorError as error:
            verdict, text = (
                FAILED,
                sealer.short_text(make_storable(self._results.mask_and_truncate(str(error), values))),
            )
        return ToolReconciled(
            at_ms=self._clock_ms(),
            turn=effect.turn,
            index=effect.index,
            attempt=effect.attempt,
            ask=effect.ask,
            verdict=verdict,
            text=text,
            text_blob=blob,
            whole_blob=whole,
            is_error=is_error,
            duration_ms=int((time.monotonic() - began) * 1000),
            hook_acts=self._results.encrypt_acts(acts, sealer) if acts else (),
        )

    def _result_limit(self, effect: CallTool | ReconcileTool, state: AwaitingTools, tenant: str) -> ResultLimit:
        """Return how much of the model's window the result may take, and how the model gets the rest."""
        bytes_max = result_bytes_max(state.facts, len(state.requested_calls))
        if not bytes_max:
            return ResultLimit()

        def hint() -> str:
            if read.NAME not in self._contexts.granted_tools(state.facts, tenant):
                return "ask for less at a time"
            call_id = effect.call_id if isinstance(effect, CallTool) else state.requested_calls[effect.index].id
            return f'{read.NAME} with path "{read.RESULT_PREFIX}{call_id}" and offset {OFFSET} returns them, in parts'

        return ResultLimit(bytes_max=bytes_max, hint=hint)

    async def _load_result(self, call_id: str, facts: RunFacts, tenant: str) -> str | None:
        """Return the whole result of an earlier call of the conversation; None when there is none of that id. Raises
        ConnectorError.
        """
        for message in reversed(facts.messages):
            for block in message.blocks:
                if isinstance(block, ToolResultBlock) and block.tool_use_id == call_id:
                    ref = block.whole or block.blob
                    stored = block.text if ref is None else (await self._blobs.get(ref)).decode()
                    return await self._encryption.decrypt_text(stored, tenant)
        return None

    async def _decrypt(self, effect: ToolEffect, state: AwaitingTools, tenant: str) -> tuple[ToolEffect, AwaitingTools]:
        """Return the call with its arguments, and the run with its metadata, in plaintext. Raises ConnectorError."""
        if not self._encryption.is_enabled:
            return effect, state
        options = state.facts.options
        options = replace(options, metadata=await self._encryption.decrypt_values(options.metadata, tenant))
        opened = replace(effect, input=await self._encryption.decrypt_text(effect.input, tenant))
        return opened, replace(state, facts=replace(state.facts, options=options))

    async def _ask_reconciler(
        self, effect: ReconcileTool, facts: RunFacts, tenant: str, credentials: Mapping[str, str]
    ) -> ToolResult | NoEffect | UnknownEffect:
        tool: Tool | None = self._contexts.toolset(facts, tenant).find(effect.name)
        if tool is None or not isinstance(tool, Reconciler):
            return UnknownEffect(reason=f"this process has no tool {effect.name} that could be asked")
        granted = self._contexts.granted_tools(facts, tenant)
        context = replace(self._contexts.build_context(effect, facts, tenant, granted), credentials=credentials)
        async with asyncio.timeout(tool.timeout_s + RECONCILE_GRACE_S):
            return await tool.reconcile(parse_arguments(effect.input), context)

    # --- hooks -------------------------------------------------------------------------------------------------------

    def _find_hook_chain(self, effect: ToolEffect, facts: RunFacts, tenant: str) -> HookChain | None:
        return None if self._hooks is None else self._hooks.find_chain(tenant, facts.definition.name, effect.name)

    async def _apply_post_hooks(
        self, effect: ReconcileTool, state: AwaitingTools, tenant: str, result: HookedResult
    ) -> tuple[HookedResult, Sequence[HookAct]]:
        """Return what a tool reports of a lost call, after the post hooks.

        They receive the input as the model wrote it: the changes of a pre hook were lost with the attempt.
        """
        chain = self._find_hook_chain(effect, state.facts, tenant)
        if chain is None:
            return result, ()
        call = _build_hooked_call(effect, state, tenant, effect_class="")
        return await chain.run_post_hooks(call, parse_arguments(effect.input), result)

    async def _call_traced(self, effect: CallTool, state: AwaitingTools, tenant: str) -> ToolCallResult:
        began = time.monotonic()
        with self._tracing.tool_call(effect, state) as span:
            returned = await self._call_with_hooks(effect, state, tenant)
            span.record_outcome(returned.outcome)
        returned.duration_ms = int((time.monotonic() - began) * 1000)
        return returned

    async def _call_with_hooks(self, effect: CallTool, state: AwaitingTools, tenant: str) -> ToolCallResult:
        """Apply the policy floor, then call the tool with its pre and post hooks."""
        facts = state.facts
        shelf = self._contexts.toolset(facts, tenant)
        tool = shelf.find(effect.name)
        granted = self._contexts.granted_tools(facts, tenant)
        if tool is None or not shelf.grants(facts.definition.tools, effect.name):
            return error_result(describe_unknown_tool(effect.name, granted))
        try:
            arguments = json.loads(effect.input) if effect.input not in EMPTY_ARGUMENTS else {}
        except (ValueError, RecursionError) as error:
            return error_result(f"the arguments of {effect.name} are not JSON: {error}")
        if not isinstance(arguments, dict):
            return error_result(f"the arguments of {effect.name} must be a JSON object")
        context = self._contexts.build_context(effect, facts, tenant, granted)
        if answers := await self._answers_of(effect, state, tenant):
            context = replace(context, answers=answers)
        if effect.name == read.NAME:
            context = replace(
                context,
                result_bytes_max=result_bytes_max(facts, len(state.requested_calls)),
                earlier_result=lambda call_id: self._load_result(call_id, facts, tenant),
            )
        chain = self._find_hook_chain(effect, facts, tenant)
        if chain is None:
            return await self._call_tool(tool, arguments, context, facts, tenant)
        call = _build_hooked_call(effect, state, tenant, effect_class=effect.effect_class)
        before = await chain.run_pre_hooks(call, arguments, lambda changed: tool.effect_class(changed).value)
        denial = await self._rule_denial(effect, state, tenant, arguments, before.input)
        if before.denial is not None:
            returned = ToolCallResult(result=to_tool_result(before.denial), outcome=DENIED)
        elif denial:
            returned = ToolCallResult(result=ToolResult(text=denial, is_error=True), outcome=DENIED)
        else:
            if before.added_hosts:
                hosts = (*context.allowed_hosts, *before.added_hosts)
                context = replace(context, allowed_hosts=tuple(dict.fromkeys(hosts)))
            returned = await self._call_tool(tool, before.input, context, facts, tenant)
        returned.acts = before.acts
        return await self._run_post_hooks(chain, call, before.input, returned)

    async def _rule_denial(
        self, effect: CallTool, state: AwaitingTools, tenant: str, asked: Mapping[str, Any], changed: Mapping[str, Any]
    ) -> str:
        """Return why a call that a hook has changed is not made; empty when it is."""
        definition = state.facts.definition
        if not definition.approvals or asked == changed:
            return ""
        if self._approval_rules is None:
            return HOOK_CHANGED
        try:
            rules = await self._approval_rules.load(definition)
        except ConnectorError as error:
            return f"{HOOK_CHANGED}, and the rules cannot be read: {error}"
        return denies_changed_call(rules, state, tenant, effect.index, effect.name, json.dumps(changed))

    async def _run_post_hooks(
        self, chain: HookChain, call: HookedCall, arguments: Mapping[str, Any], returned: ToolCallResult
    ) -> ToolCallResult:
        """Return the result of a call as its post hooks leave it. A call that waits has none yet."""
        if returned.result.waiting is not None or returned.result.asking is not None:
            return returned
        before = HookedResult(
            text=self._results.mask_and_truncate(returned.result.text), is_error=returned.result.is_error
        )
        left, acts = await chain.run_post_hooks(call, arguments, before)
        returned.acts = [*returned.acts, *acts]
        if left != before:
            returned.result = replace(returned.result, text=left.text, is_error=left.is_error)
            returned.outcome = "error" if left.is_error else "ok"
        return returned

    async def _find_outcome(
        self, tool: Tool, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolResult | NoEffect | UnknownEffect:
        """Return what became of a write that did not return in time. Its tool is asked when it can tell; one that may
        be called again with the same key returns what it has done, or does it now.
        """
        try:
            async with asyncio.timeout(OUTCOME_WAIT_S):
                if isinstance(tool, Reconciler):
                    return await tool.reconcile(arguments, context)
                if tool.effect_class(arguments) is EffectClass.IDEMPOTENT:
                    return await tool.call(arguments, replace(context, attempt=context.attempt + 1))
        except (TimeoutError, ConnectorError) as error:
            return UnknownEffect(reason=str(error) or f"Nothing more was heard within {OUTCOME_WAIT_S:g} s")
        return UnknownEffect(reason="")

    async def _call_tool(
        self, tool: Tool, arguments: Mapping[str, Any], context: ToolContext, facts: RunFacts, tenant: str
    ) -> ToolCallResult:
        """Call the tool, with its timeout. Secrets of the run are masked in the result."""
        try:
            # Without the credentials the call is not made: an echo of one could not be masked.
            stored = tool.credential_references if isinstance(tool, UsesStoredCredentials) else ()
            values = await self._credentials.load_values(facts, tenant, stored, f"tool {tool.name}")
            if values:
                context = replace(context, credentials=values)
            async with self._call_slots.turn(tool, tenant, facts.user_id), asyncio.timeout(tool.timeout_s):
                result = await tool.call(arguments, context)
        except ShareExhausted as error:
            return error_result(f"{tool.name} was not called: {error}")
        except TimeoutError:
            text = f"{tool.name} did not return within {tool.timeout_s:g} s"
            if tool.effect_class(arguments) in WITHOUT_EFFECT:
                result = ToolResult(text=f"{text} and was stopped", is_error=True)
                return ToolCallResult(result=result, outcome="timeout")
            answer = await self._find_outcome(tool, arguments, context)
            if isinstance(answer, NoEffect):
                result = ToolResult(text=f"{text}, was stopped and had no effect. {answer.reason}", is_error=True)
                return ToolCallResult(result=result, outcome="timeout")
            result = answer if isinstance(answer, ToolResult) else _unknown_result(text, answer)
        except ConnectorError as error:
            result = ToolResult(text=str(error), is_error=True)
        if context.credentials:
            result = _mask_result(result, context.credentials.values())
        if result.is_unknown:
            return ToolCallResult(result=result, outcome=OUTCOME_UNKNOWN)
        return ToolCallResult(result=result, outcome="error" if result.is_error else "ok")


def _mask_result(result: ToolResult, secrets: Iterable[str]) -> ToolResult:
    """Return a result, or a question, with the credentials of its run masked."""
    secrets = tuple(secrets)
    asked = result.asking
    if asked is not None:
        question, context = (mask_credentials(secrets, text) for text in (asked.question, asked.context))
        return replace(result, asking=replace(asked, question=question, context=context))
    return replace(result, text=mask_credentials(secrets, result.text))


def _unknown_result(text: str, answer: UnknownEffect) -> ToolResult:
    """Return the result of a call that did not return in time: to stop it does not undo what it has begun."""
    reason = f" {answer.reason}." if answer.reason else ""
    text = (
        f"outcome unknown: {text}, and may have had its effect, or have it still.{reason} Check before you repeat it."
    )
    return ToolResult(text=text, is_error=True, is_unknown=True)


def _build_hooked_call(
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


def parse_arguments(input_json: str) -> Mapping[str, Any]:
    """Return the arguments of a call as far as they can be parsed; empty when they cannot."""
    if input_json in EMPTY_ARGUMENTS:
        return {}
    try:
        arguments = json.loads(input_json)
    except (ValueError, RecursionError):
        return {}
    return arguments if isinstance(arguments, dict) else {}
