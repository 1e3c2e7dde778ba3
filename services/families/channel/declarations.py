"""The channels that a process knows: those of its files, those of the system, and those that were declared at run time.

    files        first, so that nothing made at run time shadows what an operator wrote
    the tenant's own
    global ones  lines of the shared tenant, which all tenants see

Those made at run time are lines of the definition store, of a kind without versions (services/families/definition):
every process has them in memory, so a publish resolves its channel without a request.

Before: declaration_operations.py makes them. After: operations.py; the publishers of the system.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loomlog.connectors.configuration.channel_block import (
    EVENT_CHANNELS,
    INSTALLATION_EVENTS,
    SYSTEM,
    ChannelBlock,
    format_duration,
)
from loomlog.connectors.configuration.model import Configuration
from loomlog.connectors.definitions import DefinitionProblem
from loomlog.services.families.channel.access import is_system_name
from loomlog.services.families.channel.caller import GLOBAL, SHARED_TENANT, USER, Declaration
from loomlog.services.families.definition.channel_content import parse_channel
from loomlog.services.families.definition.content import parse_content
from loomlog.services.families.definition.state import CHANNEL, Line
from loomlog.services.families.definition.table import DefinitionTable

YAML, RUNTIME, BUILT_IN, ORPHAN = "yaml", "runtime", "system", "orphan"
"""Where a channel comes from. An orphan has messages, and its declaration is deleted."""
EVENTS_TTL_S = 7 * 24 * 3_600
EVENTS_MAX = 10_000
"""What a channel of events keeps that no file declares: a week, and 2 MB or so."""
PARSED_MAX = 20_000
"""Declarations kept in memory; another one costs the parsing of its JSON."""


def configured_channels(configuration: Configuration) -> dict[str, Declaration]:
    """Return the channels of the files, and those of the system's events that no file declares, by name."""
    channels = {name: _built_in(name) for name in EVENT_CHANNELS}
    for name, block in configuration.channels.items():
        channels[name] = _declaration(SHARED_TENANT, name, block, YAML)
    return channels


def declaration_json(declaration: Declaration) -> dict[str, Any]:
    """Return the keys of a declaration as lists of channels have them. `default_ttl` in seconds."""
    return {
        "name": declaration.name,
        "description": declaration.description,
        "scope": declaration.scope,
        "semantic": declaration.semantic,
        "publisher": declaration.publisher,
        "period": format_duration(declaration.period_s),
        "default_ttl": declaration.default_ttl_s,
        "max_messages": declaration.max_messages,
        "source": declaration.source,
    }


class ChannelDeclarations:
    """Protocol loomlog.services.families.channel.caller.Declarations. `files`: see `configured_channels`."""

    def __init__(self, table: DefinitionTable, files: Mapping[str, Declaration]) -> None:
        self.table = table
        self.files = files
        self._parsed: dict[tuple[str, str, bytes], Declaration] = {}

    def find(self, tenant: str, name: str) -> Declaration | None:
        """Return the declaration of a name as a tenant sees it: file, own tenant, scope global; None without one."""
        if (declaration := self.files.get(name)) is not None:
            return declaration
        made = (self.made(owner, name) for owner in dict.fromkeys((tenant, SHARED_TENANT)))
        return next(filter(None, made), None)

    def list(self, tenant: str) -> list[Declaration]:
        """Return all that a tenant sees, by name."""
        seen = dict(self.files)
        for owner in dict.fromkeys((tenant, SHARED_TENANT)):
            for declaration in self._lines(owner):
                seen.setdefault(declaration.name, declaration)
        return [seen[name] for name in sorted(seen)]

    def rows(self, tenant: str, prefix: str) -> Sequence[Mapping[str, Any]]:
        """Return what runs see of the channels whose names begin with the prefix, by name."""
        shown = ("name", "scope", "semantic", "default_ttl", "max_messages", "publisher")
        rows = (declaration_json(one) for one in self.list(tenant) if one.name.startswith(prefix))
        return [{key: row[key] for key in shown} for row in rows]

    def made(self, tenant: str, name: str) -> Declaration | None:
        """Return what was declared at run time in a tenant; the empty one has those of the scope global."""
        line = self.table.line(CHANNEL, tenant, name)
        return None if line is None else self._read(line)

    def with_period(self) -> Sequence[Declaration]:
        """Return the channels to which the system publishes from time to time, by name."""
        made = (one for one in self._lines(SHARED_TENANT) if one.name not in self.files)
        return sorted((one for one in (*self.files.values(), *made) if one.period_s), key=lambda one: one.name)

    def _lines(self, tenant: str) -> Iterator[Declaration]:
        for line in self.table.lines(CHANNEL, tenant):
            if (declaration := self._read(line)) is not None:
                yield declaration

    def _read(self, line: Line) -> Declaration | None:
        version = line.active_version
        if line.is_deleted or version is None or version.is_retired:
            return None
        key = (line.tenant, line.name, version.digest)
        if (known := self._parsed.get(key)) is not None:
            return known
        try:
            block = parse_channel(line.tenant, line.name, parse_content(version.content))
        except DefinitionProblem:
            return None  # a newer version of this program made it; its owner has checked it
        if len(self._parsed) >= PARSED_MAX:
            self._parsed.clear()
        declaration = self._parsed[key] = _declaration(line.tenant, line.name, block, RUNTIME)
        return declaration


def _declaration(tenant: str, name: str, block: ChannelBlock, source: str) -> Declaration:
    return Declaration(
        name=name,
        scope=block.scope,
        tenant=tenant,
        description=block.description,
        semantic=block.semantic,
        default_ttl_s=block.default_ttl,
        max_messages=block.max_messages,
        publisher=SYSTEM if is_system_name(name) else block.publisher,
        period_s=block.period,
        source=source,
    )


def _built_in(name: str) -> Declaration:
    return Declaration(
        name=name,
        scope=GLOBAL if name in INSTALLATION_EVENTS else USER,
        description="What happens to the installation"
        if name in INSTALLATION_EVENTS
        else "Questions of the user's runs",
        semantic="broadcast",
        default_ttl_s=EVENTS_TTL_S,
        max_messages=EVENTS_MAX,
        publisher=SYSTEM,
        source=BUILT_IN,
    )
