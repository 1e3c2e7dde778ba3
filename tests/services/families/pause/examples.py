"""Commands of the pause family for the contract suite."""

from collections.abc import Sequence
from typing import Any

from loomlog.schemas.generated.pause_commands import LiftPause, SetPause
from loomlog.schemas.generated.values import CommandEnvelope


def examples(envelope: CommandEnvelope) -> Sequence[Any]:
    """Pauses of each scope: set, set twice, by a switch and by the same one again, lifted."""
    return [
        SetPause(envelope=envelope, scope="tenant", tenant="acme", reason="maintenance"),
        SetPause(envelope=envelope, scope="tenant", tenant="acme"),
        SetPause(envelope=envelope, scope="agent", agent="helper"),
        SetPause(envelope=envelope, scope="all", switch="s1"),
        SetPause(envelope=envelope, scope="all", switch="s1"),
        LiftPause(envelope=envelope, scope="agent", agent="helper"),
        LiftPause(envelope=envelope, scope="agent", agent="unknown"),
    ]
