"""Acts: what operators and administrators do, recorded by the dispatch so that no operation can forget it.

    begin     in the log before anything is done; an act that cannot be recorded is refused (audit_unavailable)
    end       its outcome, what there was and what there is now
    refusals  before anything has begun: the first of a kind in a minute, then how many more there were

Both records are commands to one aggregate, whose id follows from the request's Idempotency-Key: a repetition finds the
act begun and ends it. A process that dies in between leaves an act without an end, which its owner ends as `unknown`
after a while. Nothing waits for an owner: what the topic of commands has is carried out once there is one, and acts are
possible while no runtime is there (decision 71).

Before: services/application/dispatch.py, and services/api/app.py for routes that are no operations. After: the owner of
the act.
"""

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from loomlog.connectors.crypto.secret_patterns import redact_secrets
from loomlog.connectors.errors import ConnectorError
from loomlog.schemas.generated.act_commands import BeginAct, EndAct, NoteRefusals
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.ids import hashed_token
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.operations import Change
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.act.limits import NAME_CHARACTERS_MAX
from loomlog.services.families.act.state import DONE, REFUSED, UNKNOWN
from loomlog.services.families.ports.acts import Act, ResultT
from loomlog.services.stream.entities.answers import CommandInvalid

log = logging.getLogger(__name__)

RETRY_SOON_S = 1
SEND_WAIT_S = 5.0
"""Longest wait for the log to take a record."""
MINUTE_S = 60.0
KINDS_MAX = 10_000
"""Kinds of refusals that are counted in a minute; those beyond are lost, with a line in the log."""
SENT_MAX = 200
"""Records of refusals on their way at once."""
TEXT_BYTES_MAX = 16 * 1024
"""Bytes of the JSON of a request, or of what it changed; of a larger one its size and digest are kept."""
STRING_CHARACTERS_MAX = 2_000
ITEMS_MAX = 200
DEPTH_MAX = 12
"""Levels, entries of a level and characters of a text that are kept of a detail."""
SECRET_NAMES = re.compile(r"(?i)secret|token|password|api_?key|credential|authorization|private_?key|pepper")
NAMES_OF_SECRETS = re.compile(r"(?i)(_env|_names?|_ids?)\Z")
"""Ends of fields that say where a secret is, and not what it is."""
MASKED = "[redacted]"
Send = Callable[[Any], Awaitable[None]]
"""Appends a command of the family `act`; returns when it is in the log. Raises ConnectorError, CommandInvalid."""


class _Refusals(Struct):
    """Refusals of a kind in the present minute, after the first."""

    act: Act
    code: str
    transport: str
    request_id: str
    at_ms: int
    rest: int = 0


