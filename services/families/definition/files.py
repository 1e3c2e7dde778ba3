"""The definitions of the configuration files, in the form in which versions have them.

Before: the start of an api or a runtime. After: table.py.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.connectors.configuration.mcp_block import McpServerBlock
from loomlog.connectors.configuration.model import Configuration, VolumeBlock
from loomlog.connectors.configuration.tree import KeyPath
from loomlog.connectors.definitions import KINDS, DefinitionProblem
from loomlog.services.families.definition.table import FileDefinition, file_definition

VOLUME = "volume"


def configured_definitions(configuration: Configuration) -> dict[tuple[str, str], FileDefinition]:
    """Return the definitions of the configuration files by kind and name. Raises DefinitionProblem."""
    return {
        (kind, name): file_definition(kind, name, content_of())
        for kind, name, _, content_of in _iter_definitions(configuration)
    }


def find_start_problems(loaded: ProcessConfiguration, environ: Mapping[str, str]) -> Iterator[tuple[KeyPath, str]]:
    """Yield the place and the text of each definition that `configured_definitions` refuses."""
    for kind, name, path, content_of in _iter_definitions(loaded.configuration):
        try:
            file_definition(kind, name, content_of())
        except DefinitionProblem as problem:
            yield path, f"{'.'.join(path)}: {problem}"


def _iter_definitions(configuration: Configuration) -> Iterator[tuple[str, str, tuple[str, str], Callable[[], Any]]]:
    """Yield kind and name of each definition, where the files have it, and what returns its content."""
    blocks: list[tuple[str, str, Mapping[str, Any], Callable[[Any], Any]]] = [
        (kind, block, getattr(configuration, block), KINDS[kind].content_of)
        for kind, block in (
            ("agent", "agents"),
            ("skill", "skills"),
            ("memorybackend", "memory_backends"),
            ("schedule", "scheduled_runs"),
            ("webhook", "webhooks"),
        )
    ]
    blocks.append(("mcpserver", "mcp_servers", configuration.mcp_servers, server_content))
    blocks.append((VOLUME, "volumes", configuration.volumes, _volume_content))
    for kind, block, named, to_content in blocks:
        for name, value in named.items():
            yield kind, name, (block, name), partial(to_content, value)


def server_content(server: McpServerBlock) -> dict[str, Any]:
    """Return what the log may know of a server: its headers have values of the environment."""
    return KINDS["mcpserver"].content_of(replace(server, headers={}, oauth=None))


def _volume_content(volume: VolumeBlock) -> dict[str, Any]:
    return {"path": volume.path, "mode": volume.mode, "default": volume.default, "dynamic_root": volume.dynamic_root}
