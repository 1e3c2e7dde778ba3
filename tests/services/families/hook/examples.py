"""Commands of the hook family for the contract suite."""

from collections.abc import Sequence
from typing import Any

from loomlog.schemas.generated.hook_commands import RegisterHook, RemoveHook
from loomlog.schemas.generated.values import CommandEnvelope


def examples(envelope: CommandEnvelope) -> Sequence[Any]:
    """Hooks of two owners: registered, replaced, refused, removed by their tenant and by another one."""

    def register(name: str, phase: str = "pre", **fields: Any) -> RegisterHook:
        return RegisterHook(
            envelope=envelope,
            hook_id=f"h_{name}",
            tenant="acme",
            owner="ada",
            name=name,
            phase=phase,
            callback_url="http://127.0.0.1:9/hook",
            **fields,
        )

    return [
        register("audit", agents=("helper",)),
        register("mask", phase="post", tools=("Read",), fail_mode="closed"),
        register("audit", timeout_ms=500),
        register("wrong", phase="later"),
        RemoveHook(envelope=envelope, hook_id="h_mask", of_tenant="other"),
        RemoveHook(envelope=envelope, hook_id="h_mask"),
    ]
