"""What the tests of tools start from: a context, and a volume in a folder."""

from pathlib import Path
from typing import Any

from loomlog.connectors.protocols import ToolContext, VolumeBinding
from loomlog.connectors.tools.thread_pool import CancellationToken
from loomlog.connectors.tools.volumes import Volume

STOP = CancellationToken()
"""Of a call that nobody cancels."""


def context(**changes: Any) -> ToolContext:
    fields: dict[str, Any] = {
        "run_id": "run-1",
        "session_id": "session-1",
        "agent_id": "agent-1",
        "agent": "writer",
        "tenant": "acme",
        "subject": "ann",
        "user_id": "user-1",
        "user_tier": "pro",
        "provider": "scripted",
        "model": "scripted-1",
        "tools": (),
        "idempotency_key": "key-1",
    }
    return ToolContext(**(fields | changes))


def binding(path: Path, *, name: str = "work", mode: str = "rw", is_default: bool = False) -> VolumeBinding:
    return VolumeBinding(name=name, path=str(path), mode=mode, is_default=is_default)


def volume(path: Path, *, mode: str = "rw") -> Volume:
    return Volume.from_binding(binding(path, mode=mode))
