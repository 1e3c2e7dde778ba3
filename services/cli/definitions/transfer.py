"""`loomlog defs apply, import, export`: many definitions at once, as a file.

    apply FILE     up to 32 definitions, all or none; the differences first, done with --yes or after a question
    import FILE    an export of any length, 32 at a time; what says the same already is left out, so it can be repeated
    export FILE    the active versions of a tenant, in the form that both take

What is applied is what was shown: a definition that was changed in between is refused, and so is its whole batch.

Before: defs.py. After: sources.py, services/cli/http/api.py.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from loomlog.connectors.definitions import KINDS, DefinitionProblem, canonical_json, diff
from loomlog.schemas.records import Value
from loomlog.services.cli.commands import run
from loomlog.services.cli.definitions.changes import Description
from loomlog.services.cli.definitions.definition_text import describe_active, print_diff
from loomlog.services.cli.definitions.sources import Definition, overlay_of, read_definitions, write_definitions
from loomlog.services.cli.definitions.versions import (
    AGENT,
    IdempotencyKey,
    KindFilter,
    Tenant,
    find_line,
    get_version,
    hint,
    is_own,
    list_lines,
    post,
    version_name,
)
from loomlog.services.cli.errors import CliError, UsageError
from loomlog.services.cli.http.api import ApiClient, ApiResponse
from loomlog.services.cli.http.requests import open_api
from loomlog.services.cli.log.export_file import check_target
from loomlog.services.cli.runs.bulk import is_interactive
from loomlog.services.cli.runs.runs import Json
from loomlog.services.cli.stack.home import write_atomically
from loomlog.services.cli.terminal.formatting import pluralize
from loomlog.services.cli.terminal.output import DIM, NAME, SUCCESS, console, fact_line, print_json
from loomlog.services.core.definitions import PATH

BATCH_MAX = 32
"""Definitions of one batch, the limit of the API."""
BATCH_BYTES_MAX = 400_000
"""Bytes of the overlays of one batch; a request may have twice as many."""
STDOUT = "-"
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="YAML or JSON file with definitions.")]


class Step(Value, frozen=True, kw_only=True):
    """What a file does to a line. `differences` is empty when the active version says the same."""

    definition: Definition
    line: Mapping[str, Any] | None
    differences: Sequence[Mapping[str, Any]]
    is_own: bool
    """Whether the active version is of the tenant itself, neither shared nor of a file."""

    @property
    def expected(self) -> str:
        """Id of the active version of the tenant's own line; empty for none."""
        return (self.line["active_def_id"] or "") if self.line is not None and self.is_own else ""


