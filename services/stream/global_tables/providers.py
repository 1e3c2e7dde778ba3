"""The availability of models as a process knows it: reads loom.provider.events completely, then follows it.

Every runtime and every process with the application layer has a table, so all replicas skip the same models. An
observation of the process itself counts at once (`apply_locally`) and is read again from the log like all others.

Before: services/runtime/models/availability.py and services/runtime/models/provider_probe.py append. After: the
resolver of agents, and the availability views.
"""

from loomlog.schemas.generated.stream_records import ModelMarked, ProbeRequested, ProviderProbed
from loomlog.services.core.availability import AvailabilityTable, ProviderRecord
from loomlog.services.stream.global_tables.global_table import TableFold

PROVIDERS = TableFold[AvailabilityTable, ProviderRecord](
    initial=AvailabilityTable(),
    apply=lambda table, record, _: table.apply(record),
    accepts=(ModelMarked, ProviderProbed, ProbeRequested),
)
