"""`loomlog defs create, fork, promote, ...`: changes, each with what was active, what is, and the way back.

Before: defs.py. After: services/cli/http/api.py.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from loomlog.schemas.records import Value
from loomlog.services.cli.commands import run
from loomlog.services.cli.definitions.definition_text import describe_active
from loomlog.services.cli.definitions.sources import read_overlay
from loomlog.services.cli.definitions.versions import (
    AGENT,
    IdempotencyKey,
    KindOption,
    NameArgument,
    Tenant,
    VersionArgument,
    VersionRef,
    find_line,
    hint,
    is_name,
    is_own,
    operate,
    resolve,
    version_name,
)
from loomlog.services.cli.errors import CliError, NotFound, UsageError
from loomlog.services.cli.http.api import ApiClient, ApiResponse
from loomlog.services.cli.http.requests import open_api, print_written
from loomlog.services.cli.runs.runs import Json
from loomlog.services.cli.terminal.output import DIM, NAME, console, fact_line

NONE = "none"
"""Value of --expect-active: no version is active."""
File = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="Agent or skill as .md (a skill also as its folder), or .yaml, .json."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A value as YAML; dots go into objects. Over those of --file."),
]
Description = Annotated[str, typer.Option("--description", help="Why this version is made.")]
Promote = Annotated[
    bool | None, typer.Option("--promote/--no-promote", help="Whether it becomes active; the kind has a default.")
]
ExpectActive = Annotated[
    str | None,
    typer.Option(
        "--expect-active", metavar="VERSION", help=f"Refuse unless this version is active; {NONE}: no version."
    ),
]
Expires = Annotated[str, typer.Option("--expires-at", metavar="TIME", help="When it is retired by itself, RFC 3339.")]
Why = Annotated[str, typer.Option("--why", help="Why; it is kept with the change.")]
Line = Mapping[str, Any] | None


class Changed(Value, frozen=True, kw_only=True):
    """A change of a line: the answer, the row of the line before it, and what its name resolves to after it."""

    response: ApiResponse
    version: VersionRef
    before: Line
    after: str

    @property
    def was_active(self) -> bool:
        """Whether the version was active before the change."""
        return self.before is not None and self.before["active_def_id"] == self.version.def_id


def create(
    name: NameArgument,
    file: File = None,
    assignments: Set = None,
    description: Description = "",
    promote: Promote = None,
    expect_active: ExpectActive = None,
    expires_at: Expires = "",
    kind: KindOption = AGENT,
    tenant: Tenant = "",
    idempotency_key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Make a version from a file or single values; the same content again makes none."""
    overlay = read_overlay(kind, name, file, assignments or ())
    if not overlay:
        raise UsageError("What is it? Give --file FILE, or --set KEY=VALUE for each key.")
    body: dict[str, Any] = {"op": "create", "name": name, "overlay": overlay, "description": description}
    body |= {"promote": promote, "expires_at": expires_at}
    _print_made(run(_make(body, name, expect_active, kind, tenant, idempotency_key)), tenant, as_json=as_json)


