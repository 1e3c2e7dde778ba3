"""`loomlog import claude-code`: agents, skills and MCP servers of a .claude folder become configuration.

    loomlog import claude-code --from .claude              what would be imported, and what has no counterpart
    loomlog import claude-code --from .claude --dry-run    the change of loomlog.yaml as a diff
    loomlog import claude-code --from .claude --write      change loomlog.yaml, copy the skills to skills/

Nothing is replaced without --force. A file that cannot be read is skipped with its reason, and the rest goes on.

Before: services/cli/main.py. After: agent_files.py, mcp_files.py, skill_folders.py, configuration_file.py.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import unified_diff
from itertools import count, takewhile
from pathlib import Path
from typing import Annotated, Any

import typer

from loomlog.connectors.configuration.findings import join_words
from loomlog.connectors.configuration.layers import MAX_FILE_BYTES, Layer, read_layer
from loomlog.connectors.configuration.markdown_files import to_printable
from loomlog.schemas.records import Value
from loomlog.services.cli.admin.init import FILE
from loomlog.services.cli.claude_code.agent_files import read_agents
from loomlog.services.cli.claude_code.configuration_file import mapping_of, put_entries, read_plain, size_of
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
FILLED_BYTES = MAX_FILE_BYTES - 4_096
"""Bytes to which files are filled; the rest is for what is counted roughly, as names of blocks and line ends are."""
NO_RECIPES = "This version has no recipes of MCP servers, so none can be emitted; servers go to mcp_servers."


class Row(Value, frozen=True, kw_only=True):
    """Line of the report. `action`: add, replace, copy, keep (another one is there), same or skip."""

    kind: str
    name: str
    source: str
    action: str
    notes: tuple[Note, ...] = ()


class Change(Value, frozen=True, kw_only=True):
    """Change of a configuration file: its text before and after."""

    file: Path
    old: str
    new: str


class Plan(Value, frozen=True, kw_only=True):
    """What an import does. `changes`: one for each configuration file, the target first; `copies`: the skills that are
    written.
    """

    rows: tuple[Row, ...]
    skipped: tuple[Skipped, ...]
    changes: tuple[Change, ...]
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
            _carry_out(plan, destination)
        except OSError as error:
            raise CliError(f"{error.filename or target} cannot be written: {error.strerror}.") from error
    diff = "".join(map(_diff, plan.changes)) if dry_run else None
    if as_json:
        print_json(_document(plan, target=str(target), written=write, diff=diff))
    else:
        _print_report(plan, target=target, destination=destination, write=write)
        console().print(diff or "", end="")


def _plan(folder: Path, target: Path, destination: Path, *, force: bool) -> Plan:
    """Return what an import would do. Raises CliError when the file cannot be read or edited, NotFound for nothing."""
    texts = {file: _read_target(file) for file in _iter_files(target)}
    try:
        plain = {file: read_plain(text, str(file)) for file, text in texts.items()}
    except ValueError as error:
        raise CliError(f"{error}. Correct the file first, or name another with --diff FILE.") from error
    configuration = _merge_blocks(plain.values())
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
        changes = _place(changed, texts, plain, target)
    except ValueError as error:
        raise CliError(f"{error}. Nothing was written.") from error
    return Plan(
        rows=(
            *(_row(entry.block, entry, action) for entry, action in entries),
            *(_row("skills", *one) for one in copies),
        ),
        skipped=tuple(skipped),
        changes=changes,
        copies=tuple(skill for skill, action in copies if action in CHANGES),
    )


def _iter_files(target: Path) -> Iterator[Path]:
    """Yield the target and the further files of an import that did not fit it, numbered from 2."""
    yield target
    yield from takewhile(Path.exists, (_further_file(target, number) for number in count(2)))


def _further_file(target: Path, number: int) -> Path:
    return target.with_name(f"{target.stem}-{number}{target.suffix}")


def _merge_blocks(files: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the blocks of all files together."""
    merged: dict[str, Any] = {}
    for file in files:
        for block, value in file.items():
            merged[block] = {**mapping_of(merged, block), **value} if isinstance(value, dict) else value
    return merged


def _place(
    entries: Sequence[Entry], texts: Mapping[Path, str], plain: Mapping[Path, Mapping[str, Any]], target: Path
) -> tuple[Change, ...]:
    """Return the changes of the files: an entry that is in one of them stays there, others go to the first with room,
    and a further file begins when none has. Raises ValueError for a file that cannot be edited.
    """
    room = {file: FILLED_BYTES - len(text.encode()) for file, text in texts.items()}
    placed: dict[Path, list[Entry]] = {file: [] for file in texts}
    for entry in entries:
        size = size_of(entry)
        holder = next((file for file in plain if entry.name in mapping_of(plain[file], entry.block)), None)
        file = holder or next((file for file in placed if room[file] >= size), None)
        if file is None:
            file = _further_file(target, len(placed) + 1)
            placed[file], room[file] = [], FILLED_BYTES
        placed[file].append(entry)
        room[file] -= size
    return tuple(
        Change(file=file, old=texts.get(file, ""), new=put_entries(texts.get(file, ""), added, file=str(file)))
        for file, added in placed.items()
        if added
    )


def _carry_out(plan: Plan, destination: Path) -> None:
    for change in plan.changes:
        change.file.parent.mkdir(parents=True, exist_ok=True)
        mode = change.file.stat().st_mode & 0o777 if change.file.exists() else 0o644
        write_atomically(change.file.resolve(), change.new, mode=mode)
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


def _diff(change: Change) -> str:
    old, new = (text.splitlines(keepends=True) for text in (change.old, change.new))
    lines = unified_diff(old, new, str(change.file), str(change.file))
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _document(plan: Plan, *, target: str, written: bool, diff: str | None) -> dict[str, Any]:
    return {
        "target": target,
        "files": [str(change.file) for change in plan.changes],
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
    files = [str(change.file) for change in plan.changes] or [str(target)]
    if len(files) > 1:
        out.print(f"{target} alone would have more than the {MAX_FILE_BYTES} bytes that are read of a file")
    if not write:
        out.print(f"{changes} to import; --dry-run shows the change of {join_words(files)}, --write makes it")
        return
    out.print(f"imported {changes} into {join_words(files)}" + (f" and {destination}" if has_skills else ""))
    if (all_files := [str(file) for file in _iter_files(target)])[1:]:
        out.print(f"  export LOOMLOG_CONFIG_FILES={':'.join(all_files)}")
    out.print("  loomlog agents check")
    if has_skills:
        out.print(f"  export LOOMLOG_SKILLS_ROOT={destination}")
