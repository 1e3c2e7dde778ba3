"""The hooks of a process: reads loom.hook.events whole, then follows it.

A runtime does so before it claims its first partition, so that no call slips past a hook that was registered before;
the command layer before it takes its first request.

Before: services/commands/hooks.py appends. After: services/runtime/hooks.py asks them.
"""

from schemas.codec import Codec
from schemas.stream_records import HookRegistered, HookRemoved
from services.core.hooks import HookTable, WrongHook
from services.stream.board import Board


class HookBoard(Board[HookTable]):
    """What is registered, as far as this process has read."""

    def __init__(self, codec: Codec, topic: str) -> None:
        super().__init__(codec, topic, table=HookTable(), kinds=(HookRegistered, HookRemoved), refusals=(WrongHook,))
