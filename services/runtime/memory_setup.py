"""Memory in a runtime process: the Memory tool, memory in prompts, and what they are made of.

Before: main.py. After: services/families/memory, services/families/database, services/families/consolidation.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.connectors.configuration.principals import isolated_subjects
from loomlog.connectors.memory_peer.client import PeerClient
from loomlog.connectors.storage.blobs import FileBlobs
from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.schemas.generated.values import AgentDefinition
from loomlog.services.families.consolidation.chats import ReadModelChats
from loomlog.services.families.consolidation.decide import CONSOLIDATOR
from loomlog.services.families.consolidation.facts import FactLearning
from loomlog.services.families.consolidation.operations import ConsolidationOperations, ConsolidationPolicy
from loomlog.services.families.database.files import DatabaseFiles
from loomlog.services.families.database.operations import DatabaseOperations
from loomlog.services.families.definition.table import DefinitionTable
from loomlog.services.families.memory.backends import Backends
from loomlog.services.families.memory.boot_entries import BootEntries
from loomlog.services.families.memory.operations import MemoryOperations
from loomlog.services.families.memory.prompt import bands_part
from loomlog.services.families.memory.wiring import (
    MemoryServices,
    build_memory_services,
    embed_for_sql,
    memory_options,
    open_memory_index,
)
from loomlog.services.runtime.content.definition_texts import DefinitionTexts
from loomlog.services.runtime.content.encryption import ContentEncryption
from loomlog.services.runtime.entity_hosting import EntityResources
from loomlog.services.runtime.models.definition_resolver import DefinitionResolver
from loomlog.services.runtime.run.compaction_memory import CompactionMemory
from loomlog.services.runtime.run.prompt_memory import PromptMemory
from loomlog.services.runtime.run.run_end_memory import RunEndMemory
from loomlog.services.runtime.settings import RuntimeSettings
from loomlog.services.runtime.tools.memory_tool import MemoryTool


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySetup:
    """What a runtime has of memory."""

    tool: MemoryTool
    services: MemoryServices
    databases: DatabaseOperations | None
    """None: SQL memory is off."""
    consolidation: ConsolidationOperations
    prompt_memory: Callable[[DefinitionTexts], PromptMemory]
    """Returns what fills the prompts of runs."""
    boot_entries: BootEntries
    """Sets the entries of the files."""
    backends: Backends
    """Where agents keep their entries."""
    run_ends: RunEndMemory
    """What the ends of runs lead to."""
    compaction: CompactionMemory
    """Where the dialogue goes that compactions leave out."""

    async def close(self) -> None:
        """Close what is open."""
        await self.backends.close()
        await self.services.close()
        if self.databases is not None:
            await self.databases.close()


async def open_memory(
    loaded: ProcessConfiguration,
    runtime_settings: RuntimeSettings,
    entities: EntityResources,
    definitions: DefinitionTable,
    *,
    agents: DefinitionResolver,
    run_rows: PostgresReader,
    encryption: ContentEncryption,
    clock_ms: Callable[[], int],
) -> MemorySetup:
    """Build everything over the entities of this process. `run_rows` reads the read models of runs.

    Raises OSError when the folder of the databases cannot be made; EmbedderNotConfigured, a ValueError.
    """
    settings, configuration = loaded.settings, loaded.configuration
    commands, reads = entities.parts.client, entities.reads
    blobs = FileBlobs(settings.effective_blob_folder)
    services = build_memory_services(
        memory_options(loaded, os.environ),
        commands,
        reads,
        await open_memory_index(runtime_settings.postgres, runtime_settings.installation_secret),
        decrypt=encryption.decrypt_json,
        clock_ms=clock_ms,
    )
    embedder = services.options.embedder

    async def encrypt(text: str, tenant: str, subject: str) -> str:
        return (await encryption.cipher(tenant, subject)).text(text)

    policy = configuration.memory.consolidation
    internal_agents = tuple(name for name, agent in configuration.agents.items() if agent.internal)
    chats = ReadModelChats(run_rows, blobs, decrypt=encryption.decrypt_json, internal_agents=lambda: internal_agents)
    consolidation = ConsolidationOperations(
        commands,
        reads,
        chats,
        blobs,
        clock_ms=clock_ms,
        decrypt=encryption.decrypt_json,
        encrypt=encrypt,
        policy=ConsolidationPolicy(
            merge_threshold=policy.merge_threshold,
            related_threshold=policy.related_threshold,
            verify_writes=policy.verify_writes,
            detect_conflicts=policy.detect_conflicts,
        ),
        passes_max=settings.max_consolidation_concurrency,
    )
    services.entries.learning = FactLearning(consolidation, services.entries.set_fact)
    databases: DatabaseOperations | None = None
    if (sql := services.options.sql) is not None:
        files = DatabaseFiles(sql.root, sql.limits)
        encryption.on_erased(lambda tenant, subject: files.forget(tenant))
        databases = DatabaseOperations(
            commands,
            reads,
            files,
            blobs,
            clock_ms=clock_ms,
            limits=sql.limits,
            decrypt=encryption.decrypt_json,
            encrypt=encrypt,
            embed=None if embedder is None else partial(embed_for_sql, embedder),
        )
    hosts = settings.http_private_host_allowlist
    backends = Backends(
        services.entries,
        definitions,
        lambda base_url, version: PeerClient(base_url, api_version=version, private_hosts=hosts),
        secrets=loaded.secret_registry,
    )
    isolated = isolated_subjects(configuration)

    def is_isolated(tenant: str, subject: str) -> bool:
        return (tenant, subject) in isolated

    def prompt_memory(texts: DefinitionTexts) -> PromptMemory:
        return PromptMemory(
            backends.backend_of,
            texts=texts,
            blobs=blobs,
            bands=bands_part(policy.merge_threshold, policy.related_threshold),
            encryption=encryption,
            finder=backends,
            is_isolated=is_isolated,
        )

    operations = MemoryOperations(
        backends, databases=databases, consolidation=consolidation, require_local=backends.require_local
    )
    return MemorySetup(
        tool=MemoryTool(operations, is_isolated=is_isolated, clock_ms=clock_ms),
        services=services,
        databases=databases,
        consolidation=consolidation,
        prompt_memory=prompt_memory,
        boot_entries=BootEntries(configuration.memory.entries, commands, services.entries.limits),
        backends=backends,
        run_ends=RunEndMemory(
            consolidation,
            databases,
            has_consolidator=partial(has_consolidator, agents),
            internal_agents=internal_agents,
            require_local=backends.require_local,
            is_isolated=is_isolated,
            clock_ms=clock_ms,
        ),
        compaction=CompactionMemory(
            consolidation,
            chats,
            internal_agents=internal_agents,
            require_local=backends.require_local,
            is_isolated=is_isolated,
            clock_ms=clock_ms,
        ),
    )


def has_consolidator(agents: DefinitionResolver, tenant: str) -> bool:
    """Return whether a tenant has the agent that a target starts, on a model that can be called now."""
    resolved = agents.resolve(CONSOLIDATOR, tenant=tenant, user_tier="")
    return isinstance(resolved, AgentDefinition) or resolved.code == "definition_pending"
