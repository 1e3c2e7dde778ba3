"""Tools that a server lists, within bounds. Pure.

A list comes from a stranger and is shown to models: its names become names of tools, its schemas are compiled, its
descriptions are read. A tool that cannot be used is left out and reported; a list that is too large is refused as a
whole, with what to do.

Before: session.py. After: services/families/mcp/tools.py, and the events of the family mcp.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from loomlog.connectors.configuration.mcp_block import TOOL_PREFIX
from loomlog.connectors.errors import Permanent
from loomlog.connectors.json_schema import SchemaRefused, compile_schema
from loomlog.connectors.protocols import EffectClass
from loomlog.schemas.records import Value

SEPARATOR = "__"
TOOLS_MAX = 128
"""Tools of one server: models choose badly among more, and providers refuse more."""
PAGES_MAX = 20
"""Pages of one list: a server that always has a next page would be asked for ever."""
LIST_BYTES_MAX = 256 * 1024
"""Bytes of a list as JSON: it is one event, and a state of the log."""
NAME_CHARACTERS_MAX = 64
"""Characters of a tool's name with its prefix: what all providers accept."""
DESCRIPTION_CHARACTERS_MAX = 4_096
PROBLEMS_MAX = 20
"""Problems of a list that are reported."""
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}

_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}\Z")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")


class ListedTool(Value, frozen=True, kw_only=True):
    """A tool as its server lists it."""

    name: str
    """The server's own name."""
    description: str = ""
    input_schema: dict[str, Any]
    effect: str = EffectClass.UNSAFE.value
    """Effect class that the server's annotations claim."""

    @property
    def digest(self) -> str:
        """Hash of what a model is shown of the tool."""
        return _hash([self.name, self.description, self.input_schema])


class ToolList(Value, frozen=True, kw_only=True):
    """The usable tools of a server, by name, and what was wrong with the others."""

    tools: tuple[ListedTool, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Hash of the tools, whatever their order was."""
        return _hash([tool.digest for tool in self.tools])

    def to_json(self) -> list[dict[str, Any]]:
        """Return the tools as definitions and events have them."""
        return [_tool_to_json(tool) for tool in self.tools]


def visible_name(server: str, tool: str) -> str:
    """Return the name under which agents see a tool. Characters that providers refuse become `_`."""
    return f"{TOOL_PREFIX}{server_part(server)}{SEPARATOR}{_NOT_IN_NAMES.sub('_', tool)}"


def server_part(server: str) -> str:
    """Return a server's name as it is part of the names of its tools."""
    return _NOT_IN_NAMES.sub("_", server)


def build_tool_list(server: str, entries: Iterable[object], chosen: Sequence[str] = ()) -> ToolList:
    """Return the usable tools among entries of tools/list; `chosen`: these alone, by the server's names.

    Raises Permanent(invalid) for a list that is too large.
    """
    tools: dict[str, ListedTool] = {}
    problems: list[str] = []
    for entry in entries:
        name = entry.get("name") if isinstance(entry, dict) else None
        if chosen and name not in chosen:
            continue
        if len(tools) + len(problems) >= TOOLS_MAX:
            raise Permanent(
                f"{server} lists more than {TOOLS_MAX} tools; name those that agents may use under `tools`",
                kind="invalid",
            )
        try:
            tool = _parse_tool(server, entry)
            shown = visible_name(server, tool.name)
            if shown in tools:
                raise ToolUnusable(f"{shown} is the name of another tool of the server too")
            tools[shown] = tool
        except ToolUnusable as problem:
            problems.append(str(problem))
    ordered = tuple(tools[name] for name in sorted(tools))
    listed = ToolList(tools=ordered, problems=tuple(problems[:PROBLEMS_MAX]))
    if (size := len(orjson.dumps(listed.to_json()))) > LIST_BYTES_MAX:
        raise Permanent(
            f"the tools of {server} have {size} bytes, at most {LIST_BYTES_MAX} are taken; name fewer under `tools`",
            kind="invalid",
        )
    return listed


def read_tool_list(server: str, tools: object) -> ToolList:
    """Return a list as definitions and events have it."""
    return build_tool_list(server, tools if isinstance(tools, list | tuple) else ())


class ToolUnusable(Exception):
    """A tool that agents cannot be given; the message says why."""


def _parse_tool(server: str, entry: object) -> ListedTool:
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(name, str) or not _NAME.match(name):
        raise ToolUnusable(f"a tool named {str(name)[:80]!r}: expected 1 to 128 of A-Z a-z 0-9 _ . / -")
    if len(visible_name(server, name)) > NAME_CHARACTERS_MAX:
        raise ToolUnusable(f"{name}: with its server the name has more than {NAME_CHARACTERS_MAX} characters")
    schema = entry.get("inputSchema") or dict(ANY_OBJECT)
    try:
        compile_schema(schema)
    except SchemaRefused as refused:
        raise ToolUnusable(f"{name}: {refused}") from refused
    if schema.get("type", "object") != "object":
        raise ToolUnusable(f"{name}: its inputSchema is of no object")
    return ListedTool(
        name=name,
        description=_clean(entry.get("description") or ""),
        input_schema={"type": "object", **schema},
        effect=_claimed_effect(entry.get("annotations")),
    )


def _clean(text: object) -> str:
    """Return a description without control characters: it is shown to models, in terminals and in the page."""
    kept = "".join(c if c in "\n\t" or c.isprintable() else " " for c in str(text)[:DESCRIPTION_CHARACTERS_MAX])
    return kept.strip()


def _claimed_effect(annotations: object) -> str:
    hints = annotations if isinstance(annotations, dict) else {}
    if hints.get("readOnlyHint") is True:
        return EffectClass.READ.value
    if hints.get("idempotentHint") is True:
        return EffectClass.IDEMPOTENT.value
    return EffectClass.UNSAFE.value


def _tool_to_json(tool: ListedTool) -> dict[str, Any]:
    hints = {"read": {"readOnlyHint": True}, "idempotent": {"idempotentHint": True}}.get(tool.effect)
    fields: dict[str, Any] = {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
    return {**fields, "annotations": hints} if hints else fields


def _hash(value: object) -> str:
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()
