"""The tools that clients offer, as a process knows them: reads loom.client.events completely, then follows it.

A runtime does so before it claims its first partition. While it follows, an api counts as seen when its record arrives,
so that no two clocks are compared; what is read at the start is as old as its timestamps.

Before: services/application/clients/connections.py appends. After: services/runtime/tools/client_tools.py.
"""

from collections.abc import Callable

from loomlog.connectors.protocols import LogTail
from loomlog.schemas.codec import Codec
from loomlog.schemas.generated.stream_records import ClientHostAlive, ClientLeft, ClientRegistered
from loomlog.schemas.records import Record
from loomlog.services.core.clients.table import ClientTable, TooManyClients
from loomlog.services.stream.global_tables.global_table import PARTITION, GlobalTable, UnknownRecord

__all__ = ["PARTITION", "ClientGlobalTable"]


class ClientGlobalTable(GlobalTable):
    """The table, as far as this process has read."""

    def __init__(self, codec: Codec, topic: str, *, clock_ms: Callable[[], int]) -> None:
        super().__init__(codec, topic)
        self.table = ClientTable()
        self._clock_ms = clock_ms
        self._follows = False

    def apply(self, record: Record) -> bool:
        if not isinstance(record, ClientRegistered | ClientLeft | ClientHostAlive):
            raise UnknownRecord(f"a {type(record).__name__}, expected something about a client")
        before, now_ms = self.table, self._clock_ms()
        try:
            self.table = before.apply(record, now_ms if self._follows else min(now_ms, record.at_ms))
        except TooManyClients as error:
            raise UnknownRecord(str(error)) from error
        return self.table is not before

    async def follow(self, tail: LogTail) -> None:
        self._follows = True
        await super().follow(tail)
