"""The attempts of callbacks: the owner's process of a callback posts it and tells the log how that ended.

    POST <url>   Content-Type: application/json, and the headers of Standard Webhooks:
                 webhook-id          <run>:end:<hook>, the same for every attempt: receivers drop repeats by it
                 webhook-timestamp   seconds since 1970
                 webhook-signature   v1,<base64>  HMAC-SHA256 over "<id>.<timestamp>." and the body, for each secret

A process that dies between the post and its record has the request made again by the next owner, with the same id.
Addresses are those of tenants: each connection goes to an address that was checked, private ones are refused
(connectors/http/signed_callbacks.py). Which variable signs for which tenant and host is decided by the registry of
secrets; two of them, with a space between, both sign while one is replaced.

Before: sends.py, through the outbox. After: connectors/http/signed_callbacks.py.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from loomlog.connectors.configuration.secret_registry import (
    SecretRefused,
    SecretRegistry,
    SecretUnset,
    signature_secrets,
)
from loomlog.connectors.errors import ConnectorError, Permanent
from loomlog.connectors.http.signed_callbacks import standard_headers
from loomlog.connectors.process.logs import about
from loomlog.schemas.generated.callback_commands import SettleCallback
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.records import Value
from loomlog.services.core.bounded_resources import CALLBACKS
from loomlog.services.core.shares import Holder, ShareLimits, Shares
from loomlog.services.families.callback.sends import CallbackPost
from loomlog.services.families.callback.state import FAMILY_NAME, POSTING, Callback, aggregate_name, message_id
from loomlog.services.stream.entities.answers import CommandInvalid, CommandUnanswered, EntityCommands
from loomlog.services.stream.entities.reads import EntityReads, PositionNotRead

log = logging.getLogger(__name__)

TIMEOUT_S = 10.0
"""Bound of one attempt; far less than limits.py LOST_MS."""
WAITING_MAX = 10_000
"""Attempts that wait; further ones are begun again by the timers of their aggregates."""
SETTLE_WAIT_S = 5.0
SETTLE_TRIES = 5
GONE = 410
"""Status of a receiver that wants no more of it."""
OUTCOMES = ("delivered", "failed", "refused", "unknown")
"""How attempts end; unknown: the log did not take the end, so it is counted as what it was too."""
ABSENT = Callback()


class Receiver(Protocol):
    """Posts a request (connectors/http/signed_callbacks.py CallbackClient)."""

    async def notify(self, url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float) -> int:
        """Return the status of the answer, 200 to 299. Raises Transient, Permanent."""
        ...


class Outcome(Value, frozen=True, kw_only=True):
    """How an attempt has ended; without an error it was delivered."""

    status: int = 0
    error: str = ""
    is_final: bool = False


class CallbackPosts:
    """See the module."""

    def __init__(
        self,
        commands: EntityCommands,
        reads: EntityReads,
        receiver: Receiver,
        *,
        decrypt: Callable[[str, str], Awaitable[str]],
        secrets: SecretRegistry,
        clock_ms: Callable[[], int],
    ) -> None:
        """`decrypt` takes a text and its tenant."""
        self.ended: Counter[str] = Counter()
        """Attempts by their outcome."""
        self._commands = commands
        self._reads = reads
        self._receiver = receiver
        self._decrypt = decrypt
        self._registry = secrets
        self._clock_ms = clock_ms
        self._shares = Shares(CALLBACKS.name, CALLBACKS.shares)
        self._places = Shares("callbacks that wait", ShareLimits.of(WAITING_MAX))
        self._waiting: dict[int, tuple[str, CallbackPost]] = {}
        """Attempts that wait for their turn, by ticket."""
        self._known: set[tuple[str, str, int]] = set()
        """Callbacks that wait or are under way."""
        self._wakeup = asyncio.Event()

    def receive(self, post: CallbackPost, tenant: str) -> None:
        """Make an attempt soon (a receiver of the outbox)."""
        key, holder = (tenant, post.run_id, post.hook), _holder(tenant)
        if key not in self._known and not self._places.exhausted_bound(holder):
            self._known.add(key)
            self._places.add(holder)
            self._waiting[self._shares.wait(holder)] = (tenant, post)
            self._wakeup.set()

    async def run(self) -> None:
        """Make attempts, those of tenants in turn, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._wakeup.wait()
                self._wakeup.clear()
                while (ticket := self._shares.next()) is not None:
                    tasks.create_task(self._work(*self._waiting.pop(ticket)))

    async def _work(self, tenant: str, post: CallbackPost) -> None:
        try:
            await self.attempt(tenant, post)
        finally:
            self._known.discard((tenant, post.run_id, post.hook))
            self._places.release(_holder(tenant))
            self._shares.release(_holder(tenant))
            self._wakeup.set()

    async def attempt(self, tenant: str, post: CallbackPost) -> None:
        """Make an attempt that is still due, and tell the log how it ended."""
        callback = await self._load(tenant, post)
        if callback.status != POSTING or callback.attempt != post.attempt:
            return
        outcome = await self._deliver(callback, tenant)
        await self._settle(callback, tenant, outcome)

    async def _load(self, tenant: str, post: CallbackPost) -> Callback:
        """Return the callback; an absent one when it cannot be read, for its timer to try again."""
        name = aggregate_name(post.run_id, post.hook)
        try:
            row = await self._reads.local(FAMILY_NAME, tenant, name) or await self._reads.show(
                FAMILY_NAME, tenant, name
            )
        except (ConnectorError, PositionNotRead) as error:
            log.warning(
                "the callback %s waits: %s", message_id(post.run_id, post.hook), error, extra=about(post.run_id, tenant)
            )
            return ABSENT
        return ABSENT if row is None else row.entity.state

    async def _deliver(self, callback: Callback, tenant: str) -> Outcome:
        try:
            url = await self._decrypt(callback.url, tenant)
            secrets = self._secrets(callback.secret_env, url, tenant)
            body = (await self._decrypt(callback.body, tenant)).encode()
            headers = standard_headers(
                message_id(callback.run_id, callback.hook), body, secrets, self._clock_ms() // 1000
            )
            status = await self._receiver.notify(url, body, headers, timeout_s=TIMEOUT_S)
        except Permanent as error:
            # Without a status it never was a request: a private address, or content that was erased.
            return Outcome(status=error.status, error=str(error), is_final=error.status in (0, GONE))
        except (ConnectorError, ValueError) as error:
            return Outcome(status=getattr(error, "status", 0), error=str(error))
        return Outcome(status=status)

    def _secrets(self, name: str, url: str, tenant: str) -> list[str]:
        """Return the secrets of a variable that sign for an address. Raises ValueError without one, Permanent when the
        variable may not sign for it.
        """
        if not name:
            return []
        try:
            return signature_secrets(self._registry, name, url, tenant)
        except SecretUnset as error:  # another runtime may have it
            raise ValueError(f"secret_env: {error}") from error
        except SecretRefused as error:
            raise Permanent(f"secret_env: {error}", kind="refused") from error

    async def _settle(self, callback: Callback, tenant: str, outcome: Outcome) -> None:
        now_ms = self._clock_ms()
        which = message_id(callback.run_id, callback.hook)
        command = SettleCallback(
            envelope=CommandEnvelope(
                command_id=f"{which}:{callback.attempt}:{now_ms}", tenant=tenant, subject=which, issued_at_ms=now_ms
            ),
            run_id=callback.run_id,
            hook=callback.hook,
            attempt=callback.attempt,
            status=outcome.status,
            error=outcome.error,
            is_final=outcome.is_final,
        )
        self.ended["delivered" if not outcome.error else "refused" if outcome.is_final else "failed"] += 1
        if outcome.error:
            log.info("the callback %s is not delivered: %s", which, outcome.error)
        if not await self._ask(command):
            self.ended["unknown"] += 1
            log.warning("the end of attempt %d of the callback %s is not in the log", callback.attempt, which)

    async def _ask(self, command: Any) -> bool:
        """Ask the owner; whether it has answered. After its wait the attempt is begun again."""
        for _ in range(SETTLE_TRIES):
            try:
                await self._commands.ask(command, wait_s=SETTLE_WAIT_S)
                return True
            except (CommandUnanswered, ConnectorError) as error:
                log.debug("%s", error)
            except CommandInvalid:
                return False
        return False


def _holder(tenant: str) -> Holder:
    """Return for whom an attempt is made: hooks belong to the tenant."""
    return Holder(tenant=tenant, principal="")
