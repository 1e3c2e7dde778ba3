"""`loomlog channels create, set, rm, publish, subscribe, ack, purge`: changes, each with the position of its event.

`purge` shows what it would remove; with --yes it does it.

Before: channels.py. After: services/cli/http/api.py.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.text import Text

from loomlog.connectors.configuration.channel_block import parse_duration_s
from loomlog.services.cli.channels.reads import (
    MESSAGES,
    PATH,
    ChannelName,
    FromCursor,
    Most,
    ScopeId,
    Wait,
    channel_path,
    find_row,
    parse_wait_ms,
    print_cap,
    print_messages,
    print_row,
)
from loomlog.services.cli.errors import UsageError
from loomlog.services.cli.http.api import ApiResponse
from loomlog.services.cli.http.requests import print_change, print_written, send
from loomlog.services.cli.operations import IdempotencyKey, Tenant
from loomlog.services.cli.runs.runs import Json
from loomlog.services.cli.terminal.formatting import pluralize
from loomlog.services.cli.terminal.output import DIM, WARNING, console, print_json

WRITE_TIMEOUT_S = 90.0
"""Seconds to wait for the answer of a write; the API waits up to 50 s for the owner, and 30 s for messages."""
Description = Annotated[str | None, typer.Option("--description", help="What it is for.")]
Ttl = Annotated[str, typer.Option("--ttl", metavar="TIME", help="How long messages are kept, such as 7d; 0: for ever.")]
MaxMessages = Annotated[
    int | None, typer.Option("--max-messages", min=0, help="Messages that a queue keeps; 0: any number.")
]
Semantic = Annotated[str, typer.Option("--semantic", help="For people: queue, topic or broadcast.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it; without, only show what would be done.")]


def create(
    name: ChannelName,
    scope: Annotated[
        str, typer.Option("--scope", help="tenant, user or agent; global is for administrators. tenant if left out.")
    ] = "",
    description: Description = None,
    ttl: Ttl = "",
    max_messages: MaxMessages = None,
    semantic: Semantic = "",
    publisher: Annotated[
        str, typer.Option("--publisher", help="system: only the runtime and administrators publish.")
    ] = "",
    period: Annotated[
        str, typer.Option("--period", metavar="TIME", help="Time between two messages of the system, such as 1h.")
    ] = "",
    tenant: Tenant = "",
    idempotency_key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Declare a channel."""
    body = {"name": name, **_declaration(description, ttl, max_messages, semantic)}
    body |= {key: text for key, text in (("scope", scope), ("publisher", publisher)) if text}
    body |= {"period": _seconds("--period", period)} if period else {}
    _print_declared(_send("POST", PATH, tenant, idempotency_key, body), as_json=as_json)


