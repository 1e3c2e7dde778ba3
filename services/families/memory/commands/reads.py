"""`loomlog memory ls, get, search, log, at, usage`: what is remembered, and what was.

Before: memory.py. After: services/cli/http/api.py.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from loomlog.schemas.position import Position as LogPosition
from loomlog.services.cli.errors import CliError, NotFound, UsageError
from loomlog.services.cli.http.requests import get as get_answer
from loomlog.services.cli.http.requests import send
from loomlog.services.cli.operations import Position, Tenant
from loomlog.services.cli.runs.runs import Json, resolve_run_id
from loomlog.services.cli.terminal.formatting import pluralize, short_value, size
from loomlog.services.cli.terminal.output import DIM, NAME, WARNING, console, fact_line, print_json, print_table
from loomlog.services.cli.terminal.times import to_rfc3339
from loomlog.services.families.memory.author import SCOPES, TENANT
from loomlog.services.families.memory.commands.entry_text import (
    author_text,
    call_text,
    change_text,
    fact_text,
    rank_text,
    score_text,
    usage_text,
    value_text,
)
from loomlog.services.families.memory.commands.scopes import (
    PATH,
    check_scope_name,
    hint,
    key_path,
    parse_words,
    scope_label,
    scope_named,
    scope_path,
)
from loomlog.services.families.memory.limits import LIST_MAX

LIST_LIMIT = 200
LOG_LIMIT, LOG_LIMIT_MAX = 20, 100
TOP_K, TOP_K_MAX = 10, 50
SCOPE_HELP = "agent with its name, user with a user_id, or tenant without an id (or -)"
ScopeAndKey = Annotated[list[str], typer.Argument(metavar="SCOPE [SCOPE_ID] KEY", help=f"{SCOPE_HELP}; then the key.")]
ScopeWords = Annotated[list[str], typer.Argument(metavar="SCOPE [SCOPE_ID]", help=f"{SCOPE_HELP}.")]
ValueOnly = Annotated[bool, typer.Option("--value", help="Print the value and nothing else: a text as it is, or JSON.")]


def list_memory(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[SCOPE [SCOPE_ID]]", help=f"{SCOPE_HELP}; without: all scopes.")
    ] = None,
    prefix: Annotated[str, typer.Option("--prefix", help="Only keys that begin with this text.")] = "",
    after: Annotated[str, typer.Option("--after", help="Only keys after this one.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=LIST_MAX, help="Most entries to list.")] = LIST_LIMIT,
    tenant: Tenant = "",
    position: Position = "",
    as_json: Json = False,
) -> None:
    """List the scopes that have keys, with their sizes; with a scope and its id, the entries."""
    words = words or []
    shared = {"tenant": tenant, "position": position}
    if len(words) > 1 or words == [TENANT]:
        scope, _ = parse_words(words)
        params: dict[str, str | int] = {"prefix": prefix, "after": after, "limit": limit}
        page = get_answer(f"{scope_path(scope)}/keys", params | shared)
        if as_json:
            print_json(page)
        else:
            _print_entries(console(), page["entries"], is_truncated=page["truncated"])
        return
    if prefix or after:
        raise UsageError("--prefix and --after choose keys: name a scope and its id, such as `ls user ada`.")
    names = [check_scope_name(word) for word in words] or SCOPES
    scopes = [get_answer(f"{PATH}/scopes/{name}", shared) for name in names]
    if as_json:
        print_json({"scopes": scopes})
        return
    _print_scopes(console(), scopes)


def get(
    words: ScopeAndKey, value: ValueOnly = False, tenant: Tenant = "", position: Position = "", as_json: Json = False
) -> None:
    """Show a value, who set it, and where it was learnt."""
    scope, (key,) = parse_words(words, "KEY")
    answer = get_answer(key_path(scope, key), {"tenant": tenant, "position": position})
    if "entry" not in answer:  # a key that ends in /history and does not exist is read as the history of another one
        raise NotFound(f"There is no key {key} in {scope_label(scope)}.")
    entry = answer["entry"]
    if as_json:
        print_json(answer)
        return
    if value:
        _print_value(entry["value"])
        return
    out = console()
    facts = {
        "key": entry["key"],
        "scope": scope_label(scope),
        "revision": str(entry["revision"]),
        "size": size(entry["bytes"]),
        "created": entry["created_at"],
        "changed": change_text(entry),
        "expires": entry.get("expires_at"),
        "fact": fact_text(entry.get("provenance")),
    }
    _print_facts(out, facts)
    out.print()
    out.print(value_text(entry["value"]))
    _print_run_hint(out, [entry])


def log(
    words: ScopeAndKey,
    limit: Annotated[int, typer.Option("--limit", min=1, max=LOG_LIMIT_MAX, help="Most changes to show.")] = LOG_LIMIT,
    cursor: Annotated[str, typer.Option("--cursor", help="`next` of an earlier answer.")] = "",
    tenant: Tenant = "",
    position: Position = "",
    as_json: Json = False,
) -> None:
    """Show the changes of a key of the last 30 days, newest first: who, when, in which call of which run."""
    scope, (key,) = parse_words(words, "KEY")
    params: dict[str, str | int] = {"limit": limit, "cursor": cursor, "tenant": tenant, "position": position}
    answer = get_answer(f"{key_path(scope, key)}/history", params)
    if "versions" not in answer:
        raise CliError(
            f"The changes of {key} cannot be read while there is a key {key}/history, whose path is the same."
        )
    if as_json:
        print_json(answer)
        return
    out = console()
    versions = answer["versions"]
    if not versions:
        out.print(Text("No changes.", style=DIM))
        return
    head = ("REVISION", "AT", "WHAT", "BY", "RUN", "CALL", "VALUE", "EVENT")
    print_table(out, head, [_change_row(version) for version in versions], right_aligned=(0,))
    if answer["next"]:
        out.print(Text(f"There are more: --cursor {answer['next']}", style=DIM))
    _print_run_hint(out, versions)


def at(
    words: ScopeAndKey,
    time: Annotated[str, typer.Option("--time", metavar="TIME", help="24h ago, or an RFC 3339 time.")] = "",
    event: Annotated[
        str, typer.Option("--event", metavar="POSITION", help="After this event: TOPIC/PARTITION:OFFSET.")
    ] = "",
    before_run: Annotated[
        str, typer.Option("--before-run", metavar="RUN", help="When this run started.", callback=resolve_run_id)
    ] = "",
    value: ValueOnly = False,
    tenant: Tenant = "",
    position: Position = "",
    as_json: Json = False,
) -> None:
    """Show a value as it was at a time, after an event, or before a run."""
    scope, (key,) = parse_words(words, "KEY")
    if sum(map(bool, (time, event, before_run))) != 1:
        raise UsageError("When? Give one of --time 24h, --event TOPIC/PARTITION:OFFSET and --before-run RUN.")
    params: dict[str, str | int] = {
        "scope": scope.name,
        "scope_id": scope.id,
        "key": key,
        "at": to_rfc3339(time, option="--time"),
        "event": _check_position(event),
        "before_run": before_run,
        "tenant": tenant,
        "position": position,
    }
    answer = get_answer(f"{PATH}/at", params)
    if as_json:
        print_json(answer)
        return
    if value:
        if not answer["existed"]:
            raise NotFound(f"There was no key {key} in {scope_label(scope)} then.")
        _print_value(answer["value"])
        return
    out = console()
    version = answer["version"]
    if answer["existed"]:
        _print_facts(out, {**_version_facts(version), "expires": version.get("expires_at")})
        out.print()
        out.print(value_text(answer["value"]))
    else:
        out.print(f"There was no key {key} in {scope_label(scope)} then.")
        _print_facts(out, _version_facts(version) if version else {})
    _print_run_hint(out, [version] if version else [])
    out.print(Text(f"`{hint('log', scope, key, tenant=tenant)}` shows its changes.", style=DIM))


def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Words to search for, in plain language.")],
    scope: Annotated[str, typer.Option("--scope", help="agent, user or tenant.")] = "user",
    scope_id: Annotated[str, typer.Option("--scope-id", help="Name of the agent, or id of the user.")] = "",
    top_k: Annotated[int, typer.Option("--top-k", min=1, max=TOP_K_MAX, help="Most hits.")] = TOP_K,
    prefix: Annotated[str, typer.Option("--prefix", help="Only keys that begin with this text.")] = "",
    sources: Annotated[
        list[str] | None, typer.Option("--source", help="facts, notes or documents; repeat it for several.")
    ] = None,
    tenant: Tenant = "",
    position: Position = "",
    as_json: Json = False,
) -> None:
    """Search a scope by words and meaning; the columns show which of them ranked a hit, and how high."""
    if not query.strip():
        raise UsageError("QUERY is empty: give the words to search for.")
    if scope in SCOPES and scope != TENANT and not scope_id:
        raise UsageError(f"--scope-id is missing: which {scope}? The scope tenant needs none.")
    named = scope_named(scope, scope_id)
    body: dict[str, Any] = {"query": query, "scope": named.name, "scope_id": named.id, "top_k": top_k}
    body |= ({"prefix": prefix} if prefix else {}) | ({"sources": sources} if sources else {})
    answer = send("POST", f"{PATH}/search", body, params={"tenant": tenant, "position": position}).value
    if as_json:
        print_json(answer)
        return
    out = console()
    rows = [
        (
            Text(hit["key"], style=NAME),
            hit.get("kind") or "-",
            score_text(hit["score"] if hit.get("embedded_with") else None),
            score_text(hit.get("rank_score")),
            rank_text(hit, "lexical"),
            rank_text(hit, "semantic"),
            short_value(hit.get("value")),
        )
        for hit in answer["entries"]
    ]
    if rows:
        head = ("KEY", "KIND", "SCORE", "RANK", "LEXICAL", "SEMANTIC", "VALUE")
        print_table(out, head, rows, right_aligned=(2, 3, 4, 5))
    else:
        out.print(Text("No hits.", style=DIM))
    if answer.get("dedup_dropped"):
        out.print(Text(f"{pluralize(answer['dedup_dropped'], 'near copy', 'near copies')} left out.", style=DIM))
    if answer.get("truncated"):
        out.print(Text(f"There are more hits: --top-k, at most {TOP_K_MAX}.", style=DIM))
    if answer.get("rank_note"):
        out.print(Text(answer["rank_note"], style=WARNING))


def usage(words: ScopeWords, tenant: Tenant = "", position: Position = "", as_json: Json = False) -> None:
    """Show what a scope holds, and how much it may."""
    scope, _ = parse_words(words)
    params = {"scope": scope.name, "scope_id": scope.id, "tenant": tenant, "position": position}
    answer = get_answer(f"{PATH}/usage", params)
    if as_json:
        print_json(answer)
        return
    out = console()
    out.print(Text.assemble((scope_label(scope), NAME), f"  {usage_text(answer['usage'])}"))
    out.print(Text(f"at most {pluralize(answer['keys_max'], 'key')}", style=DIM))
    if answer.get("usage_warning"):
        out.print(Text(answer["usage_warning"], style=WARNING))


# --- output ----------------------------------------------------------------------------------------------------------


def _print_scopes(out: Console, scopes: Sequence[Mapping[str, Any]]) -> None:
    rows = [
        (
            scope["scope"],
            Text(row["scope_id"] or "-", style=NAME),
            f"{row['key_count']:,}",
            size(row["bytes"]),
            row["updated_at"],
        )
        for scope in scopes
        for row in scope["scope_ids"]
    ]
    if not rows:
        out.print(Text("No scope has keys.", style=DIM))
        return
    print_table(out, ("SCOPE", "ID", "KEYS", "SIZE", "CHANGED"), rows, right_aligned=(2, 3))


def _print_entries(out: Console, entries: Sequence[Mapping[str, Any]], *, is_truncated: bool) -> None:
    if not entries:
        out.print(Text("No keys.", style=DIM))
        return
    rows = [
        (
            Text(entry["key"], style=NAME),
            short_value(entry["value"]),
            entry["updated_at"],
            entry.get("expires_at") or "-",
        )
        for entry in entries
    ]
    print_table(out, ("KEY", "VALUE", "CHANGED", "EXPIRES"), rows)
    if is_truncated:
        out.print(Text(f"There are more: --after {entries[-1]['key']}", style=DIM))


def _change_row(version: Mapping[str, Any]) -> Sequence[str | Text]:
    source = version.get("source")
    return (
        str(version["revision"]),
        version["at"],
        version["op"],
        author_text(source),
        Text((source or {}).get("run_id") or "-", style=NAME),
        call_text(source) or "-",
        short_value(version["value"]) if "value" in version else _removal_text(version),
        version["position"],
    )


def _removal_text(version: Mapping[str, Any]) -> str:
    """Format what took the place of a removed key, and why."""
    by_key, reason = version.get("by_key"), version.get("reason")
    return ": ".join(filter(None, (f"by {by_key}" if by_key else "", reason))) or "-"


def _version_facts(version: Mapping[str, Any]) -> Mapping[str, str]:
    source = version.get("source") or {}
    in_run = ", ".join(filter(None, (f"in run {source['run_id']}" if source.get("run_id") else "", call_text(source))))
    return {
        "revision": str(version["revision"]),
        "change": f"{version['op']} at {version['at']} by {author_text(source)}{f' {in_run}' if in_run else ''}",
        "event": version["position"],
    }


def _print_facts(out: Console, facts: Mapping[str, str | None]) -> None:
    for name, value in facts.items():
        if value:
            out.print(fact_line(name, value))


def _print_run_hint(out: Console, changes: Sequence[Mapping[str, Any]]) -> None:
    """Print how to see the run of the newest change that an agent made."""
    runs = [run_id for change in changes if (run_id := (change.get("source") or {}).get("run_id"))]
    if runs:
        out.print(Text(f"`loomlog runs show {runs[0]}` shows the run that changed it.", style=DIM))


def _print_value(value: Any) -> None:
    """Print a value; a terminal gets it without control characters, a pipe as it is."""
    if sys.stdout.isatty():
        console().print(value_text(value))
    else:
        print(value_text(value))


# --- input -----------------------------------------------------------------------------------------------------------


def _check_position(text: str) -> str:
    try:
        return str(LogPosition.parse(text)) if text else ""
    except ValueError as error:
        raise UsageError(f"--event: {error}.") from error
