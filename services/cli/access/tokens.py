"""`loomlog tokens`: tokens of any tenant, for administrators, over the API.

    loomlog tokens create --name ci --tenant acme --scopes runs:create,runs:read
    loomlog tokens import --name ci --tenant acme --scopes runs:read --copy-from-env CI_TOKEN
    loomlog tokens rotate ci --grace-seconds 0
    loomlog tokens retire ci
    loomlog tokens ls

Its other name is `operator-token`, under which it takes what the original takes: --name or --def-id instead of TOKEN,
--copy-from-env with `create`, and `list`.

The text of a new token is printed once, alone on the standard output with --text-only, so that it can be piped into a
file or a store of secrets. A text that is chosen comes from the environment or the standard input, never from an
argument, which every process of the machine can read.

Before: services/cli/main.py. After: services/cli/http/api.py.
"""

import os
import sys
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import typer
from rich.text import Text

from loomlog.services.cli.commands import CommandGroup
from loomlog.services.cli.errors import UsageError
from loomlog.services.cli.http.api import ApiResponse
from loomlog.services.cli.http.requests import get, print_change, print_written, send
from loomlog.services.cli.operations import IdempotencyKey
from loomlog.services.cli.runs.runs import Json
from loomlog.services.cli.terminal.output import (
    DIM,
    NAME,
    WARNING,
    console,
    error_console,
    fact_line,
    print_json,
    print_table,
)

PATH = "/v1/_operatortokendef"


class TokenCommands(CommandGroup):
    """The commands of tokens."""

    aliases: ClassVar[Mapping[str, str]] = {"list": "ls"}


tokens_app = typer.Typer(
    cls=TokenCommands, no_args_is_help=True, help="Tokens: create, import, rotate, retire, list, show."
)
Name = Annotated[str, typer.Option("--name", help="Name of the token, one in its tenant.")]
Tenant = Annotated[str, typer.Option("--tenant", help="Tenant that the holder belongs to.")]
Subject = Annotated[str, typer.Option("--subject", help="Subject of the holder; tok-<name> without it.")]
Scopes = Annotated[str, typer.Option("--scopes", help="Scopes, with commas between.")]
Expires = Annotated[str, typer.Option("--expires-at", metavar="TIME", help="When it ends by itself, RFC 3339.")]
Supersede = Annotated[
    bool, typer.Option("--supersede-shared", help="The shared token gives no access from now on; with substrate:admin.")
]
TextOnly = Annotated[bool, typer.Option("--text-only", help="Print the text of the token and nothing else.")]
Token = Annotated[str, typer.Argument(metavar="TOKEN", help="Its name, or its id (tok_...).", show_default=False)]
OfName = Annotated[str, typer.Option("--name", help="Its name, instead of TOKEN.")]
OfId = Annotated[str, typer.Option("--def-id", help="Its id, instead of TOKEN.")]
CopyFromEnv = Annotated[
    str, typer.Option("--copy-from-env", metavar="NAME", help="Variable with the text it is to have.")
]
OfTenant = Annotated[str, typer.Option("--tenant", help="Tenant of the name, where several have it.")]


