"""The pauses of a process: reads loom.control.events completely, then follows it.

Every process that applies or reports pauses has a table: a runtime before it claims its first partition, the
application layer before it accepts its first request. The topic is small: a record for each pause and each end of one.

Before: services/application/admin/pauses.py appends. After: services/stream/host.py applies them when `changed` is
called.
"""

from collections.abc import Callable

from loomlog.schemas.codec import Codec
from loomlog.schemas.generated.stream_records import PauseSet
from loomlog.schemas.records import Record
from loomlog.services.core.pauses import InvalidPause, PauseTable
from loomlog.services.stream.global_tables.global_table import PARTITION, GlobalTable, UnknownRecord

__all__ = ["PARTITION", "PauseGlobalTable"]


class PauseGlobalTable(GlobalTable):
    """Pauses wider than a run, as far as this process has read."""

    def __init__(self, codec: Codec, topic: str, *, changed: Callable[[], None] = lambda: None) -> None:
        super().__init__(codec, topic, changed=changed)
        self.table = PauseTable()

    def apply(self, record: Record) -> bool:
        if not isinstance(record, PauseSet):
            raise UnknownRecord(f"a {type(record).__name__}, expected a PauseSet")
        before = self.table
        try:
            self.table = before.apply(record)
        except InvalidPause as error:
            raise UnknownRecord(str(error)) from error
        return self.table != before
