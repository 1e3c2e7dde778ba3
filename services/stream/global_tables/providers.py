"""The availability of models as a process knows it: reads loom.provider.events whole, then follows it.

Every runtime and every process with a command layer keeps one board, so all replicas pass over the same models. What a
process has just seen itself counts for it at once (`note`) and comes again from the log like everybody else's.

Before: services/runtime/models/availability.py and services/runtime/models/provider_probe.py append. After: whoever
resolves an agent or shows the matrix.
"""

from collections.abc import Callable

from loomlog.schemas.codec import Codec
from loomlog.schemas.generated.stream_records import ModelMarked, ProbeRequested, ProviderProbed
from loomlog.schemas.records import Record
from loomlog.services.core.availability import AvailabilityTable, InvalidMark, ProviderRecord
from loomlog.services.stream.global_tables.global_table import PARTITION, GlobalTable, UnknownRecord

__all__ = ["PARTITION", "ProviderGlobalTable"]


class ProviderGlobalTable(GlobalTable):
    """The matrix, as far as this process has read."""

    def __init__(self, codec: Codec, topic: str, *, changed: Callable[[], None] = lambda: None) -> None:
        super().__init__(codec, topic, changed=changed)
        self.matrix = AvailabilityTable()

    def apply(self, record: Record) -> bool:
        if not isinstance(record, ModelMarked | ProviderProbed | ProbeRequested):
            raise UnknownRecord(f"a {type(record).__name__}, expected something about a provider")
        before = self.matrix
        self.publish_locally(record)
        return self.matrix != before

    def publish_locally(self, record: ProviderRecord) -> None:
        """The record counts from now on. Raises UnknownRecord.

        Folding a record twice changes nothing, and the log's order has the last word, because every record that was
        noted is read from the log again.
        """
        try:
            self.matrix = self.matrix.apply(record)
        except InvalidMark as error:
            raise UnknownRecord(str(error)) from error
