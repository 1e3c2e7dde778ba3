"""Uses of credentials as the log has them: within a second the first time, then with a count once a minute.

A use is known by credential, purpose, agent and user. Nothing waits for a note: a process that is killed loses those of
its last second, and the counts of its last minute; the first use of each was noted before that. What keys of providers
paid is in the ledger, call by call (credential_source).

Before: credentials.py, for every value that it gives. After: decide.py of the owner.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable

from loomlog.connectors.errors import ConnectorError
from loomlog.schemas.generated.identity_commands import NoteCredentialUses
from loomlog.schemas.generated.values import CommandEnvelope, CredentialUse
from loomlog.schemas.ids import fresh_token
from loomlog.schemas.records import Value, copy_as, replace
from loomlog.services.families.identity.limits import USE_CHARACTERS_MAX, USES_MAX
from loomlog.services.families.identity.state import shard_of_credential
from loomlog.services.stream.entities.answers import CommandUnanswered, EntityCommands

log = logging.getLogger(__name__)

FIRST_AFTER_S = 1.0
"""Seconds after which a first use is noted, with those of other runs."""
AGAIN_AFTER_S = 60.0
"""Seconds between two notes of the same use."""
WAIT_S = 10.0
CLOSE_S = 2.0
PENDING_MAX = 10_000
"""Uses of which a process knows; further ones are not noted, with a line in its log."""
SENDER = "credentials"


class UseKey(Value, frozen=True, kw_only=True):
    """What a use is known by."""

    tenant: str
    scope: str
    scope_id: str
    name: str
    purpose: str
    agent: str
    user: str


class CredentialUses:
    """Collects uses and notes them. `now_s` counts seconds and never jumps."""

    def __init__(
        self, commands: EntityCommands, *, clock_ms: Callable[[], int], first_after_s: float = FIRST_AFTER_S
    ) -> None:
        self._commands = commands
        self._clock_ms = clock_ms
        self._first_after_s = first_after_s
        self._pending: dict[UseKey, CredentialUse] = {}
        """What is to be noted."""
        self._noted_ms: dict[UseKey, int] = {}
        """When a use was noted last."""
        self._task: asyncio.Task[None] | None = None
        self._is_full = False

    def note(self, key: UseKey, version: int, run_id: str) -> None:
        """Count a use."""
        before = self._pending.get(key)
        if before is None and len(self._pending) >= PENDING_MAX:
            if not self._is_full:
                log.warning("more than %d uses of credentials wait to be noted: further ones are not", PENDING_MAX)
            self._is_full = True
            return
        self._pending[key] = copy_as(
            CredentialUse,
            key,
            version=version,
            purpose=key.purpose[:USE_CHARACTERS_MAX],
            agent=key.agent[:USE_CHARACTERS_MAX],
            user=key.user[:USE_CHARACTERS_MAX],
            run_id=run_id[:USE_CHARACTERS_MAX],
            count=1 if before is None else before.count + 1,
        )
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Note what waits, if the owners answer at once."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._send(list(self._pending))
        except TimeoutError:
            log.warning("%d uses of credentials are not noted", len(self._pending))

    async def _run(self) -> None:
        while self._pending:
            await asyncio.sleep(self._first_after_s)
            now_ms = self._clock_ms()
            again_ms = int(AGAIN_AFTER_S * 1000)
            self._noted_ms = {key: at_ms for key, at_ms in self._noted_ms.items() if now_ms - at_ms < again_ms}
            await self._send([key for key in self._pending if key not in self._noted_ms])

    async def _send(self, keys: list[UseKey]) -> None:
        shards: dict[tuple[str, str], list[UseKey]] = defaultdict(list)
        for key in keys:
            shards[key.tenant, shard_of_credential(key.scope, key.scope_id, key.name)].append(key)
        for (tenant, _), of_shard in shards.items():
            for start in range(0, len(of_shard), USES_MAX):
                await self._send_some(tenant, of_shard[start : start + USES_MAX])

    async def _send_some(self, tenant: str, keys: list[UseKey]) -> None:
        now_ms = self._clock_ms()
        uses = {key: self._pending.pop(key) for key in keys}
        self._is_full = False
        command = NoteCredentialUses(
            envelope=CommandEnvelope(
                command_id=f"uses.{fresh_token(now_ms)}",
                tenant=tenant,
                subject=SENDER,
                issued_at_ms=now_ms,
            ),
            uses=tuple(uses.values()),
        )
        try:
            await self._commands.ask(command, wait_s=WAIT_S)
            self._noted_ms |= dict.fromkeys(uses, now_ms)
        except (CommandUnanswered, ConnectorError) as error:
            log.warning("%d uses of credentials are noted later: %s", len(uses), error)
            self._keep(uses)
        except asyncio.CancelledError:
            self._keep(uses)
            raise

    def _keep(self, uses: dict[UseKey, CredentialUse]) -> None:
        for key, use in uses.items():
            newer = self._pending.get(key)
            self._pending[key] = use if newer is None else replace(newer, count=newer.count + use.count)
