"""`loomlog defs ls, show, diff, lineage, runs, at`: which definitions there are, were, and what has used them.

Before: defs.py. After: services/cli/http/api.py.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.text import Text

from loomlog.services.cli.commands import run
from loomlog.services.cli.definitions.definition_text import (
    REASON_CHARACTERS,
    format_time,
    judgements_text,
    print_diff,
    print_history,
    print_lineage,
    print_output_change,
    print_version,
    tenant_name,
)
from loomlog.services.cli.definitions.versions import (
    AGENT,
    DEF_ID,
    SHARED_NAME,
    KindFilter,
    KindOption,
    Tenant,
    VersionArgument,
    find_line,
    get_version,
    hint,
    operate,
    resolve,
    version_name,
)
from loomlog.services.cli.errors import UsageError
from loomlog.services.cli.http.api import ApiClient, ApiError
from loomlog.services.cli.http.requests import get, open_api
from loomlog.services.cli.runs.runs import Json
from loomlog.services.cli.terminal.formatting import one_line, pluralize
from loomlog.services.cli.terminal.output import DIM, NAME, SUCCESS, WARNING, console, print_json, print_table
from loomlog.services.cli.terminal.run_text import print_runs
from loomlog.services.cli.terminal.times import to_rfc3339
from loomlog.services.core.definitions import PATH

FILE, ACTIVE = "file", "active"
"""Other sides of a difference: what the configuration file says, and the active version."""
POSITION = re.compile(r"[A-Za-z0-9._-]+/\d+:\d+\Z")
LIST_LIMIT, LIST_LIMIT_MAX = 50, 200
Limit = Annotated[int, typer.Option("--limit", min=1, max=LIST_LIMIT_MAX, help="Most entries to list.")]
Cursor = Annotated[str, typer.Option("--cursor", help="`next` of an earlier answer.")]


def list_definitions(
    kind: KindFilter = "",
    prefix: Annotated[str, typer.Option("--prefix", help="Only names that begin with this text.")] = "",
    active: Annotated[
        bool | None, typer.Option("--active/--inactive", help="Only those with, or without, an active version.")
    ] = None,
    retired: Annotated[
        bool | None, typer.Option("--retired/--not-retired", help="Only those with, or without, a retired version.")
    ] = None,
    created_by: Annotated[str, typer.Option("--created-by", help="Only those that this subject or agent made.")] = "",
    tenant: Tenant = "",
    limit: Limit = LIST_LIMIT,
    cursor: Cursor = "",
    as_json: Json = False,
) -> None:
    """List definitions of all kinds, by kind and name."""
    params: dict[str, str | int] = {
        "kind": kind,
        "prefix": prefix,
        "active": _flag(active),
        "retired": _flag(retired),
        "created_by": created_by,
        "tenant": tenant,
        "limit": limit,
        "cursor": cursor,
    }
    page = get(PATH, params)
    if as_json:
        print_json(page)
        return
    out = console()
    rows = page["definitions"]
    if not rows:
        out.print(Text("none", style=DIM))
        return
    cells = [
        (
            Text(row["name"], style=NAME),
            row["kind"],
            tenant_name(row["tenant_id"]) if row["source"] != FILE else "-",
            row["source"],
            _active_cell(row),
            f"{row['live_version_count']}/{row['version_count']}" if row["version_count"] else "-",
            judgements_text(row["judgements"]) or "-",
            format_time(row["last_updated"]) or "-",
            _notes(row),
        )
        for row in rows
    ]
    print_table(out, ("NAME", "KIND", "TENANT", "SOURCE", "ACTIVE", "LIVE", "JUDGED", "CHANGED", "NOTE"), cells)
    if page["next"]:
        out.print(Text(f"There are more: --cursor {page['next']}", style=DIM))


def show(version: VersionArgument, kind: KindOption = AGENT, tenant: Tenant = "", as_json: Json = False) -> None:
    """Show a version with its whole definition, and the history of its name."""
    row, versions, line = run(_show(version, kind, tenant))
    if as_json:
        print_json({"definition": row, "versions": versions})
        return
    out = console()
    print_version(out, row)
    if versions:
        out.print()
        print_history(out, versions, line["active_def_id"] if line else None)
    if line and line["source"] == FILE:
        override = hint("fork", row["name"], kind=row["kind"], tenant=tenant)
        out.print(
            Text(f"It comes from a configuration file; `{override} --promote --set KEY=VALUE` overrides it.", style=DIM)
        )


def diff(
    version: VersionArgument,
    other: Annotated[
        str, typer.Argument(metavar="[OTHER]", help="Other version, `active`, or `file`; without it the parent.")
    ] = "",
    kind: KindOption = AGENT,
    tenant: Tenant = "",
    as_json: Json = False,
) -> None:
    """Show by field how a version differs from its parent, or how another version differs from it."""
    answer = run(_diff(version, other, kind, tenant))
    if as_json:
        print_json(answer)
        return
    out = console()
    out.print(Text(f"{answer['from'] or 'nothing'} -> {answer['to'] or 'nothing'}", style=DIM))
    print_diff(out, answer["changes"])
    print_output_change(out, answer.get("output_change"))
    if not answer["changes"]:
        out.print("No difference.")


def lineage(
    version: VersionArgument,
    depth: Annotated[int, typer.Option("--depth", min=1, max=100, help="Steps up and down.")] = 10,
    kind: KindOption = AGENT,
    tenant: Tenant = "",
    as_json: Json = False,
) -> None:
    """Show what a version was made from, and what was made from it, as a tree."""
    answer, row, active = run(_lineage(version, depth, kind, tenant))
    if as_json:
        print_json(answer)
        return
    print_lineage(console(), answer, row, active)


def runs(
    version: VersionArgument,
    status: Annotated[str, typer.Option("--status", help="running, completed, failed or cancelled.")] = "",
    kind: KindOption = AGENT,
    tenant: Tenant = "",
    limit: Limit = LIST_LIMIT,
    cursor: Cursor = "",
    as_json: Json = False,
) -> None:
    """List the runs that are pinned to a version, newest first."""
    params: dict[str, str | int] = {"status": status, "limit": limit, "cursor": cursor}
    page = run(_runs(version, params, kind, tenant))
    if as_json:
        print_json(page)
        return
    out = console()
    if not page["runs"]:
        out.print(Text("No run is pinned to it.", style=DIM))
        return
    print_runs(out, page["runs"])
    if page["next"]:
        out.print(Text(f"There are more: --cursor {page['next']}", style=DIM))


def at(
    moment: Annotated[
        str, typer.Argument(metavar="TIME|POSITION", help="24h, an RFC 3339 time, or TOPIC/PARTITION:OFFSET.")
    ],
    kind: KindFilter = "",
    name: Annotated[str, typer.Option("--name", help="Only this name.")] = "",
    tenant: Tenant = "",
    as_json: Json = False,
) -> None:
    """Show which versions were active at a time, or at a position of the log."""
    named = {"position": moment} if POSITION.match(moment) else {"time": to_rfc3339(moment, option="the time")}
    if not any(named.values()):
        raise UsageError("Which time? Give an age like 24h, an RFC 3339 time, or a position.")
    answer = get(f"{PATH}/at", {**named, "kind": kind, "name": name, "tenant": tenant})
    if as_json:
        print_json(answer)
        return
    out = console()
    if not answer["definitions"]:
        out.print(Text("No version was active then.", style=DIM))
        return
    rows = [
        (
            Text(version_name(row["name"], row["version"]), style=NAME),
            row["kind"],
            tenant_name(row["tenant_id"]),
            row["active_def_id"],
            format_time(row["promoted_at"]),
            row["promoted_by"] or "-",
            one_line(row["why"] or "", REASON_CHARACTERS),
        )
        for row in answer["definitions"]
    ]
    print_table(out, ("ACTIVE", "KIND", "TENANT", "ID", "PROMOTED", "BY", "WHY"), rows)
    out.print(Text(f"{pluralize(len(rows), 'definition')} at {answer['at']}", style=DIM))


def _flag(value: bool | None) -> str:
    return "" if value is None else str(value).lower()


def _active_cell(row: Mapping[str, Any]) -> Text:
    if row["active_def_id"]:
        return Text.assemble((f"@{row['active_version']}", SUCCESS), f" {row['active_def_id']}")
    return Text(FILE if row["static_def_id"] else "-")


def _notes(row: Mapping[str, Any]) -> Text:
    notes = []
    if row["static_differs"]:
        notes.append("the files of its processes differ")
    if row["made_by_agent"]:
        notes.append(f"made by {row['made_by_agent']}")
    return Text(", ".join(notes), style=WARNING if row["static_differs"] else DIM)


async def _show(
    text: str, kind: str, tenant: str
) -> tuple[Mapping[str, Any], Sequence[Mapping[str, Any]], Mapping[str, Any] | None]:
    """Return a version, all versions of its line newest first, and the row of the line."""
    async with open_api() as api:
        version = await resolve(api, text, kind, tenant)
        row = await get_version(api, version.def_id, tenant)
        if not row["version"]:
            return row, (), await find_line(api, row["kind"], row["name"], tenant)
        owner = tenant or await _foreign_tenant(api, row)
        try:
            body = {"op": "list", "name": row["name"]}
            versions = (await operate(api, row["kind"], body, tenant=owner, key="")).value["versions"]
            return row, versions, await find_line(api, row["kind"], row["name"], owner)
        except ApiError as error:
            if error.status != 403:
                raise
            return row, (), None  # a shared version, which every tenant sees and only administrators list


async def _foreign_tenant(api: ApiClient, row: Mapping[str, Any]) -> str:
    """Return the tenant of a version as --tenant names it; empty for the caller's own."""
    me = await api.get("/v1/_me")
    return "" if row["tenant_id"] == me["tenant_id"] else row["tenant_id"] or SHARED_NAME


