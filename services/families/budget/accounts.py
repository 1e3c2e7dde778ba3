"""The budgets as one process reads and asks them: limits and usage without a round trip, commands to the owner.

A run without limits costs nothing here: whether one applies is read from the replica. A decision that must be right
(may this call be made) is the owner's; one that must be fresh (may this run start) lets the replica catch up first. The
replica may lag, so a process says with each start which limits it knows (`limits_position`).

Commands go by EntityClient, in memory where the partition is owned, and those of one moment together.

Before: reservations.py, spending_limits.py. After: services/stream/entities.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

from loomlog.connectors.errors import ConnectorError, Transient
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.retries import until_answered
from loomlog.schemas.generated.budget_commands import ReleaseBudget, RemoveLimit, ReserveBudget, SetLimit, SettleBudget
from loomlog.schemas.generated.budget_events import BudgetRefused
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.values import CommandEnvelope, LimitNotice
from loomlog.services.core.families import aggregate_key
from loomlog.services.families.budget import INSTALLATION
from loomlog.services.families.budget.amounts import exhausted
from loomlog.services.families.budget.state import BudgetState, Limit, limited
from loomlog.services.stream.entities.answers import Answer, CommandInvalid, CommandUnanswered
from loomlog.services.stream.entities.hosting import EntityParts

log = logging.getLogger(__name__)

CATCH_UP_S = 5.0
"""Seconds a start waits until this process has read what was in the log when the start arrived."""
READ_WAIT_S = 5.0
"""Seconds to wait until this process has read the event that answered it in memory; usually milliseconds."""
PUBLISH_WAIT_S = 60.0
"""Seconds for which a command without a waiting sender is tried."""
RETRY_S = 0.2
PUBLISHED_MAX = 20_000
"""Commands without a waiting sender that may be under way. More mean that the broker is away."""
NO_BUDGETS = BudgetState()

BudgetCommand = SetLimit | RemoveLimit | ReserveBudget | SettleBudget | ReleaseBudget


class BudgetAccounts:
    """Budgets of one process, which is called `name`; `fresh_token` makes command ids."""

    def __init__(
        self, parts: EntityParts, *, clock_ms: Callable[[], int], fresh_token: Callable[[], str], name: str
    ) -> None:
        self.partition = partition_of(aggregate_key(INSTALLATION), parts.replicas.partitions)
        self._replicas = parts.replicas
        self._client = parts.client
        self._clock_ms = clock_ms
        self._fresh_token = fresh_token
        self._name = name
        self._changed = asyncio.Event()
        self._limits: Mapping[str, Limit] = {}
        self._limits_position = ""
        self._published: set[asyncio.Task[None]] = set()
        parts.replicas.on_change("budget", self._on_change)

    # --- queries -----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> BudgetState:
        """The budgets, as far as this process has read."""
        entity = self._replicas.entity(INSTALLATION)
        return NO_BUDGETS if entity is None else entity.state

    def limits_position(self) -> str:
        """Return the position of the newest change of limits that this process has read, or a later one; or nothing."""
        limits = self.state.limits
        if limits is not self._limits and (limits or self._limits):
            self._limits, self._limits_position = limits, self._replicas.position(INSTALLATION)
        return self._limits_position

    def applies(self, tenant: str, user_id: str) -> bool:
        """Whether any limit applies to a run of that user. The only check for a run without limits."""
        return bool(limited(self.state, tenant, user_id))

    def exhausted(self, tenant: str, user_id: str) -> LimitNotice | None:
        """Return the hard limit that is exhausted now."""
        return exhausted(self.state, tenant, user_id, self._clock_ms())

    async def caught_up(self) -> None:
        """Wait until everything that is in the log now is read. Raises Transient, also when it is quarantined."""
        await self._replicas.caught_up(self.partition, timeout_s=CATCH_UP_S)
        entity = self._replicas.entity(INSTALLATION)
        if entity is not None and entity.quarantine:
            raise Transient(f"{INSTALLATION} is quarantined: {entity.quarantine}", kind="unavailable")

    async def wait_for_change(self) -> None:
        """Wait until more events of the budgets are read."""
        await self._changed.wait()

    def _on_change(self) -> None:
        self.limits_position()
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # --- commands ----------------------------------------------------------------------------------------------------

    def envelope(self, subject: str = "") -> CommandEnvelope:
        """Return the envelope of a new command."""
        return CommandEnvelope(
            command_id=f"b_{self._fresh_token()}",
            tenant="",
            subject=subject or self._name,
            issued_at_ms=self._clock_ms(),
        )

    async def reserve(self, command: ReserveBudget, *, wait_s: float) -> BudgetRefused | None:
        """Return None when the worst case of a call is reserved, otherwise why it is not.

        Raises CommandUnanswered, CommandInvalid and Transient.
        """
        answer = await self._client.ask(command, wait_s=wait_s)
        for event in reversed(answer.events):
            if isinstance(event, BudgetRefused):
                await self._read(answer)  # the wait for capacity looks at the state that led to it, or a later one
                return event
            if isinstance(event, CommandRefused):
                may_fit = event.code == "state_too_large"  # as too many open reservations: some end
                return BudgetRefused(id=command.id, tenant=command.tenant, code=event.code, may_fit=may_fit)
        return None

    async def request(self, command: BudgetCommand, *, wait_s: float) -> Answer:
        """Return the answer to a command when this process has read its events.

        Raises CommandUnanswered, CommandInvalid and Transient.
        """
        answer = await self._client.ask(command, wait_s=wait_s)
        await self._read(answer)
        return answer

    async def _read(self, answer: Answer) -> None:
        await self._replicas.wait(answer.partition, answer.offset, timeout_s=READ_WAIT_S)

    def publish(self, command: BudgetCommand) -> None:
        """Send a command without waiting. It is dropped when too many are: reservations also end by themselves."""
        if len(self._published) >= PUBLISHED_MAX:
            log.error("a %s is dropped: %d are under way", type(command).__name__, len(self._published))
            return
        task = asyncio.get_running_loop().create_task(self._publish(command))
        self._published.add(task)
        task.add_done_callback(self._published.discard)

    async def _publish(self, command: BudgetCommand) -> None:
        try:
            async with asyncio.timeout(PUBLISH_WAIT_S):
                ask = partial(self._client.ask, command, wait_s=PUBLISH_WAIT_S)
                await until_answered(ask, f"the budget of {self._name}", failures=(ConnectorError,), retry_s=RETRY_S)
        except (TimeoutError, CommandUnanswered, CommandInvalid) as error:
            log.warning("a %s of %s has no answer: %s", type(command).__name__, self._name, error)
