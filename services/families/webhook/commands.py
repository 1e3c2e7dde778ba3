"""`loomlog webhooks`: which there are, what came in, and trying one out.

    loomlog webhooks ls                       those of files, and those that were made at run time
    loomlog webhooks recent issues            the last deliveries, with what became of them
    loomlog webhooks test issues body.json    what would become of a request, without doing anything
    loomlog webhooks replay issues DELIVERY   give a delivery again

A webhook of a tenant is named TENANT/NAME. Before: services/cli/main.py. After: services/cli/http/api.py.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from loomlog.services.cli.commands import CommandGroup, run
from loomlog.services.cli.definitions.reads import list_definitions
from loomlog.services.cli.definitions.reads import show as show_definition
from loomlog.services.cli.errors import UsageError
from loomlog.services.cli.http.api import quote_segment
from loomlog.services.cli.http.requests import get, open_api, send
from loomlog.services.cli.operations import Tenant
from loomlog.services.cli.runs.runs import Json
from loomlog.services.cli.terminal.output import DIM, ERROR, NAME, WARNING, console, fact_line, print_json, print_table
from loomlog.services.families.webhook.limits import RECENT_MAX

KIND, PATH = "webhook", "/v1/_webhooks"
STDIN = "-"
webhooks_app = typer.Typer(
    cls=CommandGroup, no_args_is_help=True, help="Webhooks: list, show, deliveries, dry runs, replays."
)
Name = Annotated[str, typer.Argument(metavar="[TENANT/]NAME", help="Name of the webhook.")]


def list_webhooks(tenant: Tenant = "", as_json: Json = False) -> None:
    """List webhooks, of files and made at run time."""
    list_definitions(kind=KIND, tenant=tenant, as_json=as_json)


def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name, NAME@VERSION, or the id of a version.")],
    tenant: Tenant = "",
    as_json: Json = False,
) -> None:
    """Show the definition of a webhook and its versions."""
    show_definition(name, kind=KIND, tenant=tenant, as_json=as_json)


def recent(
    name: Name,
    limit: Annotated[int, typer.Option("--limit", min=1, max=RECENT_MAX, help="Most deliveries.")] = 20,
    as_json: Json = False,
) -> None:
    """List the last deliveries, newest first, with what became of them."""
    answer = get(f"{_path(name)}/recent-deliveries", {"limit": limit})
    if as_json:
        print_json(answer)
        return
    cells = [
        (
            row["received_at"][:19].replace("T", " "),
            Text(row["verdict"], style="" if row["verdict"].startswith("accepted") else WARNING),
            Text(row.get("delivery_id") or f"{row.get('count', 1)} requests", style=NAME),
            row.get("run_id") or row.get("channel") or "-",
            row.get("status") or "-",
            row.get("detail") or row.get("code") or "-",
        )
        for row in answer["deliveries"]
    ]
    print_table(console(), ("RECEIVED", "VERDICT", "DELIVERY", "RUN OR CHANNEL", "STATUS", "DETAIL"), cells)


def dry_run(
    name: Name,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The body; - reads it from stdin.")],
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME=VALUE", help="A header, such as the signature; repeatable."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Tell what would become of a request, without doing anything. The signature is checked too."""
    body = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
    headers = {"content-type": "application/json", **_headers(header or ())}
    answer = run(_test(f"{_path(name)}/test", body, headers))
    if as_json:
        print_json(answer)
        return
    out = console()
    if not answer["would_accept"]:
        detail = f": {answer['detail']}" if answer.get("detail") else ""
        out.print(Text(f"It would be refused, {answer['verdict']}{detail}.", style=ERROR))
        return
    out.print(f"It would be taken as {answer['delivery_id']}.")
    for key, value in (answer["run_input_preview"] or {"channel": answer.get("channel")}).items():
        out.print(fact_line(key, f" {value}"))


def replay(
    name: Name,
    delivery_id: Annotated[str, typer.Argument(metavar="DELIVERY", help="Id of the delivery, as `recent` shows it.")],
    as_json: Json = False,
) -> None:
    """Give a delivery again, with the definition as it is now."""
    answer = send("POST", f"{_path(name)}/replay", {"delivery_id": delivery_id}).value
    if as_json:
        print_json(answer)
        return
    out = console()
    if answer.get("pending"):
        out.print(Text("It is in the log, and no owner has taken it yet.", style=DIM))
        return
    what = f"run {answer['run_id']}" if answer.get("run_id") else f"published to {answer['channel']}"
    out.print(f"{answer['delivery_id']}: {what}")


def _path(name: str) -> str:
    parts = name.split("/")
    if len(parts) > 2 or not all(parts):
        raise UsageError(f"{name!r} is no webhook: expected NAME, or TENANT/NAME")
    return "/".join((PATH, *map(quote_segment, parts)))


def _headers(pairs: list[str] | tuple[str, ...]) -> Mapping[str, str]:
    headers: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"--header {pair!r}: expected NAME=VALUE")
        headers[name] = value
    return headers


async def _test(path: str, body: bytes, headers: Mapping[str, str]) -> Any:
    async with open_api() as api:
        return (await api.request("POST", path, content=body, headers=headers)).value


COMMANDS: Mapping[str, Callable[..., None]] = {
    "ls": list_webhooks,
    "show": show,
    "recent": recent,
    "test": dry_run,
    "replay": replay,
}
"""Functions of the commands, in the order of the help."""
for command_name, command in COMMANDS.items():
    webhooks_app.command(command_name)(command)
