"""Commands of the callback family for the contract suite."""

from collections.abc import Sequence
from typing import Any

from loomlog.schemas.generated.callback_commands import RequestCallback, SettleCallback
from loomlog.schemas.generated.values import CommandEnvelope


def examples(envelope: CommandEnvelope) -> Sequence[Any]:
    """Callbacks that are delivered, refused, and under way; and mistakes."""

    def request(run_id: str = "r_1", url: str = "https://a.example/x") -> RequestCallback:
        return RequestCallback(
            envelope=envelope, run_id=run_id, hook=0, url=url, body='{"a":1}', secret_env="CALLBACK_SECRET"
        )

    def settle(run_id: str = "r_1", attempt: int = 1, **fields: Any) -> SettleCallback:
        return SettleCallback(envelope=envelope, run_id=run_id, hook=0, attempt=attempt, **fields)

    return [
        request(),
        request("../x"),
        settle("r_3"),
        settle(status=500, error="it answered 500"),
        settle(status=200),
        request("r_2"),
        settle("r_2", error="not a public address", is_final=True),
        request("r_2"),
        request("r_4"),
    ]
