"""Commands of the consolidation family for the contract suite."""

from collections.abc import Sequence
from typing import Any

from loomlog.schemas.generated.consolidation_commands import (
    AckPending,
    AdvanceTarget,
    BankPending,
    DropTarget,
    LeaseTarget,
    NoteSettledChat,
    ReleaseTarget,
)
from loomlog.schemas.generated.values import BlobRef, CommandEnvelope, MemorySource
from loomlog.schemas.records import replace
from loomlog.services.families.consolidation.state import initial, pending_id


def examples(envelope: CommandEnvelope) -> Sequence[Any]:
    """Dialogue of a user that is banked, leased, acknowledged, passed and dropped; another run and wrong scopes are
    refused.
    """
    of_user: dict[str, Any] = {"envelope": envelope, "scope": "user", "scope_id": "ada"}
    of_agent: dict[str, Any] = {"envelope": envelope, "scope": "agent", "scope_id": "helper"}
    of_tenant: dict[str, Any] = {"envelope": envelope, "scope": "tenant", "scope_id": ""}
    target = replace(initial(f"consolidation:{envelope.tenant}/user/ada"), last_number=9)
    source = MemorySource(origin="agent_explicit", run_id="r_1", session_id="s_1", agent="helper", user_id="ada")

    def bank(text: str, of: dict[str, Any] = of_user, **fields: Any) -> BankPending:
        stored = {"payload": text, "payload_bytes": len(text), "origin": "agent_explicit", "source": source}
        return BankPending(**of, **{**stored, **fields})

    return [
        bank('{"content":"I like tea"}'),
        bank('{"content":"I moved to Rome"}', origin="compaction"),
        bank("", payload_blob=BlobRef(sha256="0" * 64, size_bytes=90_000), payload_bytes=90_000),
        bank("{}", origin="nobody"),
        bank('{"content":"we ship on Fridays"}', of=of_agent),
        NoteSettledChat(**of_tenant),
        LeaseTarget(**of_user, owner="r_1"),
        LeaseTarget(**of_user, owner="r_2"),
        LeaseTarget(**of_user, owner="r_2", lease_ms=0),
        AckPending(**of_user, owner="r_1", ids=(pending_id(target, 2),)),
        AckPending(**of_user, owner="r_2", ids=(pending_id(target, 1),)),
        AdvanceTarget(**of_user, owner="r_1", completed_at_ms=1_600_000_000_000, session_id="s_1"),
        AdvanceTarget(**of_user, owner="r_1", completed_at_ms=1_500_000_000_000, session_id="s_0"),
        AdvanceTarget(**of_user, owner="r_1", completed_at_ms=2**62, session_id="s_2"),
        ReleaseTarget(**of_user, owner="r_1", has_more=True),
        ReleaseTarget(**of_user, owner="r_1"),
        DropTarget(**of_user),
        NoteSettledChat(**of_user),
        DropTarget(envelope=envelope, scope="run", scope_id="r_1"),
        LeaseTarget(envelope=envelope, scope="run", scope_id="r_1", owner="r_1"),
    ]
