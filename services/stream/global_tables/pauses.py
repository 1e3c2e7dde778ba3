"""The pauses of a process: reads loom.control.events completely, then follows it.

Every process that applies or reports pauses has a table: a runtime before it claims its first partition, the
application layer before it accepts its first request. The topic is small: a record for each pause and each end of one.

Before: services/application/admin/pauses.py appends. After: services/stream/host.py applies them when `changed` is
called.
"""

from loomlog.schemas.codec import Codec
from loomlog.schemas.generated.stream_records import PauseSet
from loomlog.services.core.pauses import InvalidPause, PauseTable
from loomlog.services.stream.global_tables.global_table import PARTITION, GlobalTable, TableFold

__all__ = ["PARTITION", "PauseGlobalTable"]

PAUSES = TableFold[PauseTable, PauseSet](
    initial=PauseTable(),
    apply=lambda table, record, _: table.apply(record),
    accepts=(PauseSet,),
    invalid=(InvalidPause,),
)


class PauseGlobalTable(GlobalTable[PauseTable]):
    """Pauses wider than a run, as far as this process has read."""

    def __init__(self, codec: Codec, topic: str) -> None:
        super().__init__(codec, topic, PAUSES)
