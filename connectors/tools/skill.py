"""Skill: instructions that an agent loads when a task needs them, with further files.

The agent's patterns say which skills it may use, and a skill that needs tools is refused to an agent without one of
them. The first use of a skill pins its version: later calls of the run read exactly that one, whatever was promoted in
between, and a version that is gone is an error and never another one.

Before: registry.py. After: a SkillShelf; the runtime records the pin with the result.
"""

import re
from collections.abc import Mapping
from typing import Any

import orjson

from loomlog.connectors.definitions.tool_grants import covers
from loomlog.connectors.protocols import EffectClass, SkillShelf, SkillText, ToolContext, ToolResult
from loomlog.connectors.tools.arguments import check_arguments
from loomlog.connectors.tools.results import ToolCallRefused, error_result
from loomlog.connectors.tools.skill_patterns import SkillPatterns, parse_patterns
from loomlog.schemas.generated.values import SkillPin

NAME_LENGTH = 128
LISTED_MAX = 200
"""Skills in one answer; a model that needs others gives a pattern."""
_NAME = re.compile(r"[A-Za-z0-9_-]+(?:/[A-Za-z0-9_-]+)*")


class SkillTool:
    """Tool over the skills of `shelf`."""

    name = "Skill"
    description = (
        "Loads instructions for a kind of task. op invoke: the instructions of a skill. op list: the skills you may "
        "use. op files: the further files of a skill. op read: one of these files."
    )
    side_effect_class = "pure"
    usage_hint = "op list shows what there is; load a fitting skill before you begin with its task."
    timeout_s: float = 30.0
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "op": {
                "type": "string",
                "enum": ["invoke", "list", "files", "read"],
                "description": "What to do; invoke if left out.",
            },
            "name": {
                "type": "string",
                "maxLength": NAME_LENGTH,
                "description": "invoke, files, read: the name of the skill.",
            },
            "pattern": {
                "type": "string",
                "minLength": 1,
                "description": "list: only names that match, such as team/*; ** spans several parts.",
            },
            "path": {"type": "string", "description": "read: a path that op files returned."},
        },
        "additionalProperties": False,
    }

    def __init__(self, shelf: SkillShelf) -> None:
        self._shelf = shelf

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        return EffectClass.READ

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        try:
            checked = check_arguments(self.name, arguments, self.input_schema)
            op = checked.get("op", "invoke")
            _check_combination(op, checked)
            patterns = _parse(context.skills)
            if op == "list":
                return ToolResult(text=await self._list_skills(patterns, checked.get("pattern"), context.tenant))
            skill = await self._load(checked["name"], patterns, context)
            return ToolResult(text=_answer(op, skill, checked.get("path", "")), skill_pin=_pin_of(skill))
        except ToolCallRefused as reason:
            return error_result(reason)

    async def _list_skills(self, patterns: SkillPatterns, pattern: str | None, tenant: str) -> str:
        chosen = _parse(() if pattern is None else (pattern,))
        skills = [
            {"name": skill.name, "description": skill.description}
            for skill in await self._shelf.names(tenant)
            if patterns.allows(skill.name) and chosen.allows(skill.name)
        ]
        answer: dict[str, Any] = {"skills": skills[:LISTED_MAX]}
        if len(skills) > LISTED_MAX:
            answer |= {"count": len(skills), "hint": f"the first {LISTED_MAX}; give a pattern for others"}
        return orjson.dumps(answer).decode()

    async def _load(self, name: str, patterns: SkillPatterns, context: ToolContext) -> SkillText:
        """Return the version that the run keeps to, or the current one at the first use."""
        if not _NAME.fullmatch(name):
            raise ToolCallRefused(
                f"{_show(name)} is no name of a skill: letters, digits, _ and -, with / between parts."
            )
        if not patterns.allows(name):
            raise ToolCallRefused(f"The skill {name} is not among those this agent may use; op list shows them.")
        pin = next((pin for pin in context.skill_pins if pin.name == name), None)
        if pin is None:
            skill = await self._shelf.find(context.tenant, name)
            if skill is None:
                raise ToolCallRefused(f"The skill {name} was not found; op list shows those this agent may use.")
        else:
            skill = await self._shelf.version(context.tenant, pin)
            if skill is None:
                which = f"version {pin.version}" if pin.version else "the file"
                raise ToolCallRefused(
                    f"This run keeps to {which} of the skill {name} that it used first ({pin.content_sha256}), which "
                    "is not here any more. Go on with what you loaded; a new run uses the current version."
                )
        missing = covers(context.tool_grants, skill.tools)
        if missing:
            raise ToolCallRefused(f"The skill {name} needs tools that this agent does not have: {', '.join(missing)}.")
        return skill


def _check_combination(op: str, arguments: Mapping[str, Any]) -> None:
    """Refuse an argument that the operation needs and does not have, or would ignore."""
    needed = {"list": set[str](), "read": {"name", "path"}}.get(op, {"name"})
    optional = {"pattern"} if op == "list" else set()
    problems = [f'"{name}" is missing' for name in sorted(needed - arguments.keys())]
    problems += [
        f'"{name}" does not belong to op {op}' for name in sorted(arguments.keys() - needed - optional - {"op"})
    ]
    if problems:
        raise ToolCallRefused(f"Skill was not called: {'; '.join(problems)}.")


def _parse(entries: tuple[str, ...]) -> SkillPatterns:
    try:
        return parse_patterns(entries)
    except ValueError as error:
        raise ToolCallRefused(f"Skill was not called: {error}.") from error


def _answer(op: str, skill: SkillText, path: str) -> str:
    if op == "invoke":
        return skill.body
    if op == "files":
        files = [{"path": name, "bytes": len(text.encode())} for name, text in sorted(skill.files.items())]
        return orjson.dumps({"name": skill.name, "files": files}).decode()
    if path not in skill.files:
        known = ", ".join(sorted(skill.files)) or "none"
        raise ToolCallRefused(f"The skill {skill.name} has no file {_show(path)}; it has: {known}.")
    return skill.files[path]


def _pin_of(skill: SkillText) -> SkillPin:
    return SkillPin(name=skill.name, def_id=skill.def_id, version=skill.version, content_sha256=skill.content_sha256)


def _show(text: str) -> str:
    """Return a bounded part of the model's own text in quotes, without lone surrogates."""
    return repr(text[:60]).encode(errors="replace").decode()
