"""The tools that clients offer, as a process knows them: reads loom.client.events completely, then follows it.

A runtime does so before it claims its first partition. While it follows, an api counts as seen when its record arrives,
so that no two clocks are compared; what is read at the start is as old as its timestamps.

Before: services/application/clients/connections.py appends. After: services/runtime/tools/client_tools.py.
"""

from collections.abc import Callable

from loomlog.schemas.generated.stream_records import ClientHostAlive, ClientLeft, ClientRegistered
from loomlog.services.core.clients.table import ClientRecord, ClientTable
from loomlog.services.stream.global_tables.global_table import RecordOrigin, TableFold


def clients(clock_ms: Callable[[], int]) -> TableFold[ClientTable, ClientRecord]:
    """Return the fold of client tools; `clock_ms` is when a record that arrives is seen."""

    def apply(table: ClientTable, record: ClientRecord, origin: RecordOrigin) -> ClientTable:
        now_ms = clock_ms()
        return table.apply(record, now_ms if origin.is_new else min(now_ms, record.at_ms))

    return TableFold(
        initial=ClientTable(),
        apply=apply,
        accepts=(ClientRegistered, ClientLeft, ClientHostAlive),
    )
