"""Carries out tool calls: one effect in, one order out.

A tool is looked up, its arguments parsed, its call bounded in time and number, and whatever happens becomes a result
the model sees: an unknown tool, bad arguments, a time-out, an error of the outside. Only being stopped ends a call
without a result. Before: react asked for CallTool. After: decide with ToolDone.
"""

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from connectors.errors import OutsideError
from connectors.protocols import (
    Blobs,
    CannotTell,
    ChildrenWanted,
    DidNotHappen,
    Planner,
    Reconciler,
    Tool,
    ToolContext,
    ToolResult,
    VolumeBinding,
)
from services.core.run.delegation import Delegation, result
from services.core.run.orders import (
    CANNOT_TELL,
    DID_NOT_HAPPEN,
    FAILED,
    HAPPENED,
    ChildrenAsked,
    Reconciled,
    ToolDone,
)
from services.core.run.react import CallTool, ReconcileTool
from services.core.run.state import AwaitingTools, Facts, used_tokens
from services.core.run.unknown import open_call
from services.runtime.model_calls import ToolShelf
from services.runtime.payloads import inline_or_blob, storable
from services.runtime.secrecy import IN_CLEAR, Clear, Secrecy
from services.runtime.tracing import Tracing
from services.stream.subject_keys import Sealer

