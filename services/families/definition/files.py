"""The definitions of the configuration files, in the form in which versions have them.

Before: the start of an api or a runtime. After: table.py.
"""

from collections.abc import Mapping
from typing import Any

from loomlog.connectors.configuration import Configuration
from loomlog.connectors.definitions import KINDS
from loomlog.services.families.definition.table import FileDefinition, file_definition


def configured_definitions(configuration: Configuration) -> dict[tuple[str, str], FileDefinition]:
    """Return the definitions of the configuration files by kind and name."""
    blocks: list[tuple[str, Mapping[str, Any]]] = [
        ("agent", configuration.agents),
        ("skill", configuration.skills),
        ("memorybackend", configuration.memory_backends),
        ("schedule", configuration.scheduled_runs),
        ("webhook", configuration.webhooks),
    ]
    files = {
        (kind, name): file_definition(kind, name, KINDS[kind].content_of(block))
        for kind, named in blocks
        for name, block in named.items()
    }
    for name, volume in configuration.volumes.items():
        content = {
            "path": volume.path,
            "mode": volume.mode,
            "default": volume.default,
            "dynamic_root": volume.dynamic_root,
        }
        files["volume", name] = file_definition("volume", name, content)
    return files
