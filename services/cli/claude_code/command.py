"""`loomlog import claude-code`: agents, skills and MCP servers of a .claude folder become configuration.

    loomlog import claude-code --from .claude              what would be imported, and what has no counterpart
    loomlog import claude-code --from .claude --dry-run    the change of loomlog.yaml as a diff
    loomlog import claude-code --from .claude --write      change loomlog.yaml, copy the skills to skills/

Nothing is replaced without --force. A file that cannot be read is skipped with its reason, and the rest goes on.

Before: services/cli/main.py. After: agent_files.py, mcp_files.py, skill_folders.py, configuration_file.py.
"""

from collections.abc import Iterator, Mapping
from difflib import unified_diff
from pathlib import Path
from typing import Annotated, Any

import typer

from loomlog.connectors.configuration.layers import Layer, read_layer
from loomlog.connectors.configuration.markdown_files import to_printable
from loomlog.schemas.records import Value
from loomlog.services.cli.admin.init import FILE
from loomlog.services.cli.claude_code.agent_files import read_agents
from loomlog.services.cli.claude_code.configuration_file import mapping_of, put_entries, read_plain
from loomlog.services.cli.claude_code.entries import Entry, Note, SkillFolder, Skipped
from loomlog.services.cli.claude_code.mcp_files import read_servers
from loomlog.services.cli.claude_code.skill_folders import choose_action, copy_skill, read_skills
from loomlog.services.cli.commands import CommandGroup
from loomlog.services.cli.errors import CliError, NotFound, UsageError
from loomlog.services.cli.stack.home import write_atomically
from loomlog.services.cli.terminal.output import console, print_json, print_table
from loomlog.services.families.registry import family_tools

import_app = typer.Typer(cls=CommandGroup, no_args_is_help=True, help="Import agents and skills of other programs.")
CHANGES = frozenset({"add", "replace", "copy"})
NO_RECIPES = "This version has no recipes of MCP servers, so none can be emitted; servers go to mcp_servers."


class Row(Value, frozen=True, kw_only=True):
    """Line of the report. `action`: add, replace, copy, keep (another one is there), same or skip."""

    kind: str
    name: str
    source: str
    action: str
    notes: tuple[Note, ...] = ()


class Plan(Value, frozen=True, kw_only=True):
    """What an import does. `old`, `new`: text of the configuration file; `copies`: the skills that are written."""

    rows: tuple[Row, ...]
    skipped: tuple[Skipped, ...]
    old: str
    new: str
    copies: tuple[SkillFolder, ...]


@import_app.callback()
def imports() -> None:
    """Import agents and skills of other programs."""