@tokens_app.command("create")
def create(
    name: Name,
    tenant: Tenant,
    scopes: Scopes,
    subject: Subject = "",
    expires_at: Expires = "",
    supersede_shared: Supersede = False,
    copy_from_env: CopyFromEnv = "",
    text_only: TextOnly = False,
    key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Make a token; its text is shown once."""
    if copy_from_env:
        import_token(name, tenant, scopes, copy_from_env, subject, expires_at, supersede_shared, key, as_json)
        return
    fields = _fields(name, tenant, scopes, subject, expires_at, supersede_shared=supersede_shared)
    _print_made(send("POST", PATH, {"op": "create", **fields}, key=key), text_only=text_only, as_json=as_json)


@tokens_app.command("import")
def import_token(
    name: Name,
    tenant: Tenant,
    scopes: Scopes,
    copy_from_env: Annotated[
        str, typer.Option("--copy-from-env", metavar="NAME", help="Variable with the text; without: standard input.")
    ] = "",
    subject: Subject = "",
    expires_at: Expires = "",
    supersede_shared: Supersede = False,
    key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Take a token whose text exists already, of 16 characters or more."""
    text = os.environ.get(copy_from_env, "") if copy_from_env else sys.stdin.readline()
    if not text.strip():
        raise UsageError(f"there is no text: set {copy_from_env or 'it on the standard input'}.")
    fields = _fields(name, tenant, scopes, subject, expires_at, supersede_shared=supersede_shared)
    answer = send("POST", PATH, {"op": "create", "import_token": text.strip(), **fields}, key=key)
    answer.value.pop("token", None)
    _print_made(answer, text_only=False, as_json=as_json)


@tokens_app.command("rotate")
def rotate(
    token: Token = "",
    name: OfName = "",
    def_id: OfId = "",
    tenant: OfTenant = "",
    grace_seconds: Annotated[
        int | None, typer.Option(min=0, help="How long the old text still gives access; 0: not at all.")
    ] = None,
    expires_at: Expires = "",
    text_only: TextOnly = False,
    key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Give a token a new text; the old one gives access for a while."""
    more = {"grace_seconds": grace_seconds, "expires_at": expires_at or None}
    body = {
        "op": "rotate",
        **_named(token, tenant, name, def_id),
        **{field: one for field, one in more.items() if one is not None},
    }
    _print_made(send("POST", PATH, body, key=key), text_only=text_only, as_json=as_json)


@tokens_app.command("retire")
def retire(
    token: Token = "",
    name: OfName = "",
    def_id: OfId = "",
    tenant: OfTenant = "",
    key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """End a token at once, with the streams that it has open."""
    answer = send("POST", PATH, {"op": "retire", **_named(token, tenant, name, def_id)}, key=key)
    if as_json:
        print_written(answer)
        return
    print_change(answer.value["name"], f"({answer.value['def_id']}) has ended", answer)


@tokens_app.command("ls")
def list_tokens(tenant: OfTenant = "", as_json: Json = False) -> None:
    """List the names of tokens."""
    listing = get(f"{PATH}/names", {"tenant_id": tenant})
    if as_json:
        print_json(listing)
        return
    if not listing["names"]:
        console().print(Text("none", style=DIM))
        return
    rows = [
        (
            Text(row["name"], style=NAME),
            row["tenant_id"],
            row.get("active_def_id") or Text("none in force", style=WARNING),
            str(row["version_count"]),
            row["last_updated"],
        )
        for row in listing["names"]
    ]
    print_table(console(), ("name", "tenant", "in force", "made", "last"), rows)


@tokens_app.command("show")
def show(token: Token = "", name: OfName = "", def_id: OfId = "", tenant: OfTenant = "", as_json: Json = False) -> None:
    """Show a token, or all tokens of a name, without texts."""
    named = _named(token, tenant, name, def_id)
    op = "get" if "def_id" in named else "list"
    value = send("POST", PATH, {"op": op, **named}, key="").value
    if as_json:
        print_json(value)
        return
    for row in [value] if op == "get" else value["tokens"]:
        _print_row(row)


def _fields(
    name: str, tenant: str, scopes: str, subject: str, expires_at: str, *, supersede_shared: bool
) -> dict[str, Any]:
    listed = [scope.strip() for scope in scopes.split(",") if scope.strip()]
    fields: dict[str, Any] = {"name": name, "tenant_id": tenant, "scopes": listed}
    more = {"subject": subject, "expires_at": expires_at, "supersede_shared": supersede_shared}
    return fields | {field: value for field, value in more.items() if value}


def _named(token: str, tenant: str, name: str, def_id: str) -> dict[str, str]:
    """Return the fields that name a token. Raises UsageError unless exactly one of the three does."""
    handles = [one for one in (token, name, def_id) if one]
    if len(handles) != 1:
        raise UsageError("name the token once: TOKEN, --name or --def-id.")
    if def_id or token.startswith("tok_"):
        return {"def_id": handles[0]}
    return {"name": handles[0], **({"tenant_id": tenant} if tenant else {})}


def _print_made(answer: ApiResponse, *, text_only: bool, as_json: bool) -> None:
    value = answer.value
    if as_json:
        print_written(answer)
        return
    if text_only:
        if "token" not in value:
            raise UsageError(value["warning"])
        sys.stdout.write(value["token"] + "\n")
        return
    _print_row(value)
    if "token" in value:
        error_console().print(Text(value["warning"], style=WARNING))
        sys.stdout.flush()
        sys.stdout.write(value["token"] + "\n")


def _print_row(row: Mapping[str, Any]) -> None:
    out = console()
    facts = {
        "id": row["def_id"],
        "name": row["name"],
        "tenant": row["tenant_id"],
        "subject": row["subject"],
        "scopes": ", ".join(row["allowed_scopes"]),
        "begins with": row.get("token_suffix", ""),
        "made": f"{row['created_at']} by {row['created_by']}",
        "expires": row.get("expires_at", ""),
        "ends" if row["active"] else "ended": row.get("retired_at", ""),
        "replaces": row.get("rotated_from", ""),
        "old text ends": row.get("prior_retires_at", ""),
    }
    for name, value in facts.items():
        if value:
            out.print(fact_line(name, value))
