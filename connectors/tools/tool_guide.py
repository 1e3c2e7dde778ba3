"""Descriptions of a run's tools: rows for the Context tool, and texts that replace placeholders in prompts.

    {{tool:Context.tools}}         the granted tools, each with the first sentence of its description
    {{tool:Context.guide}}         the granted tools, each with its required arguments and its usage hint
    {{tool:Context.capabilities}}  the features that this server has and those it has not

A backslash before a placeholder keeps it as text. Everything comes from the tools themselves, so it is always current;
in a prompt it is as of the start of the run, which records the text.

Before: context.py; services/runtime/effects.py for prompts. After: nothing.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from loomlog.connectors.protocols import Tool
from loomlog.connectors.tools.server_info import ServerInfo, describe_capabilities
from loomlog.schemas.client_names import TOOL_NAME_PREFIX as CLIENT_PREFIX

UNKNOWN = "unknown"
"""Side-effect class of a tool that has none (offered by another server)."""
PLACEHOLDERS = ("Context.tools", "Context.guide", "Context.capabilities")
GUIDE_PLACEHOLDER = "{{tool:Context.guide}}"
BLOCK_CHARACTERS_MAX = 8_192
"""Characters of one block in a prompt: some 2,000 tokens, which every model call of the run costs."""
_BEGINNING = "{{tool:"
"""Looked for before the expression, which takes 100 times as long for a long prompt without a placeholder."""
_PLACEHOLDER = re.compile(r"(\\?)\{\{tool:([^{}\n]*)\}\}")


def has_placeholders(prompt: str) -> bool:
    """Return whether `ToolGuide.fill` changes the prompt."""
    return _BEGINNING in prompt and _PLACEHOLDER.search(prompt) is not None


def unknown_placeholders(prompt: str) -> tuple[str, ...]:
    """Return the names of {{tool:...}} placeholders that do not exist."""
    return tuple(name for slash, name in _PLACEHOLDER.findall(prompt) if not slash and name not in PLACEHOLDERS)


def placeholder_names() -> str:
    """Return the placeholders there are, for people."""
    return ", ".join(f"{{{{tool:{name}}}}}" for name in PLACEHOLDERS)


def with_guide(prompt: str) -> str:
    """Return the prompt with a placeholder for the guide at its end, unless it has one."""
    if any(not slash and name == PLACEHOLDERS[1] for slash, name in _PLACEHOLDER.findall(prompt)):
        return prompt
    return f"{prompt.rstrip()}\n\n{GUIDE_PLACEHOLDER}".lstrip()


class ToolGuide:
    """Describes tools of `catalogue`, the live mapping of all tools of this process."""

    def __init__(self, catalogue: Mapping[str, Tool], server: ServerInfo) -> None:
        self._catalogue = catalogue
        self._server = server
        self._blocks: Mapping[str, Callable[[Sequence[str]], str]] = {
            PLACEHOLDERS[0]: self._tools_block,
            PLACEHOLDERS[1]: self._guide_block,
            PLACEHOLDERS[2]: lambda names: self._capabilities_block(),
        }

    def tools(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Return name, description, side-effect class and operations of each tool; tools of clients come last."""
        names = tuple(names)
        rows = [
            {
                "name": name,
                "description": tool.description,
                "side_effect_class": side_effect_class(tool),
                **_operations(tool),
            }
            for name, tool in self._known(names)
        ]
        clients = [name for name in names if name.startswith(CLIENT_PREFIX)]
        text = "Carried out by a client of yours."
        return rows + [{"name": name, "description": text, "side_effect_class": UNKNOWN} for name in clients]

    def guide(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Return name, side-effect class, operations, required arguments and usage hint of each tool."""
        rows: list[dict[str, Any]] = []
        for name, tool in self._known(names):
            optional = {
                "ops": list(tool.input_schema.get("properties", {}).get("op", {}).get("enum", ())),
                "required": [one for one in tool.input_schema.get("required", ()) if one != "op"],
                "hint": getattr(tool, "usage_hint", ""),
            }
            row = {"name": name, "side_effect_class": side_effect_class(tool)}
            rows.append(row | {key: value for key, value in optional.items() if value})
        return rows

    def document(self, name: str) -> dict[str, Any] | None:
        """Return everything about one tool; None when this process does not have it."""
        tool = self._catalogue.get(name)
        if tool is None:
            return None
        return {
            "name": name,
            "description": tool.description,
            "input_schema": tool.input_schema,
            "side_effect_class": side_effect_class(tool),
            **_operations(tool),
        }

    def capabilities(self) -> dict[str, Any]:
        """Return the features of this server."""
        return describe_capabilities(self._server, self._catalogue)

    def fill(self, prompt: str, names: Sequence[str]) -> str:
        """Return the prompt with its placeholders replaced for a run with these tools; unknown ones stay."""
        if not has_placeholders(prompt):
            return prompt

        def replacement(match: re.Match[str]) -> str:
            slash, name = match.groups()
            if slash:
                return match[0][1:]
            return self._blocks[name](names) if name in self._blocks else match[0]

        return _PLACEHOLDER.sub(replacement, prompt)

    def _known(self, names: Iterable[str]) -> list[tuple[str, Tool]]:
        return [(name, self._catalogue[name]) for name in names if name in self._catalogue]

    def _tools_block(self, names: Sequence[str]) -> str:
        return _join_lines(f"- {name}: {_first_sentence(tool.description)}" for name, tool in self._known(names))

    def _guide_block(self, names: Sequence[str]) -> str:
        return _join_lines(_guide_line(row) for row in self.guide(names))

    def _capabilities_block(self) -> str:
        features = {name: row["available"] for name, row in self.capabilities().items() if "available" in row}
        return "\n".join(
            f"{words}: {', '.join(name for name, is_there in sorted(features.items()) if is_there is wish) or 'none'}"
            for words, wish in (("Available on this server", True), ("Not available", False))
        )


def side_effect_class(tool: Tool) -> str:
    """Return what kind of effects a tool has, for people and models."""
    return str(getattr(tool, "side_effect_class", UNKNOWN))


def _operations(tool: Tool) -> dict[str, Any]:
    """Return what each `op` of a tool does, for tools that say so."""
    operations: Mapping[str, str] = getattr(tool, "operations", {})
    return {"ops": dict(operations)} if operations else {}


def _guide_line(row: Mapping[str, Any]) -> str:
    parts = [row["side_effect_class"]]
    parts += [f"op: {', '.join(row['ops'])}"] if "ops" in row else []
    parts += [f"needs {', '.join(row['required'])}"] if "required" in row else []
    return f"- {row['name']} ({'; '.join(parts)})" + (f": {row['hint']}" if "hint" in row else "")


def _first_sentence(text: str) -> str:
    """Return the text up to its first full stop before a space or the end."""
    return re.split(r"(?<=\.)\s", text.strip(), maxsplit=1)[0]


def _join_lines(lines: Iterable[str]) -> str:
    """Join the lines that fit a block; a last line states how many did not."""
    rows, kept, size = list(lines), 0, 0
    while kept < len(rows) and size + len(rows[kept]) < BLOCK_CHARACTERS_MAX:
        size += len(rows[kept]) + 1
        kept += 1
    more = [f"- and {len(rows) - kept} more: Context op tools lists all"] if kept < len(rows) else []
    return "\n".join([*rows[:kept], *more]) or "- none"
