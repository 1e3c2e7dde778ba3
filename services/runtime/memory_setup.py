"""Memory in a runtime process: the Memory tool, memory in prompts, and what they are made of.

Before: main.py. After: services/families/memory, services/families/database, services/families/consolidation.
"""

from collections.abc import Callable
from dataclasses import dataclass

from loomlog.connectors.configuration import ProcessConfiguration
from loomlog.connectors.configuration.principals import isolated_subjects
from loomlog.connectors.storage.blobs import FileBlobs
from loomlog.services.families.memory.author import Author
from loomlog.services.families.memory.entry_operations import EntryOperations, entry_limits
from loomlog.services.families.memory.operations import MemoryOperations
from loomlog.services.families.memory.prompt import bands_part
from loomlog.services.families.memory.store import Backend, MemoryStore
from loomlog.services.runtime.content.definition_texts import DefinitionTexts
from loomlog.services.runtime.content.encryption import ContentEncryption
from loomlog.services.runtime.entity_hosting import EntityResources
from loomlog.services.runtime.run.prompt_memory import PromptMemory
from loomlog.services.runtime.tools.memory_tool import MemoryTool


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySetup:
    """What a runtime has of memory."""

    tool: MemoryTool
    prompt_memory: Callable[[DefinitionTexts], PromptMemory]
    """Returns what fills the prompts of runs."""


def open_memory(
    loaded: ProcessConfiguration,
    entities: EntityResources,
    *,
    encryption: ContentEncryption,
    clock_ms: Callable[[], int],
) -> MemorySetup:
    """Build everything over the entities of this process."""
    settings = loaded.settings
    store = MemoryStore(entities.parts.client, entities.reads, clock_ms=clock_ms, decrypt=encryption.decrypt_json)
    entries = EntryOperations(store, entry_limits(settings.memory_max_value_bytes, settings.memory_max_scope_bytes))
    isolated = isolated_subjects(loaded.configuration)

    def is_isolated(tenant: str, subject: str) -> bool:
        return (tenant, subject) in isolated

    tool = MemoryTool(MemoryOperations(entries), is_isolated=is_isolated, clock_ms=clock_ms)
    consolidation = loaded.configuration.memory.consolidation

    async def own_backend(author: Author) -> Backend:
        return store

    def prompt_memory(texts: DefinitionTexts) -> PromptMemory:
        return PromptMemory(
            own_backend,
            texts=texts,
            blobs=FileBlobs(settings.effective_blob_folder),
            bands=bands_part(consolidation.merge_threshold, consolidation.related_threshold),
            encryption=encryption,
            is_isolated=is_isolated,
        )

    return MemorySetup(tool=tool, prompt_memory=prompt_memory)
