"""What erasures of the families memory, database and consolidation have in common: scopes, and how they ask owners.

Before: erasure.py of each. After: author.py; services/stream/entities/client.py.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.values import CommandEnvelope, MemorySource
from loomlog.schemas.ids import hashed_token
from loomlog.services.core.families import name_problem
from loomlog.services.core.refusals import Refused
from loomlog.services.families.memory.author import USER, Scope, named_scope
from loomlog.services.families.ports.content_erasure import ErasedSubject, ErasureRequest
from loomlog.services.stream.entities.answers import EntityCommands

REASON = "erased"
WAIT_S = 5.0


def scope_of_subject(subject: ErasedSubject) -> Scope | None:
    """Return the scope of a user; None for one whose name no scope can have."""
    try:
        scope = named_scope(subject.tenant, USER, subject.user)
    except Refused:
        return None
    return None if name_problem(scope.aggregate) else scope


class ErasureCommands:
    """Asks the owners of the aggregates of a family to erase."""

    def __init__(self, family: str, commands: EntityCommands, clock_ms: Callable[[], int]) -> None:
        self._family = family
        self._commands = commands
        self._clock_ms = clock_ms

    async def ask(self, record: type[Any], scope: Scope, erasure: ErasureRequest) -> Sequence[Any]:
        """Return the events of a command for a scope.

        Raises Refused, CommandUnanswered, CommandInvalid, ConnectorError.
        """
        envelope = CommandEnvelope(
            command_id=hashed_token("erasure", scope.tenant, erasure.id, self._family, scope.aggregate),
            tenant=scope.tenant,
            subject=erasure.by,
            issued_at_ms=self._clock_ms(),
        )
        reasons: Mapping[str, Any] = {
            "reason": REASON,
            "source": MemorySource(origin="operator", principal=erasure.by),
        }
        fields = {name: value for name, value in reasons.items() if name in record.__struct_fields__}
        command = record(envelope=envelope, scope=scope.name, scope_id=scope.id, **fields)
        events = (await self._commands.ask(command, wait_s=WAIT_S)).events
        if isinstance(last := events[-1], CommandRefused):
            raise Refused(last.code, last.message)
        return events
