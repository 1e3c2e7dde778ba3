"""The hooks of a process: reads loom.hook.events completely, then follows it.

A runtime does so before it claims its first partition, so that no call bypasses a hook that was registered before; the
application layer before it accepts its first request.

Before: services/application/admin/hooks.py appends. After: services/runtime/tools/hooks.py calls them.
"""

from loomlog.schemas.codec import Codec
from loomlog.schemas.generated.stream_records import HookRegistered, HookRemoved
from loomlog.schemas.records import Record
from loomlog.services.core.hooks import HookTable, InvalidHook
from loomlog.services.stream.global_tables.global_table import GlobalTable, UnknownRecord


class HookGlobalTable(GlobalTable):
    """The registered hooks, as far as this process has read."""

    def __init__(self, codec: Codec, topic: str) -> None:
        super().__init__(codec, topic)
        self.table = HookTable()

    def apply(self, record: Record) -> bool:
        if not isinstance(record, HookRegistered | HookRemoved):
            raise UnknownRecord(f"a {type(record).__name__}, expected a HookRegistered or a HookRemoved")
        before = self.table
        try:
            self.table = before.apply(record)
        except InvalidHook as error:
            raise UnknownRecord(str(error)) from error
        return self.table is not before
