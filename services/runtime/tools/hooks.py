"""Asks the hooks of a tool call: the pre hooks before it, the post hooks after it.

Hooks run after the policy floor: a call that the run may not make is refused without anybody being asked. What they
change is told with the result of the call, in one decision (services/core/run/tools/hook_events.py). A hook that was
asked about an attempt that was lost with its owner is asked again about the next one: each request carries run, call
and attempt, so that the other side can recognise it.

    open      a hook without a usable answer is passed over, and that is told
    closed    the call is denied before it is made, or its result withheld

A rewritten input may not make the call stronger than the effect class of its intent: the log would promise a next owner
that the call may be repeated when it may not. Such a call is denied.

Before: tool_calls.py. After: connectors/http/signed_callbacks.py.
"""

import json
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import orjson

from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.http.signed_callbacks import callback_secrets, signature_headers
from loomlog.connectors.tools.hosts import EXACTLY, canonical_host
from loomlog.schemas.generated.stream_records import HookRegistered
from loomlog.schemas.generated.values import HookAct
from loomlog.services.core.hooks import (
    CLOSED,
    DENIED,
    POST,
    PRE,
    REWROTE_INPUT,
    REWROTE_RESULT,
    UNAVAILABLE,
    WIDENED_HOSTS,
    HookedResult,
    HookTable,
    WrongAnswer,
    is_stronger,
    may_widen,
    post_answer,
    pre_answer,
    stronger,
    timeout_s,
    unavailable,
)

log = logging.getLogger(__name__)

INPUT_BYTES_MAX = 64 * 1024
"""Of a rewritten input: it is in the event as it is, like the one the model wrote."""
REASON_CHARACTERS_MAX = 200
URL_CHARACTERS_MAX = 2_000


class Asks(Protocol):
    """loomlog.connectors.http.signed_callbacks.Callbacks."""

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HookedCall:
    """What hooks are told of a call, whatever its input."""

    tenant: str
    agent: str
    user_id: str
    agent_id: str
    run_id: str
    session_id: str
    turn: int
    index: int
    attempt: int
    call_id: str
    name: str
    effect_class: str
    """Of the intent that is in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The hooks of one call as they were when it began."""

    pre: tuple[HookRegistered, ...]
    post: tuple[HookRegistered, ...]


@dataclass(slots=True, kw_only=True)
class Before:
    """What the pre hooks left of a call."""

    input: Mapping[str, Any]
    denied: HookedResult | None = None
    hosts: list[str] = field(default_factory=list)
    """Entries for the allowed hosts of this one call."""
    acts: list[HookAct] = field(default_factory=list)


