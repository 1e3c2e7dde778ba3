"""What the ends of runs lead to in a runtime process: hooks, and reports to what has started them.

Before: main.py. After: run/run_end_actions.py, run/end_hooks.py.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.connectors.storage.blobs import FileBlobs
from loomlog.schemas.codec import Codec
from loomlog.services.core.families import Family
from loomlog.services.families.ports.run_ends import EntryWriter, MessagePublisher, ToolCaller
from loomlog.services.families.registry import all_families
from loomlog.services.runtime.content.encryption import ContentEncryption
from loomlog.services.runtime.entity_hosting import EntityResources
from loomlog.services.runtime.run.end_hooks import RunEndHooks
from loomlog.services.runtime.run.run_end_actions import RunEndActions
from loomlog.services.stream.partition.ended_aggregates import EndedAggregates


def run_end_commands(families: Iterable[Family[Any, Any, Any]]) -> Mapping[str, type[Any]]:
    """Return the families whose aggregates start runs, each with the command that tells one of an end."""
    return {family.name: family.note_run_end for family in families if family.note_run_end is not None}


def open_run_ends(
    loaded: ProcessConfiguration,
    entities: EntityResources,
    ended_runs: EndedAggregates,
    codec: Codec,
    *,
    publisher: MessagePublisher,
    entries: EntryWriter,
    tools: ToolCaller,
    encryption: ContentEncryption,
    clock_ms: Callable[[], int],
) -> RunEndActions:
    """Build everything over the entities of this process. Raises OSError without a folder of payloads."""
    commands = entities.parts.client
    hooks = RunEndHooks(
        commands,
        publisher,
        entries,
        FileBlobs(loaded.settings.effective_blob_folder),
        tools,
        encryption=encryption,
        clock_ms=clock_ms,
    )
    return RunEndActions(commands, hooks, ended_runs, codec, triggers=run_end_commands(all_families()))
