"""`loomlog memory set, rm, drop, reembed`: changes, each with the position of its event.

`drop` and `reembed` show what they would do; with --yes they do it.

Before: memory.py. After: services/cli/http/api.py.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from loomlog.services.cli.errors import FAILED, UsageError
from loomlog.services.cli.http.api import ApiResponse
from loomlog.services.cli.http.requests import print_change, print_written, send
from loomlog.services.cli.operations import IdempotencyKey, Tenant
from loomlog.services.cli.runs.runs import Json
from loomlog.services.cli.terminal.formatting import pluralize, size
from loomlog.services.cli.terminal.output import DIM, ERROR, NAME, WARNING, console, fact_line, print_json
from loomlog.services.cli.terminal.times import UNIT_S
from loomlog.services.core.refusals import Refused
from loomlog.services.families.memory import values
from loomlog.services.families.memory.author import Scope
from loomlog.services.families.memory.commands.entry_text import usage_text
from loomlog.services.families.memory.commands.reads import ScopeAndKey, ScopeWords
from loomlog.services.families.memory.commands.scopes import PATH, hint, key_path, parse_words, scope_label, scope_path
from loomlog.services.families.memory.limits import TTL_MS_MAX, VALUE_BYTES_MAX

USAGE_HEADER = "x-loomlog-memory-usage"
WRITE_TIMEOUT_S = 90.0
"""Seconds to wait for the answer of a write; the API waits up to 50 s for the owner."""
REEMBED_TIMEOUT_S = 3_600.0
INPUT_BYTES_MAX = 6 * VALUE_BYTES_MAX
"""Bytes of JSON that may be a value of VALUE_BYTES_MAX: every character escaped."""
TTL = re.compile(r"(\d{1,10})([smhdw]?)\Z", re.ASCII)
STDIN = "-"
Yes = Annotated[bool, typer.Option("--yes", help="Do it; without, only show what would be done.")]


def set_entry(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="SCOPE [SCOPE_ID] KEY VALUE",
            help="As in `get`; then the value as JSON, or - for stdin. One that begins with - goes behind --.",
        ),
    ],
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Read the value from this file; no VALUE then.")
    ] = None,
    is_text: Annotated[bool, typer.Option("--text", help="The value is plain text, not JSON.")] = False,
    ttl: Annotated[
        str, typer.Option("--ttl", metavar="TIME", help="Time until the key expires: seconds, or 90s, 24h, 7d.")
    ] = "",
    embed: Annotated[bool, typer.Option("--embed", help="The value is to be found by its meaning.")] = False,
    if_revision: Annotated[
        int | None,
        typer.Option("--if-revision", min=0, help="Only if the key has this revision; 0: only if it is new."),
    ] = None,
    tenant: Tenant = "",
    idempotency_key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Set a key to a JSON value or a text."""
    scope, (key, *rest) = parse_words(words, "KEY", *(() if file else ("VALUE",)))
    value = _check_value(_read_input(file, rest), is_text=is_text)
    options: dict[str, Any] = {"embed": True} if embed else {}
    options |= {"ttl_seconds": _parse_ttl(ttl)} if ttl else {}
    options |= {"if_revision": if_revision} if if_revision is not None else {}
    # The text goes out as it came in: a number that JSON parsers round is refused by the API, not rounded here.
    more = "".join(f", {json.dumps(name)}: {json.dumps(option)}" for name, option in options.items())
    body = f'{{"value": {value}{more}}}'.encode()
    response = _send("PUT", key_path(scope, key), {"tenant": tenant}, idempotency_key, body)
    answer = dict(response.value)
    answer.setdefault("usage", _parse_usage(response))
    if as_json:
        print_json({**answer, "position": response.position or None})
        return
    out = console()
    revision = f", revision {answer['revision']}" if answer.get("revision") else ""
    print_change(key, f"is set{revision}", response)
    if answer["usage"]:
        out.print(fact_line(scope_label(scope), f" {usage_text(answer['usage'])}"))
    if embed and not answer["embedded"]:
        out.print(Text(f"It cannot be found by its meaning yet: {answer.get('embed_warning')}.", style=WARNING))
    if answer.get("usage_warning"):
        out.print(Text(answer["usage_warning"], style=WARNING))


def remove(
    words: ScopeAndKey, tenant: Tenant = "", idempotency_key: IdempotencyKey = "", as_json: Json = False
) -> None:
    """Delete a key, if there is one; its past stays readable."""
    scope, (key,) = parse_words(words, "KEY")
    response = _send("DELETE", key_path(scope, key), {"tenant": tenant}, idempotency_key)
    if as_json:
        print_json({"scope": scope.name, "scope_id": scope.id, "key": key, "position": response.position or None})
        return
    print_change(key, "no longer exists", response)
    console().print(Text(f"`{hint('log', scope, key, tenant=tenant)}` shows what it was.", style=DIM))


