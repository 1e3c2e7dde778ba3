"""Commands of the mcp family for the contract suite."""

from collections.abc import Sequence
from typing import Any

from loomlog.schemas.generated.mcp_commands import RecordListingFailure, RecordTools
from loomlog.schemas.generated.values import CommandEnvelope


def examples(envelope: CommandEnvelope) -> Sequence[Any]:
    """A server that lists, lists the same, fails, fails again, lists others, and one whose list is too large."""

    def listed(digest: str, server: str = "crm", tools: str = "[]") -> RecordTools:
        return RecordTools(
            envelope=envelope,
            server=server,
            def_id="mdf_1",
            revision="2025-11-25",
            digest=digest,
            tools=tools,
            problems=("one",),
            source="start",
        )

    def failed(error: str) -> RecordListingFailure:
        return RecordListingFailure(envelope=envelope, server="crm", def_id="mdf_1", error=error, source="start")

    return [
        listed("a"),
        listed("a"),
        failed("no answer"),
        failed("no answer"),
        listed("b", tools='[{"name": "x"}]'),
        listed("c", server="large", tools="x" * 300_001),
    ]
