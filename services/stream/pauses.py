"""The pauses of a process: reads loom.control.events whole, then follows it.

Every process that has to obey or to tell pauses keeps one board: a runtime before it claims its first partition, the
command layer before it takes its first request. The topic is small (a record for each pause and each end of one), so
it is read from its beginning; that needs no snapshot and no group.

Before: services/commands/pausing.py appends. After: host.py obeys, when `changed` is called.
"""

from collections.abc import Callable

from schemas.codec import Codec
from schemas.stream_records import PauseSet
from services.core.pauses import PauseTable, WrongPause
from services.stream.board import PARTITION, Board

__all__ = ["PARTITION", "PauseBoard"]


class PauseBoard(Board[PauseTable]):
    """What is paused wider than a run, as far as this process has read."""

    def __init__(self, codec: Codec, topic: str, *, changed: Callable[[], None] = lambda: None) -> None:
        super().__init__(codec, topic, table=PauseTable(), kinds=(PauseSet,), refusals=(WrongPause,), changed=changed)
