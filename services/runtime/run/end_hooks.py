"""Hooks at the end of a run, carried out: a message to a channel, an entry of memory, a request to an address, a call
of a tool of an MCP server, whose arguments are its payload.

A channel gets, and an entry and a request have:

    {"schedule_name" or "webhook_name": ..., "run_id": ..., "agent_id": ..., "payload": ...}

In every text of the payload {{run.id}}, {{run.status}} and {{run.final_text}} are replaced; the last is the last output
of the run, or why it did not complete, cut at TEXT_BYTES_MAX. {{run.result}} is the record of a run with an output
schema, which is never cut: JSON in place of a text that has nothing else, null when there is no record. A request
without a payload has status and final_text, and the result if the run owes one.

A hook acts for the user of the run: a channel of the scope user needs one, and `_system/*` is closed to it.

Before: run_end_actions.py. After: services/families/ports/run_ends.py, services/families/callback.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from loomlog.connectors.configuration.trigger_block import CompletionHook
from loomlog.connectors.crypto.content_encryption import is_token
from loomlog.connectors.definitions import DefinitionProblem
from loomlog.connectors.definitions.canonical import canonical_json
from loomlog.connectors.definitions.triggers import read_hook
from loomlog.connectors.errors import ConnectorError, Permanent
from loomlog.connectors.mcp.peer import NotSent
from loomlog.connectors.mcp.tool_list import visible_name
from loomlog.connectors.protocols import Blobs
from loomlog.schemas.approval_policy import ALLOW, ASK
from loomlog.schemas.generated.callback_commands import RequestCallback
from loomlog.schemas.generated.values import CommandEnvelope, ToolCall
from loomlog.services.core.approvals.tree_totals import resolve_verdicts
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.core.run.interrupts.tree_counts import tree_totals
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import Ended
from loomlog.services.core.run.subagents.children import last_output
from loomlog.services.core.run.turns.completion import owes_record
from loomlog.services.families.ports.run_ends import TRIES_MS, EndedRun, EntryWriter, MessagePublisher, ToolCaller
from loomlog.services.runtime.content.definition_texts import DefinitionTexts
from loomlog.services.runtime.content.encryption import PLAINTEXT, ContentEncryption
from loomlog.services.runtime.run.run_end_actions import RunEnd, ask_once
from loomlog.services.runtime.tools.approval_verdicts import ApprovalRules, decide_calls
from loomlog.services.stream.encryption.subject_keys import ERASED
from loomlog.services.stream.entities.answers import EntityCommands

TEXT_BYTES_MAX = 32_768
"""Bytes of a final text in a message or an entry, which have 64 KiB."""
REQUEST_TEXT_BYTES_MAX = 200_000
"""Bytes of a final text in a request (services/families/callback/limits.py BODY_BYTES_MAX)."""
SCHEDULE_NAME = "schedule_name"
ERROR_CHARACTERS_MAX = 300
"""Characters of a tool's error that are kept."""
RESULT = "result"
_TEMPLATE = re.compile(r"\{\{\s*run\.(final_text|id|result|status)\s*\}\}")


