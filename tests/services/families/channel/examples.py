"""Commands of the channel family for the contract suite."""

from collections.abc import Sequence
from typing import Any

from loomlog.schemas.generated.channel_commands import (
    AckCursor,
    PublishMessage,
    PurgeQueue,
    ReadQueue,
    SettleLease,
    WatchQueue,
)
from loomlog.schemas.generated.values import CallRef, CommandEnvelope

DELAY_MS = 90_000


def examples(envelope: CommandEnvelope) -> Sequence[Any]:
    """A queue of a user that is published to, read, watched and purged; calls that wait; a queue of the tenant."""
    ada: dict[str, Any] = {"envelope": envelope, "channel": "work/in", "scope": "user", "scope_id": "ada"}
    team: dict[str, Any] = {"envelope": envelope, "channel": "plan", "scope": "tenant", "scope_id": ""}
    later_ms = envelope.issued_at_ms + DELAY_MS
    return (
        PublishMessage(**ada, value='{"n": 1}', ttl_ms=600_000, publisher="ada"),
        PublishMessage(**ada, value="2", max_messages=1),
        PublishMessage(**ada, value='"later"', deliver_at_ms=later_ms),
        PublishMessage(**ada, value="no json"),
        WatchQueue(**ada, call=CallRef(run_id="r_1", turn=1, index=0), until_ms=later_ms - 1_000),
        ReadQueue(**ada, max_messages=4),
        SettleLease(**ada, lease_id="c5", taken=0),
        ReadQueue(**ada, reader="audit", max_messages=1, call=CallRef(run_id="r_2", turn=1, index=0)),
        AckCursor(**ada, cursor="cur_0"),
        ReadQueue(**team, call=CallRef(run_id="r_3", turn=2, index=1), wait_until_ms=later_ms),
        PublishMessage(**team, value="[1, 2]"),
        ReadQueue(**team, call=CallRef(run_id="r_4", turn=1, index=0), wait_until_ms=later_ms),
        PurgeQueue(**ada),
        PublishMessage(**(ada | {"scope": "galaxy"}), value="1"),
    )