@import_app.command("claude-code")
def claude_code(
    folder: Annotated[Path, typer.Option("--from", metavar="DIR", help="The folder, usually .claude.")],
    report_only: Annotated[bool, typer.Option("--report-only", help="Only report, also the default.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the change of the file; write nothing.")] = False,
    target: Annotated[Path, typer.Option("--diff", metavar="FILE", help="Configuration file to change.")] = Path(FILE),
    write: Annotated[bool, typer.Option("--write", help="Change the file and copy the skills.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace entries and skills of the same name.")] = False,
    no_recipe_match: Annotated[
        bool, typer.Option("--no-recipe-match", help="Write MCP servers as they are; there are no recipes yet.")
    ] = False,
    emit_recipes: Annotated[
        bool, typer.Option("--emit-recipes", help="Write MCP servers as recipes; not in this version.")
    ] = False,
    no_yaml: Annotated[bool, typer.Option("--no-yaml", help="Only with --emit-recipes.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False,
    destination: Annotated[
        Path, typer.Option("--skills-dest", metavar="DIR", help="Folder that skills are copied to.")
    ] = Path("skills"),
) -> None:
    """Import agents, skills and MCP servers of Claude Code; without --write it only reports."""
    if emit_recipes or no_yaml:
        raise UsageError(NO_RECIPES if emit_recipes else "--no-yaml only goes with --emit-recipes.")
    if write + dry_run + report_only > 1:
        raise UsageError("--write, --dry-run and --report-only exclude each other; give one of them.")
    if not folder.is_dir():
        raise NotFound(f"There is no folder {folder}; --from names the folder of Claude Code, usually .claude.")
    plan = _plan(folder, target, destination, force=force)
    if write:
        try:
            _carry_out(plan, target, destination)
        except OSError as error:
            raise CliError(f"{error.filename or target} cannot be written: {error.strerror}.") from error
    diff = _diff(plan.old, plan.new, str(target)) if dry_run else None
    if as_json:
        print_json(_document(plan, target=str(target), written=write, diff=diff))
    else:
        _print_report(plan, target=target, destination=destination, write=write)
        console().print(diff or "", end="")


def _plan(folder: Path, target: Path, destination: Path, *, force: bool) -> Plan:
    """Return what an import would do. Raises CliError when the file cannot be read or edited, NotFound for nothing."""
    old = _read_target(target)
    try:
        configuration = read_plain(old, str(target))
    except ValueError as error:
        raise CliError(f"{error}. Correct the file first, or name another with --diff FILE.") from error
    agents, bad_agents = read_agents(folder, configuration, family_tools())
    servers, bad_servers = read_servers(folder)
    skills, bad_skills = read_skills(folder)
    skipped = [*bad_agents, *bad_skills, *bad_servers, *_iter_commands(folder)]
    if not (agents or servers or skills or skipped):
        raise NotFound(f"{folder} has no agents/*.md, skills/*/SKILL.md or mcp.json; is it the folder of Claude Code?")
    entries = [(entry, _choose_action(entry, configuration, force=force)) for entry in (*agents, *servers)]
    copies = [(skill, choose_action(skill, destination, force=force)) for skill in skills]
    changed = [entry for entry, action in entries if action in CHANGES]
    try:
        new = put_entries(old, changed, file=str(target)) if changed else old
    except ValueError as error:
        raise CliError(f"{error}. Nothing was written.") from error
    return Plan(
        rows=(
            *(_row(entry.block, entry, action) for entry, action in entries),
            *(_row("skills", *one) for one in copies),
        ),
        skipped=tuple(skipped),
        old=old,
        new=new,
        copies=tuple(skill for skill, action in copies if action in CHANGES),
    )


def _carry_out(plan: Plan, target: Path, destination: Path) -> None:
    if plan.new != plan.old:
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
        write_atomically(target.resolve(), plan.new, mode=mode)
    for skill in plan.copies:
        copy_skill(skill, destination)


def _read_target(target: Path) -> str:
    if not target.exists():
        return ""
    try:
        return read_layer(Layer(path=target, display_name=str(target)))
    except ValueError as error:
        raise CliError(f"{target}: {error}.") from error


def _iter_commands(folder: Path) -> Iterator[Skipped]:
    for path in sorted((folder / "commands").rglob("*.md")):
        reason = "commands have no counterpart; make it a skill or a prompt"
        yield Skipped(source=to_printable(path.relative_to(folder).as_posix()), reason=reason)


def _choose_action(entry: Entry, configuration: Mapping[str, Any], *, force: bool) -> str:
    block = mapping_of(configuration, entry.block)
    if entry.name not in block:
        return "add"
    if block[entry.name] == entry.value:
        return "same"
    return "replace" if force else "keep"


def _row(kind: str, item: Entry | SkillFolder, action: str) -> Row:
    return Row(kind=kind, name=item.name, source=item.source, action=action, notes=item.notes)


def _diff(old: str, new: str, name: str) -> str:
    lines = unified_diff(old.splitlines(keepends=True), new.splitlines(keepends=True), name, name)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _document(plan: Plan, *, target: str, written: bool, diff: str | None) -> dict[str, Any]:
    return {
        "target": target,
        "written": written,
        "imported": [
            {
                "kind": row.kind,
                "name": row.name,
                "source": row.source,
                "action": row.action,
                "notes": [{"field": note.field, "hint": note.hint} for note in row.notes],
            }
            for row in plan.rows
        ],
        "skipped": [{"source": one.source, "reason": one.reason} for one in plan.skipped],
        **({} if diff is None else {"diff": diff}),
    }


def _print_report(plan: Plan, *, target: Path, destination: Path, write: bool) -> None:
    rows, skipped = plan.rows, plan.skipped
    out = console()
    table = [(row.action, row.kind, row.name, row.source) for row in rows]
    print_table(out, ("ACTION", "KIND", "NAME", "FROM"), [*table, *(("skip", "-", "-", one.source) for one in skipped)])
    for row in rows:
        for note in row.notes:
            out.print(f"{row.kind}.{row.name}: {note.field}: {note.hint}")
    for one in skipped:
        out.print(f"{one.source}: {one.reason}")
    if kept := sum(row.action == "keep" for row in rows):
        out.print(f"{kept} of the same name are kept; --force replaces them")
    changes = sum(row.action in CHANGES for row in rows)
    has_skills = any(row.kind == "skills" for row in rows)
    if not write:
        out.print(f"{changes} to import; --dry-run shows the change of {target}, --write makes it")
        return
    out.print(f"imported {changes} into {target}" + (f" and {destination}" if has_skills else ""))
    out.print("  loomlog agents check")
    if has_skills:
        out.print(f"  export LOOMLOG_SKILLS_ROOT={destination}")
