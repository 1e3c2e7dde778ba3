"""Commands to the aggregates of the whole installation: pauses and hooks.

They belong to no tenant, so their envelopes have none. An answer is given once this process has read its events too, so
that what it answers next follows from them.

Before: services/families/hook/handlers.py, services/families/pause/handlers.py. After:
services/stream/entities/client.py, and the owner of the aggregate.
"""

from typing import Any

from loomlog.connectors.errors import Transient
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.records import replace
from loomlog.services.core.operations import Call
from loomlog.services.core.refusals import Refused, Unavailable, decided_refusal
from loomlog.services.stream.entities.answers import Answer, CommandInvalid, CommandUnanswered, EntityCommands
from loomlog.services.stream.entities.replicas import Replicas

WAIT_S = 5.0


class InstallationCommands:
    """Sends the commands and waits for what this process reads of their events."""

    def __init__(self, commands: EntityCommands, replicas: Replicas, *, wait_s: float = WAIT_S) -> None:
        """`wait_s` bounds the wait for the answer, and again that for its events."""
        self._commands = commands
        self._replicas = replicas
        self.wait_s = wait_s

    def state(self, aggregate: str) -> Any:
        """Return the state of an aggregate as far as this process has read it."""
        return self._replicas.state(aggregate)

    async def send(self, command: Any, *, status_route: str) -> Answer:
        """Return the answer, whose events are in the log and, as a rule, read here.

        Raises Refused with the code of the refusal, and Unavailable when it is unknown whether the command is carried
        out; `status_route` shows what is so.
        """
        try:
            answer = await self._commands.ask(command, wait_s=self.wait_s)
        except CommandInvalid as error:
            raise Refused("bad_request", str(error)) from error
        except (CommandUnanswered, Transient) as error:
            raise Unavailable(
                f"no owner has answered within {self.wait_s:g} s, and the command may still be carried out: "
                f"{status_route} tells what is so, and asking again does no harm",
                is_unknown=True,
                code="log_unavailable",
                details={"outcome": "unknown"},
            ) from error
        last = answer.events[-1]
        if isinstance(last, CommandRefused):
            raise decided_refusal(last.code, last.message)
        await self._replicas.wait(answer.partition, answer.offset, timeout_s=self.wait_s)
        return answer


def installation_envelope(call: Call[Any]) -> CommandEnvelope:
    """Return the envelope of the command of an operation on the installation."""
    return replace(call.envelope(), tenant="")
