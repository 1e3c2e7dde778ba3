"""`loomlog subjects`: the subjects with encrypted content, what is stored about one, and erasing it, over the API.

    loomlog subjects ls --tenant T               every subject of a tenant that has or had a key
    loomlog subjects show SUBJECT --tenant T     what an erasure would make unreadable, and what is stored as plaintext
    loomlog subjects erase SUBJECT --tenant T --reason WHY --confirm SUBJECT
    loomlog subjects proof SUBJECT --tenant T    proof that nothing can be read: erasure time, actor, log position
    loomlog subjects rewrap                      after a new LOOMLOG_ENCRYPTION_KEY: makes the previous one unnecessary

A subject is the user_id of runs; `(tenant)` is the subject of runs that name no user.

Before: services/cli/main.py. After: services/cli/http/api.py.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.text import Text

from loomlog.services.cli.commands import CommandGroup
from loomlog.services.cli.errors import FAILED, UsageError
from loomlog.services.cli.http.api import ApiResponse
from loomlog.services.cli.http.requests import get, print_written, send
from loomlog.services.cli.runs.runs import Json
from loomlog.services.cli.terminal.formatting import pluralize
from loomlog.services.cli.terminal.output import DIM, ERROR, NAME, SUCCESS, WARNING, console, print_json

PATH = "/v1/_erasure"
MEMORY_COUNTS = {
    "memory_entries": "key",
    "memory_versions": "change",
    "memory_databases": "database",
    "memory_pending": "pending text",
    "memory_index_rows": "index row",
    "memory_vectors": "vector",
    "memory_cached_embeddings": "cached embedding",
}
"""Counts of memory in reports, and what they count."""
REMOVED_FROM_MEMORY = [name for name in MEMORY_COUNTS if name != "memory_versions"]
"""Those of which an erasure leaves nothing."""

subjects_app = typer.Typer(
    cls=CommandGroup, no_args_is_help=True, help="Subjects with encrypted content, and erasing a subject."
)
Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="A user_id, or (tenant) for runs that name no user.")]
Tenant = Annotated[str, typer.Option("--tenant", help="The tenant of the subject; administrators name it.")]


@subjects_app.command("ls")
def list_subjects(tenant: Tenant = "", as_json: Json = False) -> None:
    """List every subject of a tenant that has or had a key."""
    listing = get(PATH, {"tenant": tenant})
    if as_json:
        print_json(listing)
        return
    for subject in listing["subjects"]:
        console().print(subject)


@subjects_app.command("show")
def show_subject(subject: Subject, tenant: Tenant = "", as_json: Json = False) -> None:
    """Show what is stored about a subject, and how much of it can be erased."""
    report = get(PATH, {"tenant": tenant, "subject": subject})
    if as_json:
        print_json(report)
        return
    _print_subject(report)


@subjects_app.command("erase")
def erase_subject(
    subject: Subject,
    tenant: Tenant = "",
    reason: Annotated[str, typer.Option("--reason", help="Why; it is kept for ever. Needed with --confirm.")] = "",
    confirm: Annotated[str, typer.Option("--confirm", help="The subject again; without it nothing is erased.")] = "",
    as_json: Json = False,
) -> None:
    """Cancel the live runs of a subject, make its content permanently unreadable everywhere and delete its memory.
    Afterwards its sessions are in no view. Exits 1 when some of it stays in plaintext in the log, or could not be
    deleted yet.
    """
    if confirm and not reason:
        raise UsageError("--reason WHY is required; it is stored with the erasure as part of its proof.")
    body: dict[str, Any] = {"subject": subject, "dry_run": not confirm}
    body |= {"reason": reason} if reason else {}
    body |= {"confirm": confirm} if confirm else {}
    answer = send("POST", PATH, body, params={"tenant": tenant})
    result = answer.value
    in_clear = 0 if result["dry_run"] else result["tier2_uncovered"]["total"]
    if as_json:
        print_written(answer)
    else:
        _print_erasure(subject, answer, in_clear)
    if in_clear or result.get("incomplete"):
        raise typer.Exit(FAILED)


def _print_erasure(subject: str, answer: ApiResponse, in_clear: int) -> None:
    out, result = console(), answer.value
    if result["dry_run"]:
        _print_credentials(result)
        out.print(Text(f"Nothing was erased. To do it: --reason WHY --confirm {subject}", style=WARNING))
    else:
        deleted, who = result["deleted"], f"{subject} of {result['tenant']}"
        did = f"{pluralize(deleted.get('keys', 0), 'key')}, {pluralize(deleted['frames'], 'text')} unreadable"
        if "chats" in deleted:
            did += f", {pluralize(deleted['chats'], 'session')} gone from every view"
        text = f"{who} is erased: {did}"
        if result.get("incomplete"):
            text = f"{who} is not erased completely, repeat it. Done: {did}"
        if in_clear:
            text = f"{who} is not erased: {pluralize(in_clear, 'text')} can still be read. Done: {did}"
        style = ERROR if in_clear or result.get("incomplete") else SUCCESS
        out.print(Text.assemble((text, style), ("  event ", DIM), answer.position))
        if memory := _memory_text(deleted):
            out.print(f"of its memory: {memory}")
        for problem in result.get("incomplete", ()):
            out.print(Text(problem, style=ERROR))
        for run_id in result["cancelled_runs"]:
            out.print(f"cancelled {run_id}")
    for why in result["retained"].values():
        out.print(why)
    _print_problems(result)


@subjects_app.command("proof")
def prove_erasure(subject: Subject, tenant: Tenant = "", as_json: Json = False) -> None:
    """Show that no content of a subject can be read, and where its erasure is recorded. Exits 1 when content can be
    read.
    """
    report = get(PATH, {"tenant": tenant, "subject": subject})
    readable = _is_readable(report)
    is_erased = bool(report["erasures"]) and not readable
    if as_json:
        print_json({**report, "erased": is_erased, "readable": readable})
    elif not report["known"]:
        _print_unknown(subject, report["tenant"])
    else:
        out = console()
        _print_erasures(report)
        _print_subject(report)
        if readable:
            out.print(Text("It is not erased, or something of it can be read.", style=ERROR))
        else:
            why = "it was erased" if is_erased else "there is no content of it, and none was erased"
            out.print(Text(f"Nothing of it can be read: {why}.", style=SUCCESS))
    if readable:
        raise typer.Exit(FAILED)


def _is_readable(report: Mapping[str, Any]) -> bool:
    """Return whether content can be read, or may be: the check was incomplete, or a key is stored elsewhere."""
    has_key = any(not key["erased"] for key in report["keys"])
    never_erased = bool(report["tier1_covered"]["total"] and not report["erasures"])
    in_clear, rest = report["tier2_uncovered"]["total"], report["tier3_residue"]["truncated"]
    in_memory = any(report["tier1_covered"]["counts"].get(name) for name in REMOVED_FROM_MEMORY)
    in_log = any(erasure.get("in_clear") for erasure in report["erasures"])
    return bool(has_key or never_erased or in_clear or in_log or rest or in_memory or report["errors"])


def _print_erasures(report: Mapping[str, Any]) -> None:
    """Print each erasure with the keys it destroyed; it may have destroyed none."""
    for erasure in report["erasures"]:
        keys = [
            key["key_id"]
            for key in report["keys"]
            if key["erased"] and key["erasure"]["position"] == erasure["position"]
        ]
        why = f": {erasure['reason']}" if erasure["reason"] else ""
        for key_id in keys or ["no key"]:
            text = f" erased {erasure['at']} by {erasure['by']}{why}"
            console().print(Text.assemble((key_id, NAME), text, ("  event ", DIM), erasure["position"]))
        if erasure.get("in_clear"):
            console().print(Text("  its rows and blobs are gone; texts of it stay in clear in the log", style=WARNING))


def _print_unknown(subject: str, tenant: str) -> None:
    text = f"There is nothing of {subject} in {tenant}. `loomlog subjects ls` lists who has or had a key."
    console().print(Text(text, style=WARNING))


@subjects_app.command("rewrap")
def rewrap_keys(as_json: Json = False) -> None:
    """Wrap every key under LOOMLOG_ENCRYPTION_KEY; afterwards the previous one is no longer needed."""
    result = send("POST", f"{PATH}/rewrap", {}).value
    if as_json:
        print_json(result)
        return
    console().print(f"{pluralize(result['wrapped'], 'key')} rewrapped")


def _print_subject(report: Mapping[str, Any]) -> None:
    out = console()
    covered, uncovered = report["tier1_covered"]["counts"], report["tier2_uncovered"]["counts"]
    runs = f"{pluralize(covered['runs'], 'run')} ({covered['live_runs']} under way)"
    keys = pluralize(covered.get("keys", 0), "key")
    out.print(f"{runs}, {keys}, {pluralize(covered['frames'], 'encrypted text')}")
    if covered.get("entity_events"):
        events, aggregates = pluralize(covered["entity_events"], "event"), pluralize(covered["aggregates"], "aggregate")
        out.print(f"{events} of {aggregates} of other families under its keys")
    residue = report["tier3_residue"]
    if residue.get("definitions") or residue.get("events_naming"):
        definitions, events = residue["definitions"], pluralize(residue["events_naming"], "event")
        stays = f"{pluralize(definitions, 'version')} of definitions that its runs wrote, and its name in {events}"
        out.print(Text(f"{stays} stay readable", style=WARNING))
    if memory := _memory_text(covered):
        out.print(f"in memory: {memory}")
    _print_credentials(report)
    if not report["encrypted"]:
        out.print(Text("Content is not encrypted here: LOOMLOG_ENCRYPTION_KEY is not set.", style=WARNING))
    if report["tier2_uncovered"]["total"]:
        out.print(Text(f"{pluralize(sum(uncovered.values()), 'text')} in clear, which cannot be erased", style=WARNING))
    _print_problems(report)


def _print_credentials(report: Mapping[str, Any]) -> None:
    """Print the stored credentials that an erasure removes."""
    names = [f"{one['name']} ({one['scope']})" for one in report.get("credentials", ())]
    if names:
        console().print(f"stored credentials: {', '.join(names)}")


def _memory_text(counts: Mapping[str, int]) -> str:
    """Return the counts of memory, for people; empty when there is nothing of it."""
    counted = [pluralize(counts[name], noun) for name, noun in MEMORY_COUNTS.items() if counts.get(name)]
    return ", ".join(counted)


def _print_problems(report: Mapping[str, Any]) -> None:
    out = console()
    if report["tier3_residue"]["truncated"]:
        out.print(Text("There is more than was looked at; the counts are of a part.", style=WARNING))
    for error in report["errors"]:
        out.print(Text(error, style=ERROR))
    for note in report["notes"]:
        out.print(Text(f"Not looked at: {note}" if "not examined" in note else note, style=DIM))
