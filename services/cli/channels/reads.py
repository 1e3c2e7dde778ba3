"""`loomlog channels ls, show, peek, await, tail`: what there is, and what comes; no cursor moves.

Before: channels.py. After: services/cli/http/api.py.
"""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from fnmatch import fnmatchcase
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from loomlog.services.cli.commands import run
from loomlog.services.cli.errors import NotFound, UsageError
from loomlog.services.cli.http.api import quote_segment
from loomlog.services.cli.http.events import follow_events
from loomlog.services.cli.http.requests import get, open_api, send
from loomlog.services.cli.operations import Position, Tenant
from loomlog.services.cli.runs.runs import Json
from loomlog.services.cli.terminal.formatting import pluralize, short_value
from loomlog.services.cli.terminal.output import DIM, NAME, console, fact_line, print_json, print_json_line, print_table
from loomlog.services.cli.terminal.times import UNIT_S

PATH = "/v1/_channels"
MESSAGES, MESSAGES_MAX = 10, 100
WAIT_TIMEOUT_S = 60.0
"""Seconds for an answer that the API may let wait for 30."""
ChannelName = Annotated[str, typer.Argument(metavar="CHANNEL", help="Its name.")]
ScopeId = Annotated[str, typer.Option("--scope-id", help="The user or the agent, of a channel with that scope.")]
Most = Annotated[int, typer.Option("--max", min=1, max=MESSAGES_MAX, help="Most messages.")]
FromCursor = Annotated[
    str, typer.Option("--from", metavar="CURSOR", help="Only messages after this cursor; cur_0: from the oldest.")
]
Wait = Annotated[
    str, typer.Option("--wait", metavar="TIME", help="Wait so long for messages, such as 10s; at most 30s.")
]


def list_channels(
    pattern: Annotated[
        str, typer.Argument(metavar="[PATTERN]", help="Only names like this, such as 'research/*'.")
    ] = "",
    tenant: Tenant = "",
    position: Position = "",
    as_json: Json = False,
) -> None:
    """List channels with their scope and what their queues hold."""
    rows = [row for row in _list_rows(tenant, position) if fnmatchcase(row["name"], pattern or "*")]
    if as_json:
        print_json({"channels": rows})
        return
    out = console()
    if not rows:
        out.print(Text("No channels.", style=DIM))
        return
    head = ("name", "scope", "source", "messages", "newest", "keeps", "publisher")
    print_table(out, head, [_list_row(row) for row in rows])


def _list_row(row: Mapping[str, Any]) -> Sequence[str]:
    return (
        row["name"],
        row["scope"],
        row["source"],
        str(row["message_count"]),
        row.get("newest_visible_at", "-")[:23],
        _kept_text(row),
        row["publisher"] or "-",
    )


def _kept_text(row: Mapping[str, Any]) -> str:
    """Format how much a queue keeps, and for how long."""
    parts = [f"{row['default_ttl']} s"] if row["default_ttl"] else []
    parts += [pluralize(row["max_messages"], "message")] if row["max_messages"] else []
    return ", ".join(parts) or "all"


def show(name: ChannelName, tenant: Tenant = "", position: Position = "", as_json: Json = False) -> None:
    """Show a channel: its declaration, and what its queues hold."""
    row = find_row(name, tenant, position)
    if as_json:
        print_json(row)
        return
    print_row(console(), row)


def print_row(out: Console, row: Mapping[str, Any]) -> None:
    """Print a channel, a line for each fact."""
    out.print(Text(row["name"], style=NAME))
    for key in ("description", "scope", "semantic", "publisher", "period", "source"):
        if row[key]:
            out.print(fact_line(key, row[key]))
    out.print(fact_line("keeps", _kept_text(row)))
    out.print(fact_line("messages", str(row["message_count"])))
    for key in ("oldest_visible_at", "newest_visible_at"):
        if row.get(key):
            out.print(fact_line(key.partition("_")[0], row[key]))


def peek(
    name: ChannelName,
    scope_id: ScopeId = "",
    most: Most = MESSAGES,
    cursor: FromCursor = "",
    tenant: Tenant = "",
    position: Position = "",
    as_json: Json = False,
) -> None:
    """Look at messages, by default from the oldest; nothing is taken."""
    params: dict[str, str | int] = {"scope_id": scope_id, "max_messages": most, "from_cursor": cursor, "tenant": tenant}
    answer = get(channel_path(name, "peek"), params, position=position)
    if as_json:
        print_json(answer)
        return
    print_messages(console(), answer["messages"])