MAX_RESULT_CHARACTERS = 4 * 1024 * 1024
"""A longer result is cut; the built-in tools stay far below, this bounds foreign ones."""


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
    ) -> None:
        """`mask` hides secrets in what goes to the log (redaction.py), `secrecy` encrypts it."""
        self._mask = mask
        self._secrecy = secrecy
        self._tools = tools
        self._volumes = volumes
        self._operator_hosts = operator_hosts
        self._parallelism = parallelism
        self._blobs = blobs
        self._tracing = tracing
        self._clock_ms = clock_ms
        self._sleep = sleep
        self._slots: OrderedDict[str, asyncio.Semaphore] = OrderedDict()
        self._in_use: dict[str, int] = {}

    async def run(self, effect: CallTool, state: AwaitingTools, tenant: str) -> ToolDone | ChildrenAsked:
        """The order that tells the core how the call went."""
        # Before the call: afterwards nothing may come between its result and the log.
        sealer = await self._secrecy.sealer(tenant, state.facts.user_id)
        effect, state = await self._opened(effect, state, tenant)
        opened = open_call(state, effect.turn, effect.index)
        if opened is not None and opened.delegation is not None:
            return await self._gathered(effect, opened.delegation, sealer, tenant)
        # By the name of the method: a look at a runtime protocol takes 10 microseconds.
        tool: Any = self._tools.find(effect.name)
        if hasattr(tool, "plan") and effect.name in self._granted(state.facts):
            return self._planned(effect, tool, sealer)
        if len(state.asked) <= self._parallelism:
            began, found, outcome = await self._called(effect, state, tenant)  # all calls of the turn fit at once
        else:
            slot = self._slots.setdefault(effect.run_id, asyncio.Semaphore(self._parallelism))
            self._in_use[effect.run_id] = self._in_use.get(effect.run_id, 0) + 1
            try:
                async with slot:
                    began, found, outcome = await self._called(effect, state, tenant)
            finally:
                self._in_use[effect.run_id] -= 1
                if self._in_use[effect.run_id] == 0:
                    del self._in_use[effect.run_id], self._slots[effect.run_id]
        return await self._done(effect, found, outcome, sealer, int((time.monotonic() - began) * 1000))

    async def _done(
        self, effect: CallTool, found: ToolResult, outcome: str, sealer: Sealer | Clear, duration_ms: int
    ) -> ToolDone:
        """The order for a result: masked, bounded, sealed, and in the blob store when it is long."""
        is_error = found.is_error
        try:
            inline, blob = await inline_or_blob(sealer.text(storable(self._kept(found.text))), self._blobs)
        except OutsideError as error:
            inline, blob = sealer.text(f"{effect.name} returned, but its result could not be stored: {error}"), None
            is_error, outcome = True, "error"
        return ToolDone(
            at_ms=self._clock_ms(),
            turn=effect.turn,
            index=effect.index,
            attempt=effect.attempt,
            text=inline,
            text_blob=blob,
            is_error=is_error,
            outcome=outcome,
            duration_ms=duration_ms,
            asks_compaction=found.asks_compaction,
        )

    def _planned(self, effect: CallTool, planner: Planner, sealer: Sealer | Clear) -> ToolDone | ChildrenAsked:
        """What a call wants of sub-agents; nothing of it is done here."""
        try:
            arguments = json.loads(effect.input or "{}")
        except (ValueError, RecursionError):
            arguments = None
        if isinstance(arguments, dict):
            wanted = planner.plan(arguments)
        else:
            wanted = ToolResult(text=f"the arguments of {effect.name} must be a JSON object", is_error=True)
        if isinstance(wanted, ChildrenWanted):
            return ChildrenAsked(
                at_ms=self._clock_ms(),
                turn=effect.turn,
                index=effect.index,
                attempt=effect.attempt,
                op=wanted.op,
                spawns=tuple(
                    [replace(spawn, prompt=sealer.text(storable(self._mask(spawn.prompt)))) for spawn in wanted.spawns]
                ),
                child_run_id=storable(wanted.child_run_id),
                prompt=sealer.text(storable(self._mask(wanted.prompt))),
                timeout_ms=wanted.timeout_ms,
                idle_ttl_s=wanted.idle_ttl_s,
                is_sealed=self._secrecy.is_on,
            )
        return ToolDone(
            at_ms=self._clock_ms(),
            turn=effect.turn,
            index=effect.index,
            attempt=effect.attempt,
            text=sealer.text(storable(wanted.text)),
            text_blob=None,
            is_error=wanted.is_error,
            outcome="error",
            duration_ms=0,
        )

    async def _gathered(self, effect: CallTool, wanted: Delegation, sealer: Sealer | Clear, tenant: str) -> ToolDone:
        """The result of a call whose children have all returned, for results the core cannot put together."""
        try:
            texts = [
                await self._secrecy.text(
                    child.text if child.blob is None else (await self._blobs.get(child.blob)).decode(), tenant
                )
                for child in wanted.children
            ]
        except OutsideError as error:
            failed = ToolResult(
                text=f"the sub-agents returned, but their results cannot be read: {error}", is_error=True
            )
            return await self._done(effect, failed, "error", sealer, 0)
        text, is_error = result(wanted, texts)
        duration_ms = max(0, self._clock_ms() - wanted.began_at_ms)
        found = ToolResult(text=text, is_error=is_error)
        return await self._done(effect, found, "error" if is_error else "ok", sealer, duration_ms)

    def _granted(self, facts: Facts) -> tuple[str, ...]:
        return tuple([spec.name for spec in self._tools.specs(facts.definition.tools)])

    async def reconcile(self, effect: ReconcileTool, state: AwaitingTools, tenant: str) -> Reconciled:
        """The order that tells the core what the tool knows of a lost call. Whatever goes wrong is `failed`."""
        wait_ms = effect.not_before_ms - self._clock_ms()
        if effect.not_before_ms and wait_ms > 0:
            await self._sleep(wait_ms / 1000)
        began = time.monotonic()
        blob, is_error = None, False
        sealer = await self._secrecy.sealer(tenant, state.facts.user_id)
        effect, state = await self._opened(effect, state, tenant)
        try:
            answer = await self._asked(effect, state.facts, tenant)
            match answer:
                case ToolResult():
                    verdict, is_error = HAPPENED, answer.is_error
                    text, blob = await inline_or_blob(sealer.text(storable(self._kept(answer.text))), self._blobs)
                case DidNotHappen(reason=reason):
                    verdict, text = DID_NOT_HAPPEN, sealer.short(storable(self._kept(reason)))
                case CannotTell(reason=reason):
                    verdict, text = CANNOT_TELL, sealer.short(storable(self._kept(reason)))
        except TimeoutError:
            verdict, text = FAILED, f"{effect.name} did not say in time what became of the call"
        except OutsideError as error:
            verdict, text = FAILED, sealer.short(storable(self._mask(str(error))))
        return Reconciled(
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
        )

    async def _opened(self, effect: Called, state: AwaitingTools, tenant: str) -> tuple[Called, AwaitingTools]:
        """The call with its arguments, and the run with its metadata, in clear. Raises OutsideError."""
        if not self._secrecy.is_on:
            return effect, state
        names, values = zip(*state.facts.metadata, strict=True) if state.facts.metadata else ((), ())
        metadata = tuple(zip(names, await self._secrecy.texts(values, tenant), strict=True))
        opened = replace(effect, input=await self._secrecy.text(effect.input, tenant))
        return opened, replace(state, facts=replace(state.facts, metadata=metadata))

    async def _asked(self, effect: ReconcileTool, facts: Facts, tenant: str) -> ToolResult | DidNotHappen | CannotTell:
        tool: Tool | None = self._tools.find(effect.name)
        if tool is None or not isinstance(tool, Reconciler):
            return CannotTell(reason=f"this process has no tool {effect.name} that could be asked")
        granted = tuple([spec.name for spec in self._tools.specs(facts.definition.tools)])
        async with asyncio.timeout(tool.timeout_s):
            return await tool.reconcile(parsed(effect.input), self._context(effect, facts, tenant, granted))

    def _kept(self, text: str) -> str:
        """What of a result goes to the log."""
        text = self._mask(text)
        if len(text) > MAX_RESULT_CHARACTERS:
            text = text[:MAX_RESULT_CHARACTERS] + f"\n[cut after {MAX_RESULT_CHARACTERS} characters]"
        return text

    async def _called(self, effect: CallTool, state: AwaitingTools, tenant: str) -> tuple[float, ToolResult, str]:
        """When it began (monotonic), the result and its outcome."""
        began = time.monotonic()
        with self._tracing.tool_call(effect, state) as span:
            result, outcome = await self._bounded(effect, state.facts, tenant)
            span.returned(outcome)
        return began, result, outcome

    async def _bounded(self, effect: CallTool, facts: Facts, tenant: str) -> tuple[ToolResult, str]:
        tool = self._tools.find(effect.name)
        granted = tuple([spec.name for spec in self._tools.specs(facts.definition.tools)])
        if tool is None or effect.name not in granted:
            return ToolResult(text=f"tool not found: {effect.name}", is_error=True), "error"
        try:
            arguments = json.loads(effect.input or "{}")
        except (ValueError, RecursionError) as error:
            return ToolResult(text=f"the arguments of {effect.name} are not JSON: {error}", is_error=True), "error"
        if not isinstance(arguments, dict):
            return ToolResult(text=f"the arguments of {effect.name} must be a JSON object", is_error=True), "error"
        try:
            async with asyncio.timeout(tool.timeout_s):
                result = await tool.call(arguments, self._context(effect, facts, tenant, granted))
        except TimeoutError:
            text = f"{effect.name} did not return within {tool.timeout_s:g} s and was stopped"
            return ToolResult(text=text, is_error=True), "timeout"
        except OutsideError as error:
            return ToolResult(text=str(error), is_error=True), "error"
        return result, "error" if result.is_error else "ok"

    def _context(
        self, effect: CallTool | ReconcileTool, facts: Facts, tenant: str, granted: tuple[str, ...]
    ) -> ToolContext:
        definition = facts.definition
        return ToolContext(
            run_id=effect.run_id,
            session_id=facts.session_id,
            agent_id=facts.agent_id,
            agent=definition.name,
            tenant=tenant,
            subject=facts.subject,
            user_id=facts.user_id,
            user_tier=facts.user_tier,
            provider=facts.current.provider,
            model=facts.current.model,
            tools=granted,
            volumes=self._bound_volumes(facts),
            allowed_hosts=allowed_hosts(self._operator_hosts, facts.allowed_hosts),
            hosts_source="operator_default" if facts.allowed_hosts is None else "caller",
            idempotency_key=f"{effect.run_id}:{effect.turn}.{effect.index}",
            started_at_ms=facts.started_at_ms,
            used_tokens=used_tokens(facts),
            max_tokens=facts.max_context_tokens,
            sampling=definition.sampling,
            metadata=dict(facts.metadata),
            attempt=effect.attempt,
            compaction=definition.compaction,
        )

    def _bound_volumes(self, facts: Facts) -> tuple[VolumeBinding, ...]:
        found: list[VolumeBinding] = []
        for grant in facts.definition.volumes:
            volume = self._volumes.get(grant.name)
            if volume is not None:
                # The narrower of the two wins: a grant never widens what the process allows.
                mode = "rw" if grant.mode == "rw" and volume.mode == "rw" else "ro"
                found.append(VolumeBinding(name=grant.name, path=volume.path, mode=mode, is_default=grant.is_default))
        return tuple(found)


def allowed_hosts(operator: tuple[str, ...], caller: tuple[str, ...] | None) -> tuple[str, ...]:
    """The hosts a run may reach: the operator's list, narrowed by the caller's (null leaves it, empty denies all)."""
    if caller is None:
        return operator
    both = [host for host in caller if any(_covers(entry, host) for entry in operator)]
    # A wish that is wider than the list gives what the list has of it.
    both += [entry for entry in operator if any(_covers(host, entry) for host in caller)]
    return tuple(dict.fromkeys(both))


def _covers(entry: str, host: str) -> bool:
    wanted, found = entry.strip().lower().rstrip("."), host.strip().lower().rstrip(".")
    if wanted in ("*", found):
        return True
    # Only names have subdomains; the last label of an IPv4 address is a number, that of a name never is.
    return found.endswith("." + wanted) and not found.rpartition(".")[2].isdigit()


def parsed(input_json: str) -> Mapping[str, Any]:
    """The arguments of a call as far as they can be read; empty when they cannot."""
    try:
        arguments = json.loads(input_json or "{}")
    except (ValueError, RecursionError):
        return {}
    return arguments if isinstance(arguments, dict) else {}