class ActLog:
    """Records acts (port ActRecorder); run `run` as a task."""

    def __init__(
        self,
        send: Send,
        request_origin: Callable[[], tuple[str, str]],
        *,
        clock_ms: Callable[[], int],
        new_token: Callable[[], str],
    ) -> None:
        """`request_origin` returns the transport and the id of the present request."""
        self.dropped = 0
        self._send_command = send
        self._request_origin = request_origin
        self._clock_ms = clock_ms
        self._new_token = new_token
        self._refusals: dict[tuple[str, ...], _Refusals] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def carry_out(self, act: Act, work: Callable[[], Awaitable[ResultT]], change: Change) -> ResultT:
        """See the port."""
        await self._begin(act)
        try:
            result = await work()
        except Refused as refused:
            outcome = UNKNOWN if refused.code.endswith("_pending") else REFUSED
            await self._end(act, outcome, refused.code, change)
            raise
        except Unavailable as error:
            await self._end(act, UNKNOWN if error.is_unknown else REFUSED, error.code or "unavailable", change)
            raise
        except Exception:
            await self._end(act, UNKNOWN, "internal", change)
            raise
        if change.after is None:
            change.after = result.value if hasattr(result, "value") else None
        await self._end(act, DONE, "", change)
        return result

    async def _begin(self, act: Act) -> None:
        transport, request_id = self._request_origin()
        command = BeginAct(
            envelope=self._envelope(act, act.act_id),
            act_id=act.act_id,
            operation=act.operation,
            who=_short(act.caller.subject),
            token=_short(act.caller.name),
            token_id=_short(act.caller.token_id),
            transport=transport,
            request_id=request_id,
            target=_short(act.target),
            at_ms=self._clock_ms(),
            request=detail_text(act.request),
        )
        try:
            await self._send(command)
        except (ConnectorError, CommandInvalid) as error:
            raise Refused(
                "audit_unavailable",
                "nothing was done: the log did not take the record of this act; ask again, that does no harm",
                retry_after_s=RETRY_SOON_S,
            ) from error

    async def _end(self, act: Act, outcome: str, code: str, change: Change) -> None:
        command = EndAct(
            # Another outcome is another command: an attempt that learns what an earlier one did not know is heard.
            envelope=self._envelope(act, f"{act.act_id}.{outcome}"),
            act_id=act.act_id,
            outcome=outcome,
            code=_short(code),
            before=detail_text(change.before),
            after=detail_text(change.after),
        )
        try:
            await self._send(command)
        except (ConnectorError, CommandInvalid) as error:
            # It is done and it is in the log that it was begun; its owner ends it as unknown.
            log.warning("the end of the act %s of %s is not recorded: %s", act.act_id, act.operation, error)

    async def _send(self, command: Any) -> None:
        try:
            async with asyncio.timeout(SEND_WAIT_S):
                await self._send_command(command)
        except TimeoutError as error:
            raise CommandInvalid(f"the log has not taken a record within {SEND_WAIT_S:g} s") from error

    def _envelope(self, act: Act, command_id: str) -> CommandEnvelope:
        return CommandEnvelope(
            command_id=command_id, tenant=act.tenant, subject=act.caller.subject, issued_at_ms=self._clock_ms()
        )

    # --- refusals ----------------------------------------------------------------------------------------------------

    def note_refusal(self, operation: str, caller: Caller, tenant: str, code: str, target: str = "") -> None:
        """Note an act that was refused before it began."""
        key = (tenant, caller.name, caller.subject, operation, code)
        if (known := self._refusals.get(key)) is not None:
            known.rest += 1
            return
        if len(self._refusals) >= KINDS_MAX:
            self.dropped += 1
            return
        transport, request_id = self._request_origin()
        act = Act(act_id="", operation=operation, caller=caller, tenant=tenant, target=target)
        refusals = _Refusals(
            act=act,
            code=code,
            transport=transport,
            request_id=request_id,
            at_ms=self._clock_ms(),
        )
        self._refusals[key] = refusals
        self._tell(refusals, 1)

    async def run(self) -> None:
        """Record each minute how many more there were, until cancelled; then what is left."""
        try:
            while True:
                await asyncio.sleep(MINUTE_S)
                self.flush()
        finally:
            self.flush()
            await self.settle()

    def flush(self) -> None:
        """End the minute."""
        minute, self._refusals = self._refusals, {}
        for refusals in minute.values():
            if refusals.rest:
                self._tell(refusals, refusals.rest)

    async def settle(self) -> None:
        """Wait until everything that is on its way is in the log, or dropped."""
        while self._tasks:
            await asyncio.gather(*self._tasks)

    def _tell(self, refusals: _Refusals, count: int) -> None:
        if len(self._tasks) >= SENT_MAX:
            self.dropped += count
            return
        act = refusals.act
        act_id = hashed_token("refusals", self._new_token())
        command = NoteRefusals(
            envelope=self._envelope(act, act_id),
            act_id=act_id,
            operation=act.operation,
            who=_short(act.caller.subject),
            token=_short(act.caller.name),
            token_id=_short(act.caller.token_id),
            transport=refusals.transport,
            request_id=refusals.request_id,
            target=_short(act.target),
            at_ms=refusals.at_ms,
            code=_short(refusals.code),
            count=count,
        )
        task = asyncio.get_running_loop().create_task(self._send_refusals(command))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_refusals(self, command: NoteRefusals) -> None:
        try:
            await self._send(command)
        except (ConnectorError, CommandInvalid) as error:
            self.dropped += command.count
            log.warning("%d refusals of %s are not recorded: %s", command.count, command.operation, error)


# --- what is kept of a request ---------------------------------------------------------------------------------------


def detail_text(value: Any) -> str:
    """Return a detail as JSON text without secrets, of at most TEXT_BYTES_MAX; empty for None."""
    if value is None:
        return ""
    kept = _kept(msgspec.to_builtins(value), DEPTH_MAX, is_secret=False)
    text = json.dumps(kept, ensure_ascii=True, separators=(",", ":"))
    if len(text) <= TEXT_BYTES_MAX:
        return text
    return json.dumps({"bytes": len(text), "sha256": sha256(text.encode()).hexdigest()})


def _kept(value: Any, depth: int, *, is_secret: bool) -> Any:
    """Return JSON with its secrets masked and what is long cut."""
    if isinstance(value, str):
        if is_secret:
            return MASKED if value else ""
        text = redact_secrets(value)
        left = len(text) - STRING_CHARACTERS_MAX
        return text if left <= 0 else f"{text[:STRING_CHARACTERS_MAX]}... ({left} more characters)"
    if isinstance(value, Mapping | list | tuple) and depth == 0:
        return "..."
    if isinstance(value, Mapping):
        return {
            str(name)[:NAME_CHARACTERS_MAX]: _kept(one, depth - 1, is_secret=is_secret or _names_secret(str(name)))
            for name, one in list(value.items())[:ITEMS_MAX]
        }
    if isinstance(value, list | tuple):
        return [_kept(one, depth - 1, is_secret=is_secret) for one in value[:ITEMS_MAX]]
    return value


def _names_secret(name: str) -> bool:
    return SECRET_NAMES.search(name) is not None and NAMES_OF_SECRETS.search(name) is None


def _short(text: str) -> str:
    """Return a name that the family takes."""
    return "".join(character if character.isprintable() else "?" for character in text[:NAME_CHARACTERS_MAX])