class RunEndHooks:
    """Protocol EndHooks of run_end_actions.py."""

    def __init__(
        self,
        commands: EntityCommands,
        publisher: MessagePublisher,
        entries: EntryWriter,
        blobs: Blobs,
        tools: ToolCaller,
        *,
        encryption: ContentEncryption = PLAINTEXT,
        clock_ms: Callable[[], int],
    ) -> None:
        self._commands = commands
        self._publisher = publisher
        self._entries = entries
        self._blobs = blobs
        self._tools = tools
        self._approval_rules = ApprovalRules(DefinitionTexts(blobs))
        self._encryption = encryption
        self._clock_ms = clock_ms

    async def carry_out(self, text: str, end: RunEnd, state: Ended, number: int) -> bool:
        """Carry out hook `number`; False when it is not for such an end. Raises Refused, Unavailable."""
        try:
            hook, source = read_hook(text)
        except DefinitionProblem as problem:
            raise Refused(problem.reason, problem.message) from problem
        if not hook.is_due(state.status):
            return False
        try:
            value = await self._value(hook, source, end, state)
            url = await self._encryption.decrypt_text(hook.url, end.tenant)
        except Permanent as error:
            raise Refused("keys_missing", str(error)) from error
        except ConnectorError as error:
            raise Unavailable(str(error)) from error
        facts, command_id = state.facts, f"{end.run_id}:end:{number}"
        run = EndedRun(tenant=end.tenant, facts=facts, command_id=command_id, ended_at_ms=end.ended_at_ms)
        match hook.kind:
            case "channel.publish":
                await self._publish(hook, value, run)
            case "memory.set":
                await self._set_entry(hook, value, run)
            case "http":
                if url == ERASED:
                    raise Refused("content_erased", "http: its address is erased")
                await self._request(replace(hook, url=url), value, end, facts, command_id, number)
            case "mcp.call":
                await self._call_tool(hook, value["payload"] or {}, run)
        return True

    # --- what is sent ------------------------------------------------------------------------------------------------

    async def _value(
        self, hook: CompletionHook, source: Mapping[str, str], end: RunEnd, state: Ended
    ) -> Mapping[str, Any]:
        """Return the value of a hook. Raises ConnectorError."""
        payload = await self._payload(hook, end.tenant)
        if payload is None and hook.kind == "http":
            payload = {"status": "{{run.status}}", "final_text": "{{run.final_text}}"}
            if owes_record(state.facts):
                payload[RESULT] = "{{run.result}}"
        texts = {"id": end.run_id, "status": state.status}
        names = _names_in(payload)
        if RESULT in names:
            is_there = owes_record(state.facts) and state.status == "completed"
            texts[RESULT] = await self._final_text(state, end.tenant) if is_there else "null"
        if "final_text" in names:
            bytes_max = REQUEST_TEXT_BYTES_MAX if hook.kind == "http" else TEXT_BYTES_MAX
            texts["final_text"] = _cut(await self._final_text(state, end.tenant), bytes_max)
        rendered = _rendered(payload, texts)
        return {**source, "run_id": end.run_id, "agent_id": state.facts.agent_id, "payload": rendered}

    async def _payload(self, hook: CompletionHook, tenant: str) -> Any:
        """Return the payload in plaintext; an encrypted one is a token of its JSON text."""
        payload = hook.payload
        if not isinstance(payload, str) or not is_token(payload):
            return payload
        text = await self._encryption.decrypt_text(payload, tenant)
        try:
            return json.loads(text)
        except ValueError:
            return text

    async def _final_text(self, state: Ended, tenant: str) -> str:
        text, blob = last_output(state)
        if blob is not None:
            text = (await self._blobs.get(blob)).decode(errors="replace")
        # Neither channels nor entries keep a text with U+0000.
        return (await self._encryption.decrypt_text(text, tenant)).replace("\0", "")

    # --- where it goes -----------------------------------------------------------------------------------------------

    async def _publish(self, hook: CompletionHook, value: Mapping[str, Any], run: EndedRun) -> None:
        try:
            await self._publisher.publish(run, hook.channel, value)
        except Refused as refused:
            raise Refused(refused.code, f"channel.publish: {refused}") from refused
        except Unavailable as error:
            raise Unavailable(f"channel.publish to {hook.channel}: {error}") from error

    async def _set_entry(self, hook: CompletionHook, value: Mapping[str, Any], run: EndedRun) -> None:
        try:
            # The memory of a schedule is that of its name (reference surfaces 7).
            await self._entries.set_entry(run, hook.scope, hook.key, value, agent=value.get(SCHEDULE_NAME, ""))
        except Refused as refused:
            raise Refused(refused.code, f"memory.set: {refused}") from refused
        except Unavailable as error:
            raise Unavailable(f"memory.set of {hook.key}: {error}") from error

    async def _request(
        self,
        hook: CompletionHook,
        value: Mapping[str, Any],
        end: RunEnd,
        facts: RunFacts,
        command_id: str,
        number: int,
    ) -> None:
        command = RequestCallback(
            envelope=CommandEnvelope(
                command_id=command_id,
                tenant=end.tenant,
                subject=facts.user_id or facts.subject,
                issued_at_ms=end.ended_at_ms,
            ),
            run_id=end.run_id,
            hook=number,
            url=hook.url,
            body=json.dumps(value, separators=(",", ":"), ensure_ascii=False),
            secret_env=hook.secret_env or "",
        )
        await ask_once(self._commands, command)

    async def _call_tool(self, hook: CompletionHook, arguments: Any, run: EndedRun) -> None:
        """Call a tool once; again only when nothing was sent, or after a take-over, with the same idempotency key."""
        await self._require_allowed(visible_name(hook.server, hook.tool), arguments, run)
        try:
            result = await self._tools.call(run, hook.server, hook.tool, arguments)
        except NotSent as error:
            if self._clock_ms() > run.ended_at_ms + TRIES_MS:
                raise Refused("capability_unsupported", f"mcp.call of {hook.server}: {error}") from error
            raise Unavailable(f"mcp.call of {hook.server}: {error}") from error
        except ConnectorError as error:
            raise Refused("capability_unsupported", f"mcp.call of {hook.server}: {error}") from error
        if result.is_error:
            text = result.text[:ERROR_CHARACTERS_MAX]
            raise Refused("capability_unsupported", f"mcp.call of {hook.server}, {hook.tool}: {text}")

    async def _require_allowed(self, tool: str, arguments: Any, run: EndedRun) -> None:
        """Raise Refused unless the rules of the run allow the call. No person can be asked after its end."""
        try:
            rules = await self._approval_rules.load(run.facts.definition)
        except ConnectorError as error:
            raise Unavailable(str(error)) from error
        if not rules.policies:
            return
        call = ToolCall(id="", name=tool, input=canonical_json(arguments))
        # Of a tree the root knows all, as of its end; a run below it does not, and its calls that count are denied.
        tree = tree_totals(run.facts) if run.facts.parent is None else None
        [verdict] = resolve_verdicts(*decide_calls(rules, run.facts, run.tenant, (call,)), tree)
        if verdict.outcome == ASK:
            raise Refused("command_refused", f"{tool} needs approval by people; none are asked after the end of a run")
        if verdict.outcome != ALLOW:
            reason = f"{verdict.rule}: {verdict.reason}".strip(": ")
            raise Refused("command_refused", f"the rules of the run deny {tool}: {reason}")


def _names_in(value: Any) -> set[str]:
    """Return what the texts of a JSON value ask for."""
    match value:
        case str():
            return set(_TEMPLATE.findall(value))
        case list():
            return set().union(*map(_names_in, value))
        case dict():
            return set().union(*map(_names_in, value.values()))
    return set()


def _rendered(value: Any, texts: Mapping[str, str]) -> Any:
    """Return a JSON value with the templates of its texts replaced, once: what is put in is not read again."""
    match value:
        case str() if (whole := _TEMPLATE.fullmatch(value)) and whole[1] == RESULT:
            return json.loads(texts[RESULT])
        case str():
            return _TEMPLATE.sub(lambda match: texts[match[1]], value)
        case list():
            return [_rendered(item, texts) for item in value]
        case dict():
            return {key: _rendered(item, texts) for key, item in value.items()}
    return value


def _cut(text: str, bytes_max: int) -> str:
    """Return a text of at most so many bytes, with … at its end when it was longer."""
    data = text.encode(errors="replace")
    if len(data) <= bytes_max:
        return data.decode()
    return data[: bytes_max - 3].decode(errors="ignore") + "…"
