"""Commands of the budget family for the contract suite."""

from collections.abc import Sequence
from typing import Any

from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.records import replace
from tests.services.families.budget.given import lost, release, reserve, settle, tenant_limit, user_limit


def examples(envelope: CommandEnvelope) -> Sequence[Any]:
    """A limit, calls that fit and one that does not, one that is lost and corrected, one that is released."""
    commands: list[Any] = [
        tenant_limit(hard_micros=100, currency="USD"),
        reserve("r:1.1", 50, 60),
        reserve("r:2.1", 50, 60),
        settle("r:1.1", 20, 10),
        reserve("r:2.1", 50, 60),
        lost("r:2.1"),
        settle("r:2.1", 30, 20),
        reserve("r:3.1", 5, 5),
        release("r:3.1"),
        user_limit(),
    ]
    return [replace(command, envelope=envelope) for command in commands]
