"""Commands of the family of erasures for the contract suite."""

from collections.abc import Sequence
from typing import Any

from loomlog.schemas.generated.erasure_commands import EraseRuns
from loomlog.schemas.generated.values import CommandEnvelope


def examples(envelope: CommandEnvelope) -> Sequence[Any]:
    """A person who is erased twice, one of whom there is no run, and a command that is too large."""

    def erase(subject: str, *run_ids: str, in_clear: bool = False) -> EraseRuns:
        fields = {"erasure_id": "e_1", "subject": subject, "run_ids": run_ids, "in_clear": in_clear, "by": "op"}
        return EraseRuns(envelope=envelope, **fields)

    twice = [erase("ivy", "r_1", "r_2"), erase("ivy", "r_3", in_clear=True)]
    return [*twice, erase("(tenant)"), erase("bob", *"a" * 10_001)]