def fork(
    version: VersionArgument,
    file: File = None,
    assignments: Set = None,
    description: Description = "",
    promote: Promote = None,
    expect_active: ExpectActive = None,
    expires_at: Expires = "",
    kind: KindOption = AGENT,
    tenant: Tenant = "",
    idempotency_key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Make a version from another one; keys that are not given stay as they are."""
    body: dict[str, Any] = {"op": "fork", "description": description, "promote": promote, "expires_at": expires_at}
    changed = run(_fork(body, version, file, assignments or [], expect_active, kind, tenant, idempotency_key))
    _print_made(changed, tenant, as_json=as_json)


def promote_version(
    version: VersionArgument,
    why: Why = "",
    expect_active: ExpectActive = None,
    kind: KindOption = AGENT,
    tenant: Tenant = "",
    idempotency_key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Make a version the active one."""
    body = {"op": "promote", "why": why}
    changed = run(_change(version, body, kind, tenant, idempotency_key, expect_active=expect_active, is_explicit=True))
    if as_json:
        _print_response(changed.response)
        return
    back = "" if changed.was_active else _undo_promotion(changed, tenant)
    _print_changed(changed, "was active already" if changed.was_active else "is active", back)


def rollback(
    name: NameArgument,
    why: Why = "",
    expect_active: ExpectActive = None,
    kind: KindOption = AGENT,
    tenant: Tenant = "",
    idempotency_key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Make the version active that was so before."""
    if not is_name(name):
        raise UsageError(f"rollback takes a name; `loomlog defs promote {name}` makes that version active.")
    changed = run(_roll_back(name, why, expect_active, kind, tenant, idempotency_key))
    if as_json:
        _print_response(changed.response)
        return
    undone = changed.response.value["undone_def_id"]
    is_new = undone == changed.version.def_id
    _print_changed(
        changed,
        "is active again",
        _undo_promotion(changed, tenant) if is_new else hint("promote", undone, tenant=tenant),
    )


def retire(
    version: VersionArgument,
    why: Why = "",
    kind: KindOption = AGENT,
    tenant: Tenant = "",
    idempotency_key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Retire a version: nothing resolves to it any more, and runs under way keep it."""
    body = {"op": "retire", "retired": True, "why": why}
    changed = run(_change(version, body, kind, tenant, idempotency_key))
    if as_json:
        _print_response(changed.response)
        return
    back = [_command("restore", changed, tenant)]
    back += [_command("promote", changed, tenant)] if changed.was_active else []
    _print_changed(changed, "is retired", *back)


def restore(
    version: VersionArgument,
    why: Why = "",
    kind: KindOption = AGENT,
    tenant: Tenant = "",
    idempotency_key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Take back that a version was retired; it does not become active by that."""
    body = {"op": "retire", "retired": False, "why": why}
    changed = run(_change(version, body, kind, tenant, idempotency_key, is_explicit=True))
    if as_json:
        _print_response(changed.response)
        return
    _print_changed(changed, "is restored", _command("retire", changed, tenant))


# --- requests --------------------------------------------------------------------------------------------------------


async def _make(
    body: Mapping[str, Any], name: str, expect_active: str | None, kind: str, tenant: str, key: str
) -> Changed:
    async with open_api() as api:
        before = await find_line(api, kind, name, tenant)
        expected = await _expected(api, expect_active, kind, tenant)
        response = await operate(api, kind, {**body, "expect_active": expected}, tenant=tenant, key=key)
        row = response.value
        made = VersionRef(kind=kind, name=row["name"], number=row["version"], def_id=row["def_id"])
        after = await _resolved(api, kind, row["name"], tenant)
        return Changed(response=response, version=made, before=before, after=after)


async def _fork(
    body: Mapping[str, Any],
    text: str,
    file: Path | None,
    assignments: list[str],
    expect_active: str | None,
    kind: str,
    tenant: str,
    key: str,
) -> Changed:
    name, parent = text, ""
    if not is_name(text):
        async with open_api() as api:
            version = await resolve(api, text, kind, tenant)
        kind, name, parent = version.kind, version.name, version.def_id
    overlay = read_overlay(kind, name, file, assignments)
    fields = {**body, "name": name, "parent_def_id": parent, "overlay": overlay}
    return await _make(fields, name, expect_active, kind, tenant, key)


async def _change(
    text: str,
    body: Mapping[str, Any],
    kind: str,
    tenant: str,
    key: str,
    *,
    expect_active: str | None = None,
    is_explicit: bool = False,
) -> Changed:
    """Change one version. `is_explicit`: the active one, which a name alone means, makes no sense."""
    async with open_api() as api:
        if is_explicit and is_name(text):
            line = await find_line(api, kind, text, tenant)
            newest = line["latest_version"] if line is not None else 0
            example = version_name(text, newest or 1)
            raise UsageError(f"Which version of {text}? Give NAME@VERSION, such as {example}, or a def_id.")
        version = await resolve(api, text, kind, tenant)
        if not version.number:
            raise NotFound(f"{version.name} comes from a configuration file and has no version of its own.")
        before = await find_line(api, version.kind, version.name, tenant)
        expected = await _expected(api, expect_active, version.kind, tenant)
        fields = {**body, "def_id": version.def_id, "expect_active": expected}
        response = await operate(api, version.kind, fields, tenant=tenant, key=key)
        after = await _resolved(api, version.kind, version.name, tenant)
        return Changed(response=response, version=version, before=before, after=after)


async def _roll_back(name: str, why: str, expect_active: str | None, kind: str, tenant: str, key: str) -> Changed:
    async with open_api() as api:
        before = await find_line(api, kind, name, tenant)
        expected = await _expected(api, expect_active, kind, tenant)
        body = {"op": "rollback", "name": name, "why": why, "expect_active": expected}
        response = await operate(api, kind, body, tenant=tenant, key=key)
        answer = response.value
        version = VersionRef(kind=kind, name=name, number=answer["version"], def_id=answer["def_id"])
        after = await _resolved(api, kind, name, tenant)
        return Changed(response=response, version=version, before=before, after=after)


async def _resolved(api: ApiClient, kind: str, name: str, tenant: str) -> str:
    """Return what a name resolves to, as text; the change is made, so a failure is part of the text."""
    try:
        return describe_active(await find_line(api, kind, name, tenant))
    except CliError as error:
        return f"unknown ({error})"


async def _expected(api: ApiClient, text: str | None, kind: str, tenant: str) -> str | None:
    """Return the id of --expect-active: empty for no version, None without the option."""
    if text is None:
        return None
    return "" if text in ("", NONE) else (await resolve(api, text, kind, tenant)).def_id


# --- output ----------------------------------------------------------------------------------------------------------


def _print_made(changed: Changed, tenant: str, *, as_json: bool) -> None:
    row = changed.response.value
    if as_json:
        _print_response(changed.response)
    elif row.get("deduplicated"):
        _print_changed(changed, "says the same: no version was made", "")
    elif row["promoted"]:
        _print_changed(changed, "is active", _undo_promotion(changed, tenant))
    else:
        _print_changed(changed, "is made, and not active", "")
        out = console()
        out.print(fact_line("compare", _command("diff", changed, tenant)))
        out.print(fact_line("activate", _command("promote", changed, tenant)))


def _print_changed(changed: Changed, what: str, *back: str) -> None:
    """Print what became of a version, what was and is active, and the commands that take it back."""
    out = console()
    version, response = changed.version, changed.response
    named = version_name(version.name, version.number)
    kind = "" if version.kind == AGENT else f"{version.kind} "
    out.print(Text.assemble(kind, (named, NAME), (f"  {version.def_id}  ", DIM), what))
    out.print(fact_line("was active", describe_active(changed.before)))
    out.print(fact_line("is active", changed.after))
    if response.position:
        out.print(fact_line("event", response.position))
    for number, command in enumerate(filter(None, back)):
        out.print(fact_line("take back" if not number else "", command))


def _undo_promotion(changed: Changed, tenant: str) -> str:
    """Return the command that undoes a promotion: a rollback if a version of the line was active before."""
    before = changed.before
    if before is not None and before["active_def_id"] and is_own(before, tenant):
        return hint("rollback", changed.version.name, kind=changed.version.kind, tenant=tenant)
    return _command("retire", changed, tenant)


def _command(verb: str, changed: Changed, tenant: str) -> str:
    version = changed.version
    return hint(verb, version_name(version.name, version.number), kind=version.kind, tenant=tenant)


def _print_response(response: ApiResponse) -> None:
    print_written(response)
