"""Definitions in a runtime process: the table that resolves agents and skills, and the tools of agents that write them.

Before: main.py. After: services/families/definition; services/runtime/models/agent_definitions.py resolves with it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.connectors.configuration.principals import isolated_subjects
from loomlog.connectors.protocols import Blobs, Tool
from loomlog.connectors.storage.blobs import FileBlobs
from loomlog.services.families.definition.evaluations import Evaluations, JudgedRuns
from loomlog.services.families.definition.files import configured_definitions
from loomlog.services.families.definition.observation import FileObserver, observer_name
from loomlog.services.families.definition.operations import DefinitionOperations
from loomlog.services.families.definition.table import DefinitionTable
from loomlog.services.families.definition.views import DefinedSkills, RunDefinitions
from loomlog.services.families.definition.volume_table import VolumeTable
from loomlog.services.families.definition.volumes import VolumeOperations
from loomlog.services.runtime.content.encryption import ContentEncryption
from loomlog.services.runtime.entity_hosting import EntityResources
from loomlog.services.runtime.run.run_index import RunIndex
from loomlog.services.runtime.tools.definition_tools import build_definition_tools
from loomlog.services.runtime.tools.ephemeral_volumes import EphemeralVolumes
from loomlog.services.runtime.tools.evaluation_tool import build_evaluation_tool
from loomlog.services.runtime.tools.volume_tool import build_volume_tool


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionSetup:
    """What a runtime has of definitions."""

    table: DefinitionTable
    operations: DefinitionOperations
    skills: DefinedSkills
    view: RunDefinitions
    tools: Mapping[str, Tool]
    volumes: VolumeTable
    ephemeral_volumes: EphemeralVolumes
    observer: FileObserver
    """Tells the others what the files of this process say."""


def open_definitions(
    loaded: ProcessConfiguration,
    entities: EntityResources,
    *,
    judged_runs: JudgedRuns,
    index: RunIndex,
    encryption: ContentEncryption,
    clock_ms: Callable[[], int],
) -> DefinitionSetup:
    """Build the table over the lines that this process has read, and what uses it."""
    blobs: Blobs = FileBlobs(loaded.settings.effective_blob_folder)
    parts = entities.parts
    table = DefinitionTable(
        parts.replicas, configured_definitions(loaded.configuration), blobs=blobs, reads=entities.reads
    )
    operations = DefinitionOperations(
        parts.client, parts.replicas, table, blobs=blobs, hosts=loaded.settings.http_host_allowlist
    )
    evaluations = Evaluations(parts.client, table, entities.reads, judged_runs, decrypt=encryption.decrypt_json)
    isolated = isolated_subjects(loaded.configuration)

    def is_isolated(tenant: str, subject: str) -> bool:
        return (tenant, subject) in isolated

    volumes = VolumeOperations(operations, VolumeTable(table, parts.replicas))
    return DefinitionSetup(
        table=table,
        operations=operations,
        skills=DefinedSkills(table),
        view=RunDefinitions(table, evaluations),
        tools={
            **build_definition_tools(operations, clock_ms=clock_ms, is_isolated=is_isolated),
            **build_evaluation_tool(evaluations, clock_ms=clock_ms, is_isolated=is_isolated),
            **build_volume_tool(volumes, clock_ms=clock_ms, is_isolated=is_isolated),
        },
        volumes=volumes.volumes,
        ephemeral_volumes=EphemeralVolumes(
            volumes, index, clock_ms=clock_ms, interval_s=loaded.settings.ephemeral_volume_sweep_ms / 1000
        ),
        observer=FileObserver(
            observer_name("runtime", loaded.settings.replica_id), table, parts.client, blobs, clock_ms=clock_ms
        ),
    )
