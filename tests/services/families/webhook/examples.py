"""Commands of the family of webhooks for the contract suite."""

from collections.abc import Sequence
from typing import Any

from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.generated.webhook_commands import NoteRunEnded, ReceiveDelivery, RejectDelivery


def examples(envelope: CommandEnvelope) -> Sequence[Any]:
    """Deliveries that start runs or are published, repeated ones, replays, refusals; what became of them."""
    issues: dict[str, Any] = {"envelope": envelope, "name": "issues"}
    spawn = issues | {
        "agent": "helper",
        "user_id": "ada",
        "goal": "look at this",
        "run_metadata": {"repo": '"loomlog"'},
        "metadata": {"team": '"blue"'},
        "on_complete": ('{"kind":"channel.publish","channel":"done"}',),
        "received_at_ms": 1_000,
    }
    return (
        ReceiveDelivery(**spawn, delivery_id="d1", source_position="loom.ingress/0:7"),
        ReceiveDelivery(**spawn, delivery_id="d1"),
        ReceiveDelivery(**spawn, delivery_id="d2", credentials=("token",), operator_key_restricted=True),
        ReceiveDelivery(**spawn, delivery_id="d1", replay_of="d1", by="root"),
        ReceiveDelivery(**spawn, delivery_id="old", is_known=True, earlier_run_id="r_old"),
        ReceiveDelivery(**spawn, delivery_id="small", requests_per_minute=1, burst=1),
        ReceiveDelivery(**issues, delivery_id="c1", delivery="channel", channel="feed"),
        ReceiveDelivery(**issues, delivery_id="none", delivery="pigeon"),
        ReceiveDelivery(**spawn, delivery_id=""),
        RejectDelivery(**issues, verdict="rejected_sig", delivery_id="d3", detail="the signature is wrong"),
        RejectDelivery(**issues, verdict="rejected_sig", count=990),
        NoteRunEnded(**issues, delivery_id="c1", status="published"),
        NoteRunEnded(**issues, delivery_id="c1", status="refused", code="channel_not_declared"),
        NoteRunEnded(**issues, run_id="r_unknown", status="completed"),
    )