async def _diff(text: str, other: str, kind: str, tenant: str) -> Mapping[str, Any]:
    async with open_api() as api:
        version = await resolve(api, text, kind, tenant)
        if other not in ("", FILE, ACTIVE) and not DEF_ID.match(other):
            other = (await resolve(api, other, version.kind, tenant)).def_id
        answer: Mapping[str, Any] = await api.get(f"{PATH}/{version.def_id}/diff", {"to": other, "tenant": tenant})
        return answer


async def _lineage(
    text: str, depth: int, kind: str, tenant: str
) -> tuple[Mapping[str, Any], Mapping[str, Any], str | None]:
    """Return a lineage, the version that was asked for, and the id of the active version."""
    async with open_api() as api:
        version = await resolve(api, text, kind, tenant)
        answer = await api.get(f"{PATH}/{version.def_id}/lineage", {"depth": depth, "tenant": tenant})
        row = await get_version(api, version.def_id, tenant)
        return answer, row, row["def_id"] if row.get("promoted") else await _active(api, row, tenant)


async def _active(api: ApiClient, row: Mapping[str, Any], tenant: str) -> str | None:
    line = await find_line(api, row["kind"], row["name"], tenant or await _foreign_tenant(api, row))
    return None if line is None else line["active_def_id"]


async def _runs(text: str, params: Mapping[str, str | int], kind: str, tenant: str) -> Any:
    async with open_api() as api:
        version = await resolve(api, text, kind, tenant)
        return await api.get(f"{PATH}/{version.def_id}/runs", {**params, "tenant": tenant})
