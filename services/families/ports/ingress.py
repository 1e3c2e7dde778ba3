"""What a process has that appends what comes from outside to loom.ingress; one that only reads it provides none.

Before: services/application/application.py. After: services.py of families that take requests from outside.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.protocols import LogRanges
from loomlog.schemas.generated.webhook_commands import SubmitDelivery
from loomlog.services.families.ports.run_watch import RunWatch

DECISION_WAIT_S = 1.0
"""How long a sender waits for the owner's decision and for the first event of the run."""


@dataclass(slots=True, kw_only=True)
class IngressLog:
    """The log, and what is heard of what was appended."""

    append: Callable[[str, str, SubmitDelivery], Awaitable[None]]
    """Appends a delivery for a tenant and a name; it is acknowledged when this returns. Raises Refused."""
    ranges: LogRanges
    read_positions: Callable[[str, str], Sequence[str]]
    """For a tenant and an agent, what the owner of a run must have read, because this process has."""
    runs: RunWatch
    secret: SecretKey | None
    """Seals credentials of bodies; None: such bodies are refused."""
    new_token: Callable[[], str]
    """Returns a token of the request that is handled: the same for a repetition with an Idempotency-Key."""
    wait_s: float = DECISION_WAIT_S
