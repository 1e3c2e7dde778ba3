"""Lines and versions of definitions, as commands name them: NAME, NAME@VERSION or a def_id.

A NAME is its active version, or what a file says of it. The id of NAME@VERSION follows from the line, so no list of
versions is read.

Before: every command of `loomlog defs`. After: services/cli/http/api.py.
"""

import re
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

import orjson
import typer

from loomlog.connectors.configuration.findings import did_you_mean
from loomlog.connectors.definitions import KINDS
from loomlog.schemas.records import Value
from loomlog.services.cli.errors import NotFound, UsageError
from loomlog.services.cli.http.api import ApiClient, ApiResponse, quote_segment
from loomlog.services.cli.http.requests import send_with
from loomlog.services.core.definitions import PATH, def_id

AGENT = "agent"
SHARED_NAME = "_shared"
"""Value of --tenant for the definitions that all tenants share."""
WRITE_TIMEOUT_S = 100.0
"""Seconds to wait for the answer of a write; the API waits up to 30 s for the owner and again for its events."""
PAGE_SIZE = 200
PAGES_MAX = 600
"""Pages of one listing: more lines than an installation may have."""
DEF_ID = re.compile(r"(?:def|sdf|tdf|mdf)_[0-9a-f]{16}\Z")
_NUMBERED = re.compile(r"(?P<name>[^@]+)@(?P<number>[1-9][0-9]{0,5})\Z")


def _check_kind(kind: str) -> str:
    if kind and kind not in KINDS:
        raise UsageError(f"--kind is {kind!r}{did_you_mean(kind, KINDS)}: expected one of {', '.join(KINDS)}.")
    return kind


KindOption = Annotated[
    str, typer.Option("--kind", help="Kind of a definition that is given by its name.", callback=_check_kind)
]
KindFilter = Annotated[str, typer.Option("--kind", help="Only this kind.", callback=_check_kind)]
Tenant = Annotated[
    str, typer.Option("--tenant", help=f"Administrators: another tenant, or {SHARED_NAME} for what all tenants share.")
]
VersionArgument = Annotated[
    str, typer.Argument(metavar="VERSION", help="NAME (its active version), NAME@VERSION or a def_id.")
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the definition.")]
IdempotencyKey = Annotated[
    str, typer.Option("--idempotency-key", help="The same key again is the same command, done once.")
]


class VersionRef(Value, frozen=True, kw_only=True):
    """A version of a line. `number` is 0 for the definition of a file."""

    kind: str
    name: str
    number: int
    def_id: str


def is_name(text: str) -> bool:
    """Return whether a text names a line, and no single version."""
    return "@" not in text and not DEF_ID.match(text)


def version_name(name: str, number: int) -> str:
    """Format a version as commands take it: `researcher@3`; the name alone for the definition of a file."""
    return f"{name}@{number}" if number else name


def hint(verb: str, subject: str, *, kind: str = AGENT, tenant: str = "") -> str:
    """Return a command line of `loomlog defs` that can be copied."""
    options = (f" --kind {kind}" if kind != AGENT else "") + (f" --tenant {tenant}" if tenant else "")
    return f"loomlog defs {verb} {subject}{options}"


async def find_line(api: ApiClient, kind: str, name: str, tenant: str) -> Mapping[str, Any] | None:
    """Return what a name means for a tenant: the row of its line, of the shared one, or of a file; None for nothing."""
    page = await api.get(PATH, {"kind": kind, "name": name, "tenant": tenant})
    rows: list[Mapping[str, Any]] = page["definitions"]
    return rows[0] if rows else None


def is_own(line: Mapping[str, Any], tenant: str) -> bool:
    """Return whether the active version of a row is one of the tenant itself, so that its changes take it back."""
    source: str = line["source"]
    return source == ("shared" if tenant == SHARED_NAME else "tenant")


async def require_line(api: ApiClient, kind: str, name: str, tenant: str) -> Mapping[str, Any]:
    """Return the row of a line. Raises NotFound."""
    line = await find_line(api, kind, name, tenant)
    if line is None:
        raise NotFound(f"There is no {kind} {name}. `loomlog defs ls --kind {kind}` lists them.")
    return line


async def resolve(api: ApiClient, text: str, kind: str, tenant: str) -> VersionRef:
    """Return the version that a text names. Raises NotFound."""
    if DEF_ID.match(text):
        row = await get_version(api, text, tenant)
        return VersionRef(kind=row["kind"], name=row["name"], number=row["version"], def_id=row["def_id"])
    numbered = _NUMBERED.match(text)
    name = numbered["name"] if numbered else text
    if "@" in name:
        raise UsageError(
            f"{text} names no version: expected NAME, NAME@VERSION such as {name.split('@')[0]}@2, or an id."
        )
    line = await require_line(api, kind, name, tenant)
    if numbered:
        number = int(numbered["number"])
        if number > line["latest_version"]:
            newest = line["latest_version"]
            versions = f"its newest version is {version_name(name, newest)}" if newest else "it comes from a file only"
            raise NotFound(f"There is no version {text}: {versions}.")
        made_id = def_id(line["tenant_id"], kind, name, number)
        return VersionRef(kind=kind, name=name, number=number, def_id=made_id)
    active = line["active_def_id"] or line["static_def_id"]
    if not active:
        newest = version_name(name, line["latest_version"])
        raise NotFound(
            f"No version of {name} is active; the newest is {newest}, `{hint('promote', newest, kind=kind)}`."
        )
    return VersionRef(kind=kind, name=name, number=line["active_version"], def_id=active)


async def get_version(api: ApiClient, version_id: str, tenant: str) -> Mapping[str, Any]:
    """Return a version with its definition. Raises NotFound."""
    row: Mapping[str, Any] = await api.get(f"{PATH}/{quote_segment(version_id)}", {"tenant": tenant})
    return row


async def list_lines(
    api: ApiClient, params: Mapping[str, str | int], *, page_size: int = PAGE_SIZE
) -> AsyncIterator[Mapping[str, Any]]:
    """Yield the rows of all pages."""
    cursor = ""
    for _ in range(PAGES_MAX):
        page = await api.get(PATH, {**params, "limit": page_size, "cursor": cursor})
        for row in page["definitions"]:
            yield row
        cursor = page["next"] or ""
        if not cursor:
            return


async def operate(api: ApiClient, kind: str, body: Mapping[str, Any], *, tenant: str, key: str) -> ApiResponse:
    """Carry out an operation of a kind; fields that are None or empty are left out, save expect_active."""
    fields = {name: value for name, value in body.items() if value not in (None, "") or name == "expect_active"}
    fields = {name: value for name, value in fields.items() if value is not None}
    return await post(api, f"/v1/_{KINDS[kind].route}", fields, tenant=tenant, key=key)


async def post(api: ApiClient, path: str, body: Mapping[str, Any], *, tenant: str, key: str) -> ApiResponse:
    """Send a write once, whatever becomes of the answer. Raises CliError."""
    try:
        orjson.dumps(body)
    except orjson.JSONEncodeError as error:
        raise UsageError(f"The request cannot be written as JSON: {error}.") from error
    return await send_with(api, "POST", path, body, params={"tenant": tenant}, key=key, timeout_s=WRITE_TIMEOUT_S)
