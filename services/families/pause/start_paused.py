"""Paused startup: LOOMLOG_START_PAUSED pauses everything before the first call is made.

It sends the command of POST /v1/_pause, so the pause outlives this process and `loomlog resume` lifts it. The command
names the value of the switch, and the owner of the pauses lets each value take effect once: an operator who restores an
installation starts it paused, inspects it and resumes; a replica that crashes afterwards and restarts with the same
environment continues.

The owner may be a process that is only starting, this one included, so there is no decision to wait for before
partitions are taken. Until the replica of this process shows that the value was used, everything is paused here: runs
of its partitions are paused in the log as by the pause itself, under the same scope, and what the log says counts from
then on. If the value was used meanwhile and the pause is lifted again, these runs continue. So no call is made before
it is known whether it may be, whichever process decides and however many start together. A process that reads a used
value at its start pauses nothing.

Not chosen: claiming the entity partitions before those of runs (the pauses may belong to a process that does not
answer, and runs would have no owner meanwhile).

Before: services.py. After: the owner of the pauses.
"""

import logging
from functools import partial
from typing import Any, Protocol

from loomlog.connectors.errors import Transient
from loomlog.connectors.retries import until_answered
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.pause_commands import SetPause
from loomlog.schemas.generated.pause_events import PauseSet
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.core.pauses import ALL
from loomlog.services.families.pause import PAUSES
from loomlog.services.families.pause.state import PauseTable, evolve
from loomlog.services.stream.entities.answers import CommandUnanswered, EntityCommands

log = logging.getLogger("loomlog.runtime")

REASON = "start-paused"
ASK_S = 10.0
"""Seconds that the command waits for its answer before it is sent again, under the same id."""


class States(Protocol):
    """Protocol of loomlog.services.stream.entities.replicas.Replicas: states of aggregates as far as they are read."""

    def state(self, aggregate: str) -> Any: ...


class StartRefused(Exception):
    """The pause was refused: the process may not work, because it was to come up paused."""


class StartPause:
    """The pauses of this process, with that of the switch until it is decided. `switch` empty: there is none."""

    def __init__(self, states: States, *, switch: str, by: str, at_ms: int) -> None:
        """`states` has been read to the end of the log. `at_ms`: now, UTC milliseconds."""
        self._states = states
        self._switch = switch
        self._reason = REASON if switch == "1" else f"{REASON} {switch}"
        self._by = by
        self._at_ms = at_ms
        if switch and switch in self._read().used_switches:
            self._switch = ""
            log.warning(
                "LOOMLOG_START_PAUSED=%s has paused this installation before, so it pauses nothing now; "
                "another value does",
                switch,
            )

    @property
    def is_pending(self) -> bool:
        """Whether it is not known yet that the value was used."""
        return bool(self._switch)

    def table(self) -> PauseTable:
        """Return the pauses that apply to the runs of this process now."""
        table = self._read()
        if not self._switch:
            return table
        if self._switch in table.used_switches:
            self._switch = ""  # for good: a value that was used stays so
            return table
        if table.find(ALL, "", "") is not None:
            return table
        pause = PauseSet(scope=ALL, reason=self._reason, by=self._by)
        return evolve(table, pause, self._at_ms)

    async def ask(self, commands: EntityCommands) -> None:
        """Have the pause decided, however long that takes. Raises StartRefused, CommandInvalid."""
        switch = self._switch
        if not switch:
            return
        envelope = CommandEnvelope(
            command_id=f"{REASON}:{switch}", tenant="", subject=self._by, issued_at_ms=self._at_ms
        )
        command = SetPause(envelope=envelope, scope=ALL, reason=self._reason, switch=switch)
        answer = await until_answered(
            partial(commands.ask, command, wait_s=ASK_S),
            "LOOMLOG_START_PAUSED, until which everything stays paused here,",
            failures=(CommandUnanswered, Transient),
        )
        last = answer.events[-1]
        if isinstance(last, CommandRefused):
            raise StartRefused(f"LOOMLOG_START_PAUSED={switch[:80]}: {last.message}")
        log.warning("everything is paused because LOOMLOG_START_PAUSED is set; `loomlog resume` lifts it")

    def _read(self) -> PauseTable:
        table: PauseTable = self._states.state(PAUSES)
        return table