class Hooks:
    """`permitted`: owners who may add hosts; `secret` None: callbacks are not signed."""

    def __init__(
        self,
        table: Callable[[], HookTable],
        asks: Asks,
        *,
        clock_ms: Callable[[], int],
        permitted: Collection[str] = (),
        secret: SecretKey | None = None,
    ) -> None:
        self._table = table
        self._asks = asks
        self._clock_ms = clock_ms
        self._permitted = frozenset(permitted)
        self._secret = secret

    def chain(self, tenant: str, agent: str, tool: str) -> Chain | None:
        """Who is to be asked; None when nobody is."""
        table = self._table()
        if not table.entries:
            return None
        pre, post = table.looking(tenant, agent, tool, PRE), table.looking(tenant, agent, tool, POST)
        return Chain(pre=pre, post=post) if pre or post else None

    async def before(
        self,
        chain: Chain,
        call: HookedCall,
        given: Mapping[str, Any],
        effect_of: Callable[[Mapping[str, Any]], str],
    ) -> Before:
        """The call as the pre hooks want it. Raises nothing of the outside."""
        found = Before(input=given)
        for hook in chain.pre:
            try:
                answer = pre_answer(await self._ask(hook, call, _shown(call, found.input)))
                rewritten = None if answer.input is None else _checked_input(answer.input)
                hosts = [_host_entry(host) for host in answer.allow_hosts]
            except (ConnectorError, WrongAnswer) as error:
                found.acts.append(_unavailable(hook, error))
                if hook.fail_mode == CLOSED:
                    return _ended(found, unavailable(hook))
                continue
            if answer.denial is not None:
                found.acts.append(_act(hook, DENIED))
                return _ended(found, answer.denial.text, is_error=answer.denial.is_error)
            if rewritten is not None and answer.input is not None and answer.input != found.input:
                became = effect_of(answer.input)
                if is_stronger(became, call.effect_class):
                    found.acts.append(_act(hook, DENIED))
                    return _ended(found, stronger(hook, call.effect_class, became))
                found.input = answer.input
                # Of several only the last says what the tool was given: the others were written over.
                found.acts = [replace(act, input="") if act.input else act for act in found.acts]
                found.acts.append(replace(_act(hook, REWROTE_INPUT), input=rewritten))
            if hosts and may_widen(hook, self._permitted):
                found.hosts += hosts
                url = found.input.get("url")
                shown = url[:URL_CHARACTERS_MAX] if isinstance(url, str) else ""
                found.acts.append(replace(_act(hook, WIDENED_HOSTS), url=shown, hosts_added=answer.allow_hosts))
            elif hosts:
                log.warning("hook %s/%s of tenant %r may not add hosts", hook.owner, hook.name, hook.tenant)
        return found

    async def after(
        self, chain: Chain, call: HookedCall, given: Mapping[str, Any], result: HookedResult
    ) -> tuple[HookedResult, list[HookAct]]:
        """The result as the post hooks want it, and what they did. Raises nothing of the outside."""
        acts: list[HookAct] = []
        for hook in chain.post:
            body = {**_shown(call, given), "tool_result": {"text": result.text, "is_error": result.is_error}}
            try:
                changed = post_answer(await self._ask(hook, call, body), result)
            except (ConnectorError, WrongAnswer) as error:
                acts.append(_unavailable(hook, error))
                if hook.fail_mode == CLOSED:
                    result = HookedResult(text=unavailable(hook), is_error=True)
                continue
            if changed != result:
                acts.append(_act(hook, REWROTE_RESULT))
                result = changed
        return result, acts

    async def _ask(self, hook: HookRegistered, call: HookedCall, told: Mapping[str, Any]) -> Any:
        """The answer as JSON, None when there is none. Raises ConnectorError, WrongAnswer."""
        body = _written(
            {"phase": hook.phase, "owner": hook.owner, "hook_name": hook.name, "hook_id": hook.hook_id, **told}
        )
        secrets = callback_secrets(self._secret, hook.tenant, hook.owner, hook.name)
        headers = {
            "X-Loomlog-Hook": hook.hook_id,
            "X-Loomlog-Delivery": f"{call.run_id}:{call.turn}.{call.index}:{call.attempt}:{hook.hook_id}",
            **signature_headers(body, secrets, self._clock_ms() // 1000),
        }
        answer = await self._asks.post(hook.callback_url, body, headers, timeout_s=timeout_s(hook))
        if not answer.strip():
            return None
        try:
            return orjson.loads(answer)
        except orjson.JSONDecodeError as error:
            raise WrongAnswer("the answer is not JSON") from error


def _shown(call: HookedCall, given: Mapping[str, Any]) -> dict[str, Any]:
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
        "tool_call": {"id": call.call_id, "name": call.name, "input": given},
    }


def _written(told: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(told)
    except orjson.JSONEncodeError as error:
        raise WrongAnswer("the call cannot be written as JSON: it is nested too deeply or holds broken text") from error


def _checked_input(given: Mapping[str, Any]) -> str:
    """The input as the log is to hold it. Raises WrongAnswer."""
    text = json.dumps(given, ensure_ascii=False, separators=(",", ":"))
    if len(text.encode()) > INPUT_BYTES_MAX:
        raise WrongAnswer(f"input: more than {INPUT_BYTES_MAX} bytes")
    return text


def _host_entry(host: str) -> str:
    """The entry of the allowed hosts: that host alone, or with a leading dot its subdomains too. Raises WrongAnswer."""
    name = canonical_host(host.removeprefix("."))
    if not name:
        raise WrongAnswer(f"allow_hosts: {host[:80]!r} is no host name")
    return name if host.startswith(".") else EXACTLY + name


def _act(hook: HookRegistered, act: str) -> HookAct:
    return HookAct(hook_id=hook.hook_id, owner=hook.owner, name=hook.name, phase=hook.phase, act=act)


def _ended(found: Before, text: str, *, is_error: bool = True) -> Before:
    """Denied: nothing that was opened for the call counts."""
    acts = [act for act in found.acts if act.act != WIDENED_HOSTS]
    return Before(input=found.input, denied=HookedResult(text=text, is_error=is_error), acts=acts)


def _unavailable(hook: HookRegistered, error: Exception) -> HookAct:
    reason = " ".join(str(error).split())[:REASON_CHARACTERS_MAX]
    return replace(_act(hook, UNAVAILABLE), reason=reason)
