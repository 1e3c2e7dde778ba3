"""Commands of the family for the contract suite."""

from collections.abc import Sequence
from typing import Any

from loomlog.schemas.generated.approvals_commands import SetPolicy
from loomlog.schemas.generated.values import CommandEnvelope

DENY_ALL = '{"rules":[{"name":"none","then":"deny"}]}'


def examples(envelope: CommandEnvelope) -> Sequence[Any]:
    """Rules that are set, replaced, refused, outdated, restored and removed."""
    return [
        SetPolicy(envelope=envelope, text=DENY_ALL),
        SetPolicy(envelope=envelope, text='{"rules":[]}', replaces=1),
        SetPolicy(envelope=envelope, text='{"rules":[{"name":"x","then":"maybe"}]}'),
        SetPolicy(envelope=envelope, text=DENY_ALL, replaces=1),
        SetPolicy(envelope=envelope, text=DENY_ALL, restores=1),
    ]
