"""`loomlog credentials`: secrets that tools, schedules, webhooks and providers use by name, over the API.

    loomlog credentials set git --copy-from-env GIT_TOKEN
    printf %s "$KEY" | loomlog credentials set OPENAI_API_KEY --scope user --scope-id ada
    loomlog credentials set crm --reference vault:team/crm#token
    loomlog credentials set bot --backend github_app < app.json
    loomlog credentials ls
    loomlog credentials rm git
    loomlog credentials rewrap

A value comes from the environment or the standard input, never from an argument, which every process of the machine can
read. No command shows one.

Before: services/cli/main.py. After: services/cli/operations.py.
"""

import os
import sys
from typing import Annotated

import typer
from rich.text import Text

from loomlog.services.cli.access.tokens import Expires
from loomlog.services.cli.commands import CommandGroup
from loomlog.services.cli.errors import UsageError
from loomlog.services.cli.http.requests import print_change, print_written, send
from loomlog.services.cli.operations import IdempotencyKey, Tenant, find_operation, operation_command
from loomlog.services.cli.runs.runs import Json
from loomlog.services.cli.terminal.output import NAME, console

PATH = "/v1/_credentialdef"
credentials_app = typer.Typer(
    cls=CommandGroup, no_args_is_help=True, help="Stored credentials: set, list, remove, encrypt again."
)


Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name, as in $cred:NAME.")]
Scope = Annotated[str, typer.Option("--scope", help="tenant, user or agent: whose it is.")]
ScopeId = Annotated[str, typer.Option("--scope-id", help="Subject of the user, or name of the agent.")]


@credentials_app.command("set")
def set_credential(
    name: Name,
    scope: Scope = "tenant",
    scope_id: ScopeId = "",
    copy_from_env: Annotated[
        str, typer.Option("--copy-from-env", metavar="NAME", help="Variable with the value; without: standard input.")
    ] = "",
    reference: Annotated[
        str,
        typer.Option(
            "--reference",
            metavar="STORE:PLACE",
            help="Where the value is outside: env:NAME, or path/to/secret#field in one of credential_stores.",
        ),
    ] = "",
    backend: Annotated[
        str, typer.Option("--backend", help="inline; or oauth, github_app: the value is a JSON object of that kind.")
    ] = "inline",
    expires_at: Expires = "",
    tenant: Tenant = "",
    key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Store a value, or a new one; the old one is deleted. With --reference only where it is."""
    body = {"op": "create", "name": name, "scope": scope, "backend": backend}
    if reference:
        body["backend"], _, body["reference"] = reference.partition(":")
    else:
        body["value"] = os.environ.get(copy_from_env, "") if copy_from_env else sys.stdin.read().removesuffix("\n")
        if not body["value"]:
            raise UsageError(f"there is no value: set {copy_from_env or 'it on the standard input'}.")
    body |= {field: one for field, one in (("scope_id", scope_id), ("expires_at", expires_at)) if one}
    answer = send("POST", PATH, body, params={"tenant": tenant}, key=key)
    if as_json:
        print_written(answer)
        return
    print_change(name, f"is stored for the {scope}", answer)


@credentials_app.command("rm")
def remove(
    name: Name,
    scope: Scope = "tenant",
    scope_id: ScopeId = "",
    tenant: Tenant = "",
    key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Remove a credential with its value."""
    body = {"op": "delete", "name": name, "scope": scope, **({"scope_id": scope_id} if scope_id else {})}
    answer = send("POST", PATH, body, params={"tenant": tenant}, key=key)
    if as_json:
        print_written(answer)
        return
    console().print(Text.assemble((name, NAME), " is removed" if answer.value["deleted"] else " was not there"))


for _name, _operation in (
    ("ls", "identity.list_credential"),
    ("show", "identity.get_credential"),
    ("rewrap", "identity.rewrap_credentials"),
):
    _command = operation_command(find_operation(_operation))
    credentials_app.command(_name, help=find_operation(_operation).summary)(_command)