def drop(
    words: ScopeWords,
    yes: Yes = False,
    reason: Annotated[str, typer.Option("--reason", help="Why; it is kept with the event.")] = "",
    tenant: Tenant = "",
    idempotency_key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Delete all keys of a scope; without --yes, count them."""
    scope, _ = parse_words(words)
    params = {"tenant": tenant, "dry_run": str(not yes).lower(), "reason": reason if yes else ""}
    response = _send("DELETE", scope_path(scope), params, idempotency_key)
    answer = response.value
    if as_json:
        print_written(response)
        return
    out = console()
    keys = pluralize(answer["keys"], "key")
    if yes:
        print_change(scope_label(scope), f"has lost {keys}", response)
    elif answer["keys"]:
        out.print(f"{scope_label(scope)}: {keys}, {size(answer['bytes'])}")
        out.print(Text("Nothing was deleted; --yes deletes them.", style=WARNING))
    else:
        out.print(Text(f"{scope_label(scope)} has no keys.", style=DIM))


def reembed(
    words: ScopeWords,
    yes: Yes = False,
    tenant: Tenant = "",
    idempotency_key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Embed those entries of a scope that have no vector of the present model; without --yes, count them."""
    scope, _ = parse_words(words)
    params = {"scope": scope.name, "scope_id": scope.id, "dry_run": str(not yes).lower(), "tenant": tenant}
    answer = _send("POST", f"{PATH}/reembed", params, idempotency_key, timeout_s=REEMBED_TIMEOUT_S).value
    failed = answer.get("rows_failed") or 0
    if as_json:
        print_json(answer)
    elif yes:
        done = pluralize(answer["rows_reembedded"], "entry", "entries")
        console().print(f"{scope_label(scope)}: {done} embedded again")
        _print_failed(failed, answer.get("failed_keys") or ())
    else:
        _print_reembedding(scope, answer)
    if failed:
        raise typer.Exit(FAILED)


# --- output ----------------------------------------------------------------------------------------------------------


def _print_reembedding(scope: Scope, answer: Mapping[str, Any]) -> None:
    out, embedder = console(), answer["current_embedder"]
    rows = pluralize(answer["rows_total"], "entry", "entries")
    out.print(f"{scope_label(scope)}: {answer['rows_to_reembed']} of {rows} set with embed need a vector")
    if embedder:
        dimension = f", {embedder['dimension']} dimensions" if embedder.get("dimension") else ""
        out.print(fact_line("embedder", f"{embedder['provider']} {embedder['model']}{dimension}"))
    for key in answer.get("sample_keys") or ():
        out.print(Text(key, style=NAME))
    if answer["rows_to_reembed"]:
        out.print(
            Text("Nothing was changed; --yes embeds them again, which the provider may charge for.", style=WARNING)
        )


def _print_failed(failed: int, keys: Sequence[str]) -> None:
    if failed:
        console().print(Text(f"{pluralize(failed, 'entry', 'entries')} could not be embedded:", style=ERROR))
    for key in keys:
        console().print(Text(key, style=NAME))


def _parse_usage(response: ApiResponse) -> dict[str, int] | None:
    """Return the usage of the scope after a write: `bytes=7, quota_bytes=1048576, keys=1`."""
    header = (response.headers or {}).get(USAGE_HEADER, "")
    return (
        {name: int(number) for name, _, number in (part.partition("=") for part in header.split(", "))}
        if header
        else None
    )


# --- input -----------------------------------------------------------------------------------------------------------


def _read_input(file: Path | None, words: Sequence[str]) -> str:
    """Return the text of the value: of a file, of stdin, or the word itself. Raises UsageError."""
    name = str(file) if file else "stdin"
    try:
        if file is not None:
            with file.open("rb") as opened:
                content = opened.read(INPUT_BYTES_MAX + 1)
        elif words[0] == STDIN:
            content = sys.stdin.buffer.read(INPUT_BYTES_MAX + 1)
        else:
            return words[0]
        if len(content) > INPUT_BYTES_MAX:
            raise UsageError(f"{name} has more than {INPUT_BYTES_MAX} bytes; a value has at most {VALUE_BYTES_MAX}.")
        return content.decode()
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8: {error.reason} at byte {error.start}.") from error


def _check_value(text: str, *, is_text: bool) -> str:
    """Return the JSON of a value, which every installation can keep. Raises UsageError."""
    try:
        value = text if is_text else json.loads(text)
        values.value_text(value, VALUE_BYTES_MAX)
    except RecursionError as error:
        raise UsageError("VALUE is nested too deeply.") from error
    except ValueError as error:
        raise UsageError(
            f"VALUE is not JSON: {error}. A text needs --text, or quotes of its own: '\"red\"'."
        ) from error
    except Refused as refused:
        raise UsageError(f"{refused}.") from refused
    return json.dumps(text) if is_text else text


def _parse_ttl(text: str) -> int:
    match = TTL.match(text)
    seconds = int(match[1]) * UNIT_S[match[2] or "s"] if match else 0
    if not 1 <= seconds <= TTL_MS_MAX // 1000:
        raise UsageError(
            f"--ttl is {text[:40]!r}: expected seconds, or a time like 90s, 24h, 7d; at most a hundred years."
        )
    return seconds


def _send(
    method: str,
    path: str,
    params: Mapping[str, str],
    key: str,
    body: bytes | None = None,
    *,
    timeout_s: float = WRITE_TIMEOUT_S,
) -> ApiResponse:
    return send(method, path, body, params=params, key=key, timeout_s=timeout_s)