def apply(
    file: FileArgument,
    description: Description = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do it without asking.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    kind: KindFilter = "",
    tenant: Tenant = "",
    idempotency_key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Make the definitions of a file active, all at once or none; keys that a file leaves out stay as they are."""
    asks = not yes and not dry_run
    if asks and (as_json or not is_interactive()):
        raise UsageError("To apply definitions without being asked, give --yes; --dry-run shows what would change.")
    steps = run(_compare(read_definitions(file, kind=kind), tenant))
    changed = [step for step in steps if step.differences]
    if len(changed) > BATCH_MAX:
        text = f"{file} changes {len(changed)} definitions, and at most {BATCH_MAX} become active at once"
        raise UsageError(f"{text}: `loomlog defs import {file}` makes them {BATCH_MAX} at a time.")
    if dry_run and as_json:
        print_json({"definitions": [_step_json(step) for step in steps]})
        return
    if not as_json:
        _print_preview(steps)
    if dry_run or (not changed and not as_json):
        return
    if asks and not typer.confirm(f"Apply {pluralize(len(changed), 'definition')}?"):
        raise CliError("Nothing was done.")
    response = run(_apply(changed, description, tenant, idempotency_key)) if changed else None
    if as_json:
        value = response.value if response else {"batch": None, "status": "unchanged", "definitions": []}
        print_json({**value, "position": (response.position if response else "") or None})
    elif response:
        _print_applied(response, changed, tenant)


def import_definitions(
    file: FileArgument,
    description: Description = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    kind: KindFilter = "",
    tenant: Tenant = "",
    as_json: Json = False,
) -> None:
    """Make the definitions of an export active here; repeated, it goes on where it was stopped."""
    steps = run(_compare(read_definitions(file, kind=kind, expands=False), tenant))
    changed = [step for step in steps if step.differences]
    if dry_run:
        if as_json:
            print_json({"definitions": [_step_json(step) for step in steps]})
        else:
            _print_preview(steps)
        return
    made = run(_import(changed, description, tenant))
    if as_json:
        print_json({"definitions": made, "unchanged": len(steps) - len(changed)})
        return
    out = console()
    for step, row in zip(changed, made, strict=True):
        named = version_name(row["name"], row["version"])
        out.print(Text.assemble(step.definition.kind, " ", (named, NAME), (f"  {row['def_id']}  ", DIM), "is active"))
    out.print(f"{pluralize(len(made), 'definition')} imported, {len(steps) - len(changed)} unchanged")


def export(
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help="File to write; - is stdout.")] = Path(STDOUT),
    prefix: Annotated[str, typer.Option("--prefix", help="Only names that begin with this text.")] = "",
    kind: KindFilter = "",
    tenant: Tenant = "",
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    as_json: Json = False,
) -> None:
    """Write the active versions of a tenant as a file that `apply` and `import` take."""
    is_file = str(file) != STDOUT
    if is_file:
        check_target(file, force=force)
    definitions = run(_export({"kind": kind, "prefix": prefix, "active": "true", "tenant": tenant}, tenant))
    if is_file:
        try:
            write_atomically(file.absolute(), write_definitions(definitions), mode=0o600)
        except OSError as error:
            raise CliError(f"{file} cannot be written: {error.strerror}.") from error
        if as_json:
            print_json({"file": str(file), "definitions": len(definitions)})
        else:
            console().print(f"{pluralize(len(definitions), 'definition')} in {file}")
    elif as_json:
        items = [{"kind": one.kind, "name": one.name, "overlay": one.overlay} for one in definitions]
        print_json({"definitions": items})
    else:
        print(write_definitions(definitions), end="")


# --- requests --------------------------------------------------------------------------------------------------------


async def _compare(definitions: Sequence[Definition], tenant: str) -> list[Step]:
    async with open_api() as api:
        return [await _compare_one(api, one, tenant) for one in definitions]


async def _compare_one(api: ApiClient, one: Definition, tenant: str) -> Step:
    """Compare a definition of a file with what it is merged over. Raises CliError for one that cannot be used."""
    line = await find_line(api, one.kind, one.name, tenant)
    base_id = one.parent_def_id or (line and (line["active_def_id"] or line["static_def_id"]))
    base = (await get_version(api, base_id, tenant))["definition"] if base_id else None
    kind = KINDS[one.kind]
    try:
        content = kind.compose(one.name, one.overlay, base)
    except DefinitionProblem as problem:
        raise CliError(f"{one.kind} {one.name}: {problem}.") from problem
    active_id = line and line["active_def_id"]
    active = (
        base if base_id == active_id or not active_id else (await get_version(api, active_id, tenant))["definition"]
    )
    return Step(
        definition=one,
        line=line,
        differences=diff(kind, active or {}, content),
        is_own=line is not None and is_own(line, tenant),
    )


async def _apply(steps: Sequence[Step], description: str, tenant: str, key: str = "") -> ApiResponse:
    async with open_api() as api:
        return await _post_batch(api, steps, description, tenant, key)


async def _import(steps: Sequence[Step], description: str, tenant: str) -> list[Mapping[str, Any]]:
    made: list[Mapping[str, Any]] = []
    async with open_api() as api:
        for batch in _batches(steps):
            try:
                made += (await _post_batch(api, batch, description, tenant)).value["definitions"]
            except CliError as error:
                if made:
                    error.args = (f"{error} {len(made)} of {len(steps)} are imported; the same command goes on.",)
                raise
    return made


def _batches(steps: Sequence[Step]) -> list[list[Step]]:
    batches: list[list[Step]] = []
    size = 0
    for step in steps:
        own = len(canonical_json(step.definition.overlay).encode())
        if not batches or len(batches[-1]) == BATCH_MAX or size + own > BATCH_BYTES_MAX:
            batches.append([])
            size = 0
        batches[-1].append(step)
        size += own
    return batches


async def _post_batch(
    api: ApiClient, steps: Sequence[Step], description: str, tenant: str, key: str = ""
) -> ApiResponse:
    body: dict[str, Any] = {"definitions": [_change(step) for step in steps]}
    body |= {"description": description} if description else {}
    return await post(api, f"{PATH}/apply", body, tenant=tenant, key=key)


def _change(step: Step) -> dict[str, Any]:
    one = step.definition
    change = {"kind": one.kind, "name": one.name, "overlay": one.overlay, "expect_active": step.expected}
    return change | ({"parent_def_id": one.parent_def_id} if one.parent_def_id else {})


async def _export(params: Mapping[str, str | int], tenant: str) -> list[Definition]:
    definitions = []
    async with open_api() as api:
        async for line in list_lines(api, params):
            if not is_own(line, tenant):
                continue
            content = (await get_version(api, line["active_def_id"], tenant))["definition"]
            definitions.append(
                Definition(kind=line["kind"], name=line["name"], overlay=overlay_of(line["kind"], content))
            )
    return definitions


# --- output ----------------------------------------------------------------------------------------------------------


def _print_preview(steps: Sequence[Step]) -> None:
    out = console()
    for step in steps:
        one = step.definition
        state = "" if step.differences else "  unchanged"
        over = "new" if step.line is None else f"now {describe_active(step.line)}"
        out.print(Text.assemble(one.kind, " ", (one.name, NAME), (f"  {over}{state}", DIM)))
        print_diff(out, step.differences, indent="  ")


def _step_json(step: Step) -> dict[str, Any]:
    one = step.definition
    active = step.line["active_def_id"] if step.line is not None else None
    return {"kind": one.kind, "name": one.name, "active_def_id": active, "changes": step.differences}


def _print_applied(response: ApiResponse, steps: Sequence[Step], tenant: str) -> None:
    out = console()
    out.print(Text(f"{pluralize(len(steps), 'definition')} became active at once", style=SUCCESS))
    for step, row in zip(steps, response.value["definitions"], strict=True):
        kind, named = step.definition.kind, version_name(row["name"], row["version"])
        out.print(Text.assemble(kind, " ", (named, NAME), (f"  {row['def_id']}", DIM)))
        verb, subject = ("rollback", row["name"]) if step.expected else ("retire", named)
        out.print(fact_line("take back", hint(verb, subject, kind=kind or AGENT, tenant=tenant)))
    out.print(fact_line("event", response.position))