def wait(
    names: Annotated[list[str], typer.Argument(metavar="CHANNEL...", help="Names of channels, at most 32.")],
    needs_all: Annotated[
        bool, typer.Option("--all", help="All of them need a message; without, one is enough.")
    ] = False,
    at_least: Annotated[
        int | None, typer.Option("--at-least", min=1, help="So many messages over all channels.")
    ] = None,
    scope_id: ScopeId = "",
    most: Most = MESSAGES,
    cursor: FromCursor = "",
    time: Wait = "",
    tenant: Tenant = "",
    as_json: Json = False,
) -> None:
    """Wait until channels have messages, and show them; nothing is taken."""
    if needs_all and at_least is not None:
        raise UsageError("--all and --at-least exclude each other.")
    body: dict[str, Any] = {"channels": names, "mode": "all" if needs_all else "any", "max_messages": most}
    if at_least is not None:
        body |= {"mode": "at_least", "n": at_least}
    optional = {"scope_id": scope_id, "from_cursor": cursor, "wait_ms": parse_wait_ms(time)}
    body |= {key: value for key, value in optional.items() if value}
    answer = send("POST", f"{PATH}/_await", body, params={"tenant": tenant}, timeout_s=WAIT_TIMEOUT_S).value
    if as_json:
        print_json(answer)
        return
    out = console()
    for name in answer["fired"]:
        out.print(Text(name, style=NAME))
        print_messages(out, answer["results"][name]["messages"])
    print_cap(out, answer)
    if not answer["satisfied"]:
        raise NotFound("There are not enough messages.")


def tail(
    name: ChannelName,
    scope_id: ScopeId = "",
    cursor: FromCursor = "",
    tenant: Tenant = "",
    as_json: Json = False,
) -> None:
    """Print messages as they come, by default from the oldest that is kept, until Ctrl-C; nothing is taken."""
    run(_tail(name, {"scope_id": scope_id, "tenant": tenant}, cursor, as_json))


async def _tail(name: str, params: Mapping[str, str], cursor: str, as_json: bool) -> None:
    out = console()
    stream = channel_path(name, "stream")
    async with open_api() as api, aclosing(follow_events(api, stream, params, last_id=cursor)) as events:
        async for _, message in events:
            if as_json:
                print_json_line(message)
            else:
                print_messages(out, [message])


# --- requests and output ---------------------------------------------------------------------------------------------


def channel_path(name: str, verb: str = "") -> str:
    """Return the path of a channel, or of what is done with it."""
    path = f"{PATH}/{quote_segment(name)}"
    return f"{path}/{verb}" if verb else path


def parse_wait_ms(text: str) -> int:
    """Return the milliseconds of a time such as 10s; 0 for an empty text. Raises UsageError."""
    number, unit = (text[:-1], text[-1:]) if text[-1:] in UNIT_S else (text, "s")
    if not text:
        return 0
    if not (number.isascii() and number.isdecimal() and len(number) < 10):
        raise UsageError(f"--wait is {text[:40]!r}: expected seconds, or a time like 10s, 1m.")
    return 1_000 * int(number) * UNIT_S[unit]


def print_messages(out: Console, messages: Sequence[Mapping[str, Any]]) -> None:
    """Print messages, a line for each."""
    for message in messages:
        out.print(
            Text.assemble(
                (message["published_at"][:23], DIM), " ", (message["id"], DIM), f" {short_value(message['value'])}"
            )
        )
    if not messages:
        out.print(Text("No messages.", style=DIM))


def print_cap(out: Console, answer: Mapping[str, Any]) -> None:
    """Print that a wait was cut."""
    if answer.get("wait_capped_ms"):
        out.print(Text(f"The wait was cut to {answer['wait_capped_ms'] / 1000:g} s.", style=DIM))


def find_row(name: str, tenant: str, position: str = "") -> Mapping[str, Any]:
    """Return a channel. Raises NotFound."""
    row = next((row for row in _list_rows(tenant, position) if row["name"] == name), None)
    if row is None:
        raise NotFound(f"There is no channel {name[:120]}; `loomlog channels ls` lists them.")
    return row


def _list_rows(tenant: str, position: str) -> Sequence[Mapping[str, Any]]:
    channels: Sequence[Mapping[str, Any]] = get(PATH, {"tenant": tenant}, position=position)["channels"]
    return channels