def update(
    name: ChannelName,
    description: Description = None,
    ttl: Ttl = "",
    max_messages: MaxMessages = None,
    semantic: Semantic = "",
    tenant: Tenant = "",
    idempotency_key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Change a channel that was declared at run time; what is left out stays."""
    body = _declaration(description, ttl, max_messages, semantic)
    if not body:
        raise UsageError("Nothing to change: name one of --description, --ttl, --max-messages, --semantic.")
    response = _send("PATCH", channel_path(name), tenant, idempotency_key, body)
    _print_declared(response, as_json=as_json)


def remove(name: ChannelName, tenant: Tenant = "", idempotency_key: IdempotencyKey = "", as_json: Json = False) -> None:
    """Delete the declaration of a channel; its messages stay until they expire, or `purge` before it."""
    response = _send("DELETE", channel_path(name), tenant, idempotency_key)
    if as_json:
        print_json({"name": name, "position": response.position or None})
        return
    print_change(name, "is not declared any more", response)


def publish(
    name: ChannelName,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="JSON; one that begins with - goes behind --.")],
    is_text: Annotated[bool, typer.Option("--text", help="The value is plain text, not JSON.")] = False,
    ttl: Annotated[
        str, typer.Option("--ttl", metavar="TIME", help="How long it is kept, such as 1h; as declared if left out.")
    ] = "",
    deliver_at: Annotated[
        str, typer.Option("--at", metavar="TIME", help="When it becomes visible, RFC 3339; at once if left out.")
    ] = "",
    scope_id: ScopeId = "",
    tenant: Tenant = "",
    idempotency_key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Publish a message."""
    options = {"deliver_at": deliver_at, "scope_id": scope_id, "ttl": _seconds("--ttl", ttl) if ttl else 0}
    more = "".join(f", {json.dumps(key)}: {json.dumps(option)}" for key, option in options.items() if option)
    # The text goes out as it came in: the API refuses what it cannot keep.
    content = f'{{"payload": {_checked(value, is_text=is_text)}{more}}}'.encode(errors="replace")
    response = _send("POST", channel_path(name, "publish"), tenant, idempotency_key, content)
    answer = response.value
    if as_json:
        print_written(response)
        return
    out = console()
    at = f", visible at {answer['visible_at']}" if answer.get("visible_at") else ""
    print_change(answer["msg_id"], f"is published{at}", response)
    if answer.get("dropped_oldest"):
        text = f"{pluralize(answer['dropped_oldest'], 'message')} made room for it: the queue keeps no more."
        out.print(Text(text, style=WARNING))


def subscribe(
    name: ChannelName,
    scope_id: ScopeId = "",
    most: Most = MESSAGES,
    cursor: FromCursor = "",
    time: Wait = "",
    reader: Annotated[str, typer.Option("--reader", help="A cursor of one's own, by its name.")] = "",
    tenant: Tenant = "",
    idempotency_key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Take the next messages: the cursor that all readers share moves behind them."""
    optional = {"scope_id": scope_id, "from_cursor": cursor, "wait_ms": parse_wait_ms(time), "reader": reader}
    body = {"max_messages": most, **{key: value for key, value in optional.items() if value}}
    answer = _send("POST", channel_path(name, "subscribe"), tenant, idempotency_key, body).value
    if as_json:
        print_json(answer)
        return
    out = console()
    print_messages(out, answer["messages"])
    print_cap(out, answer)
    if answer["messages"]:
        out.print(Text(f"cursor {answer['next_cursor']}", style=DIM))


def ack(
    name: ChannelName,
    cursor: Annotated[str, typer.Argument(metavar="CURSOR", help="Cursor behind the last message that is done with.")],
    scope_id: ScopeId = "",
    reader: Annotated[str, typer.Option("--reader", help="A cursor of one's own, by its name.")] = "",
    tenant: Tenant = "",
    idempotency_key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Move the cursor forward, after messages that were looked at with `peek`."""
    optional = {"scope_id": scope_id, "reader": reader}
    body = {"cursor": cursor, **{key: value for key, value in optional.items() if value}}
    response = _send("POST", channel_path(name, "ack"), tenant, idempotency_key, body)
    if as_json:
        print_written(response)
        return
    print_change(name, "is read up to there", response)


def purge(
    name: ChannelName,
    yes: Yes = False,
    tenant: Tenant = "",
    idempotency_key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Remove the messages of all queues of a channel; without --yes, count them."""
    if not yes:
        row = find_row(name, tenant)
        if as_json:
            print_json({"name": name, "messages": row["message_count"], "dry_run": True})
            return
        console().print(f"{name}: {pluralize(row['message_count'], 'message')}")
        console().print(Text("Nothing was removed; --yes removes them.", style=WARNING))
        return
    response = _send("POST", channel_path(name, "purge"), tenant, idempotency_key)
    if as_json:
        print_written(response)
        return
    print_change(name, f"has lost {pluralize(response.value['purged'], 'message')}", response)


# --- output and input ------------------------------------------------------------------------------------------------


def _print_declared(response: ApiResponse, *, as_json: bool) -> None:
    if as_json:
        print_written(response)
        return
    print_row(console(), response.value)


def _declaration(description: str | None, ttl: str, max_messages: int | None, semantic: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"description": description, "max_messages": max_messages, "semantic": semantic or None}
    fields["default_ttl"] = _seconds("--ttl", ttl) if ttl else None
    return {key: value for key, value in fields.items() if value is not None}


def _seconds(option: str, text: str) -> int:
    """Return the seconds of a time. Raises UsageError."""
    try:
        seconds: int = int(text) if text.isascii() and text.isdecimal() and len(text) < 12 else parse_duration_s(text)
    except ValueError as error:
        raise UsageError(f"{option} is {text[:40]!r}: {error}.") from error
    return seconds


def _checked(text: str, *, is_text: bool) -> str:
    """Return the JSON of a value. Raises UsageError."""
    if is_text:
        return json.dumps(text)
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"VALUE is not JSON: {error}. A text needs --text, or quotes of its own: '\"ready\"'."
        ) from error
    return text


def _send(method: str, path: str, tenant: str, key: str, body: Mapping[str, Any] | bytes | None = None) -> ApiResponse:
    return send(method, path, body, params={"tenant": tenant}, key=key, timeout_s=WRITE_TIMEOUT_S)
