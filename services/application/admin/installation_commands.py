"""Commands to the aggregates of the whole installation: pauses and hooks.

They belong to no tenant, so their envelopes have none; who may give them is checked by the use case. An answer is given
once this process has read its events too, so that what it answers next follows from them.

Before: hooks.py, pauses.py. After: services/stream/entities/client.py, and the owner of the aggregate.
"""

from collections.abc import Callable
from typing import Any

from loomlog.connectors.errors import Transient
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.application import limits
from loomlog.services.application.errors import RETRY_SOON_S, bad_request, owner_refusal
from loomlog.services.application.request_context import command_id as make_command_id
from loomlog.services.application.request_context import current_request
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused
from loomlog.services.stream.entities.answers import Answer, CommandInvalid, CommandUnanswered
from loomlog.services.stream.entities.hosting import EntityParts


class InstallationCommands:
    """Sends the commands and waits for what this process reads of their events."""

    def __init__(
        self,
        entities: EntityParts,
        *,
        clock_ms: Callable[[], int],
        fresh_token: Callable[[], str],
        wait_s: float = limits.CONTROL_WAIT_S,
    ) -> None:
        """`wait_s` bounds the wait for the answer, and again that for its events."""
        self._entities = entities
        self._clock_ms = clock_ms
        self._fresh_token = fresh_token
        self._wait_s = wait_s

    def state(self, aggregate: str) -> Any:
        """Return the state of an aggregate as far as this process has read it."""
        return self._entities.replicas.state(aggregate)

    def envelope(self, caller: Caller) -> CommandEnvelope:
        """Return the envelope of a new command; of a repeated one, if the request has a key."""
        return CommandEnvelope(
            command_id=make_command_id(f"c_{self._fresh_token()}"),
            tenant="",
            subject=caller.subject,
            # Only the first sender knows when a repeated command was issued: 0 makes the owner look it up.
            issued_at_ms=0 if current_request.get().idempotency_key else self._clock_ms(),
        )

    async def send(self, command: Any, *, status_route: str) -> Answer:
        """Return the answer, whose events are in the log and, as a rule, read here.

        Raises Refused: the code of the refusal, or log_unavailable when it is unknown whether the command is
        carried out; `status_route` shows what is so.
        """
        try:
            answer = await self._entities.client.ask(command, wait_s=self._wait_s)
        except CommandInvalid as error:
            raise bad_request(str(error)) from error
        except (CommandUnanswered, Transient) as error:
            raise Refused(
                "log_unavailable",
                f"no owner has answered within {self._wait_s:g} s, and the command may still be carried out: "
                f"{status_route} tells what is so, and asking again does no harm",
                retry_after_s=RETRY_SOON_S,
                details={"outcome": "unknown"},
            ) from error
        last = answer.events[-1]
        if isinstance(last, CommandRefused):
            raise owner_refusal(last.code, last.message)
        await self._entities.replicas.wait(answer.partition, answer.offset, timeout_s=self._wait_s)
        return answer
