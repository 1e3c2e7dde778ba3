"""The hooks of a process: reads loom.hook.events completely, then follows it.

A runtime does so before it claims its first partition, so that no call bypasses a hook that was registered before; the
application layer before it accepts its first request.

Before: services/application/admin/hooks.py appends. After: services/runtime/tools/hooks.py calls them.
"""

from loomlog.schemas.codec import Codec
from loomlog.schemas.generated.stream_records import HookRegistered, HookRemoved
from loomlog.services.core.hooks import HookTable, InvalidHook
from loomlog.services.stream.global_tables.global_table import GlobalTable, TableFold

HOOKS = TableFold[HookTable, HookRegistered | HookRemoved](
    initial=HookTable(),
    apply=lambda table, record, _: table.apply(record),
    accepts=(HookRegistered, HookRemoved),
    invalid=(InvalidHook,),
)


class HookGlobalTable(GlobalTable[HookTable]):
    """The registered hooks, as far as this process has read."""

    def __init__(self, codec: Codec, topic: str) -> None:
        super().__init__(codec, topic, HOOKS)
