"""Commands of the memory family for the contract suite."""

from collections.abc import Sequence
from typing import Any

from loomlog.schemas.generated.memory_commands import DeleteEntry, DropScope, SetEntry, SupersedeEntry
from loomlog.schemas.generated.values import CommandEnvelope, MemorySource, MemorySpan, Provenance


def examples(envelope: CommandEnvelope) -> Sequence[Any]:
    """Keys of a user that are set, counted, archived and deleted; a fact; one that expires; a dropped scope."""
    ada: dict[str, Any] = {"envelope": envelope, "scope": "user", "scope_id": "ada"}
    team: dict[str, Any] = {"envelope": envelope, "scope": "tenant", "scope_id": ""}
    source = MemorySource(origin="agent_explicit", run_id="r_1", agent="helper", user_id="ada")
    fact = Provenance(
        fact_class="preference", origin="consolidator", spans=(MemorySpan(run_id="r_1", seq=3, start=0, end=9),)
    )
    return (
        SetEntry(**ada, key="colour", value='"red"', embed=True, embed_text="likes red", source=source),
        SetEntry(**ada, key="colour", value='"blue"', if_revision=0, source=source),
        SetEntry(**ada, key="count", value="1", op="incr", ttl_ms=60_000, source=source),
        SetEntry(**ada, key="memory/preference/tea", value='"tea"', provenance=fact, source=source),
        SetEntry(**ada, key="service", value='{"from": "a service"}'),
        SetEntry(**ada, key="", value="1", source=source),
        SetEntry(**ada, key="large", value='"12345678"', quota_bytes=8, source=source),
        SetEntry(**ada, key="broken", value="no json"),
        SupersedeEntry(**ada, key="memory/preference/tea", by_key="count", reason="moved on", source=source),
        DeleteEntry(**ada, key="colour", source=source),
        DeleteEntry(**ada, key="absent", source=source),
        SetEntry(**team, key="motto", value='"onward"', source=source),
        DropScope(**team, reason="the team is gone", source=source),
        SetEntry(**(ada | {"scope": "galaxy"}), key="k", value="1", source=source),
    )
