"""The availability of models as a process knows it: reads loom.provider.events completely, then follows it.

Every runtime and every process with the application layer has a table, so all replicas skip the same models. An
observation of the process itself counts at once (`publish_locally`) and is read again from the log like all others.

Before: services/runtime/models/availability.py and services/runtime/models/provider_probe.py append. After: the
resolver of agents, and the availability views.
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
        """Apply the record at once. Raises UnknownRecord.

        Folding a record twice changes nothing, and the order of the log decides, because every such record is read from
        the log again.
        """
        try:
            self.matrix = self.matrix.apply(record)
        except InvalidMark as error:
            raise UnknownRecord(str(error)) from error
