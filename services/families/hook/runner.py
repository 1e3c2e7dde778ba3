"""Calls the hooks of a tool call: the pre hooks before it, the post hooks after it.

Hooks run after the policy floor: a call that the run may not make is refused without a hook being called. Their changes
are recorded with the result of the call, in one decision (services/core/run/tools/hook_events.py). When an attempt is
lost with its owner, its hooks are called again for the next one: each request has run, call and attempt, so that the
receiver can recognise it.

    open      a hook without a usable answer is skipped, and that is recorded
    closed    the call is denied before it is made, or its result withheld

A rewritten input may not make the call stronger than the effect class of its intent: the log would promise the next
owner that the call may be repeated when it may not. Such a call is denied.

Before: services/runtime/tools/tool_calls.py. After: connectors/http/signed_callbacks.py.
"""

import json
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.http.signed_callbacks import callback_secrets, signature_headers
from loomlog.connectors.http.trace_context import trace_headers
from loomlog.connectors.tools.hosts import EXACT_PREFIX, canonical_host
from loomlog.schemas.generated.values import HookAct
from loomlog.schemas.records import copy_as, replace
from loomlog.services.families.hook.answers import (
    DENIED,
    REWROTE_INPUT,
    REWROTE_RESULT,
    UNAVAILABLE,
    WIDENED_HOSTS,
    InvalidHookAnswer,
    apply_post_answer,
    escalation_text,
    is_stronger,
    parse_pre_answer,
    require_decision,
    unavailable_text,
)
from loomlog.services.families.hook.state import FAIL_CLOSED, POST, PRE, Hook, HookTable, may_add_hosts, timeout_s
from loomlog.services.families.ports.tool_hooks import HookedCall, HookedResult, PreHookResult

log = logging.getLogger(__name__)

INPUT_BYTES_MAX = 64 * 1024
"""Bytes of a rewritten input; it is stored in the event as it is, like the one the model wrote."""
REASON_CHARACTERS_MAX = 200
URL_CHARACTERS_MAX = 2_000


class HookTransport(Protocol):
    """Protocol of loomlog.connectors.http.signed_callbacks.CallbackClient."""

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float) -> bytes | None: ...


