"""Memory in a runtime process: the Memory tool, and what it is made of.

Before: main.py. After: services/families/memory, services/families/database, services/families/consolidation.
"""

from collections.abc import Callable
from dataclasses import dataclass

from loomlog.connectors.configuration import ProcessConfiguration
from loomlog.connectors.configuration.principals import isolated_subjects
from loomlog.services.families.memory.entry_operations import EntryOperations, entry_limits
from loomlog.services.families.memory.operations import MemoryOperations
from loomlog.services.families.memory.store import MemoryStore
from loomlog.services.runtime.content.encryption import ContentEncryption
from loomlog.services.runtime.entity_hosting import EntityResources
from loomlog.services.runtime.tools.memory_tool import MemoryTool


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySetup:
    """What a runtime has of memory."""

    tool: MemoryTool


def open_memory(
    loaded: ProcessConfiguration,
    entities: EntityResources,
    *,
    encryption: ContentEncryption,
    clock_ms: Callable[[], int],
) -> MemorySetup:
    """Build the tool over the entities of this process."""
    settings = loaded.settings
    store = MemoryStore(entities.parts.client, entities.reads, clock_ms=clock_ms, decrypt=encryption.decrypt_json)
    entries = EntryOperations(store, entry_limits(settings.memory_max_value_bytes, settings.memory_max_scope_bytes))
    isolated = isolated_subjects(loaded.configuration)
    tool = MemoryTool(
        MemoryOperations(entries),
        is_isolated=lambda tenant, subject: (tenant, subject) in isolated,
        clock_ms=clock_ms,
    )
    return MemorySetup(tool=tool)