class HookRunner:
    """Protocol loomlog.services.families.ports.tool_hooks.ToolHooks.

    `permitted_owners` may add hosts; `secret` None: callbacks are not signed.
    """

    def __init__(
        self,
        table: Callable[[], HookTable],
        transport: HookTransport,
        *,
        clock_ms: Callable[[], int],
        permitted_owners: Collection[str] = (),
        secret: SecretKey | None = None,
    ) -> None:
        self._table = table
        self._transport = transport
        self._clock_ms = clock_ms
        self.permitted_owners = frozenset(permitted_owners)
        self._secret = secret

    def find_chain(self, tenant: str, agent: str, tool: str) -> "HookChain | None":
        table = self._table()
        if not table.entries:
            return None
        pre, post = table.hooks_for_call(tenant, agent, tool, PRE), table.hooks_for_call(tenant, agent, tool, POST)
        return HookChain(self, pre, post) if pre or post else None

    async def ask(self, hook: Hook, call: HookedCall, payload: Mapping[str, Any]) -> Any:
        """Return the answer as JSON, None when there is none. Raises ConnectorError, InvalidHookAnswer."""
        body = _encode_payload(
            {"phase": hook.phase, "owner": hook.owner, "hook_name": hook.name, "hook_id": hook.hook_id, **payload}
        )
        secrets = callback_secrets(self._secret, hook.tenant, hook.owner, hook.name)
        headers = {
            "X-Loomlog-Hook": hook.hook_id,
            "X-Loomlog-Delivery": f"{call.run_id}:{call.turn}.{call.index}:{call.attempt}:{hook.hook_id}",
            **trace_headers(),
            **signature_headers(body, secrets, self._clock_ms() // 1000),
        }
        response = await self._transport.post(hook.callback_url, body, headers, timeout_s=timeout_s(hook))
        if response is None:
            return None
        try:
            answer = orjson.loads(response) if response.strip() else None
        except orjson.JSONDecodeError as error:
            raise InvalidHookAnswer("the answer is not JSON") from error
        if hook.fail_mode == FAIL_CLOSED:
            require_decision(answer, hook.phase)
        return answer


@dataclass(frozen=True, slots=True)
class HookChain:
    """Protocol loomlog.services.families.ports.tool_hooks.HookChain over the hooks of a runner."""

    runner: HookRunner
    pre: tuple[Hook, ...]
    post: tuple[Hook, ...]

    @property
    def sees_results(self) -> bool:
        return bool(self.post)

    async def run_pre_hooks(
        self, call: HookedCall, arguments: Mapping[str, Any], classify_effect: Callable[[Mapping[str, Any]], str]
    ) -> PreHookResult:
        result = PreHookResult(input=arguments)
        for hook in self.pre:
            try:
                answer = parse_pre_answer(await self.runner.ask(hook, call, _call_payload(call, result.input)))
                rewritten = None if answer.input is None else _encode_input(answer.input)
                hosts = [_parse_host_entry(host) for host in answer.allow_hosts]
            except (ConnectorError, InvalidHookAnswer) as error:
                result.acts.append(_unavailable_act(hook, error))
                if hook.fail_mode == FAIL_CLOSED:
                    return _denied_call(result, unavailable_text(hook))
                continue
            if answer.denial is not None:
                result.acts.append(_hook_act(hook, DENIED))
                return _denied_call(result, answer.denial.text, is_error=answer.denial.is_error)
            if rewritten is not None and answer.input is not None and answer.input != result.input:
                became = classify_effect(answer.input)
                if is_stronger(became, call.effect_class):
                    result.acts.append(_hook_act(hook, DENIED))
                    return _denied_call(result, escalation_text(hook, call.effect_class, became))
                result.input = answer.input
                # Only the last rewrite has the input that the tool received: the others were overwritten.
                result.acts = [replace(act, input="") if act.input else act for act in result.acts]
                result.acts.append(replace(_hook_act(hook, REWROTE_INPUT), input=rewritten))
            if hosts and may_add_hosts(hook, self.runner.permitted_owners):
                result.added_hosts += hosts
                url = result.input.get("url")
                shown = url[:URL_CHARACTERS_MAX] if isinstance(url, str) else ""
                result.acts.append(replace(_hook_act(hook, WIDENED_HOSTS), url=shown, hosts_added=answer.allow_hosts))
            elif hosts:
                log.warning("hook %s/%s of tenant %r may not add hosts", hook.owner, hook.name, hook.tenant)
        return result

    async def run_post_hooks(
        self, call: HookedCall, arguments: Mapping[str, Any], result: HookedResult
    ) -> tuple[HookedResult, list[HookAct]]:
        acts: list[HookAct] = []
        for hook in self.post:
            body = {**_call_payload(call, arguments), "tool_result": {"text": result.text, "is_error": result.is_error}}
            try:
                changed = apply_post_answer(await self.runner.ask(hook, call, body), result)
            except (ConnectorError, InvalidHookAnswer) as error:
                acts.append(_unavailable_act(hook, error))
                if hook.fail_mode == FAIL_CLOSED:
                    result = HookedResult(text=unavailable_text(hook), is_error=True)
                continue
            if changed != result:
                acts.append(_hook_act(hook, REWROTE_RESULT))
                result = changed
        return result, acts


def _call_payload(call: HookedCall, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "agent": call.agent,
        "tenant_id": call.tenant,
        "user_id": call.user_id,
        "agent_id": call.agent_id,
        "run_id": call.run_id,
        "session_id": call.session_id,
        "turn": call.turn,
        "index": call.index,
        "attempt": call.attempt,
        "tool_call": {"id": call.call_id, "name": call.name, "input": arguments},
    }


def _encode_payload(payload: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(payload)
    except orjson.JSONEncodeError as error:
        raise InvalidHookAnswer(
            "the call cannot be written as JSON: it is nested too deeply or holds broken text"
        ) from error


def _encode_input(arguments: Mapping[str, Any]) -> str:
    """Return the input in the form the log stores. Raises InvalidHookAnswer."""
    text = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    if len(text.encode()) > INPUT_BYTES_MAX:
        raise InvalidHookAnswer(f"input: more than {INPUT_BYTES_MAX} bytes")
    return text


def _parse_host_entry(host: str) -> str:
    """Return the allowed-hosts entry: that host, with a leading dot its subdomains too. Raises InvalidHookAnswer."""
    name = canonical_host(host.removeprefix("."))
    if not name:
        raise InvalidHookAnswer(f"allow_hosts: {host[:80]!r} is no host name")
    return name if host.startswith(".") else EXACT_PREFIX + name


def _hook_act(hook: Hook, act: str) -> HookAct:
    return copy_as(HookAct, hook, act=act)


def _denied_call(result: PreHookResult, text: str, *, is_error: bool = True) -> PreHookResult:
    """Return the denied call; hosts that were added for it are dropped."""
    acts = [act for act in result.acts if act.act != WIDENED_HOSTS]
    return PreHookResult(input=result.input, denial=HookedResult(text=text, is_error=is_error), acts=acts)


def _unavailable_act(hook: Hook, error: Exception) -> HookAct:
    reason = " ".join(str(error).split())[:REASON_CHARACTERS_MAX]
    return replace(_hook_act(hook, UNAVAILABLE), reason=reason)
