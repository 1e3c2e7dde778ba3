"""`loomlog subjects`: whose content is encrypted, what there is of somebody, and erasing it, over the API.

    loomlog subjects ls --tenant T               everybody in a tenant who has or had a key
    loomlog subjects show SUBJECT --tenant T     what an erasure would make unreadable, and what lies in clear
    loomlog subjects erase SUBJECT --tenant T --reason WHY --confirm SUBJECT
    loomlog subjects proof SUBJECT --tenant T    that nothing of it can be read: erased when, by whom, where in the log
    loomlog subjects rewrap                      after a new LOOMLOG_ENCRYPTION_KEY: lets go of the previous one

A subject is the user_id of runs; `(tenant)` stands for runs that name no user.

Before: main.py. After: api.py.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.text import Text

from loomlog.services.cli.commands import Commands, run
from loomlog.services.cli.failures import FAILED, WrongUse
from loomlog.services.cli.http.api import Answer, segment
from loomlog.services.cli.runs.runs import Json, api_of_here
from loomlog.services.cli.terminal.formatting import counted
from loomlog.services.cli.terminal.output import BAD, DIM, GOOD, NAME, ODD, console, print_json

PATH = "/v1/_erasure"

subjects_app = typer.Typer(
    cls=Commands, no_args_is_help=True, help="Whose content is encrypted, and erasing somebody's."
)
Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="A user_id, or (tenant) for runs that name no user.")]
Tenant = Annotated[str, typer.Option("--tenant", help="The tenant of the subject.")]


@subjects_app.command("ls")
def list_subjects(tenant: Tenant, as_json: Json = False) -> None:
    """List everybody in a tenant who has or had a key."""
    found = run(_get({"tenant": tenant}))
    if as_json:
        print_json(found)
        return
    for subject in found["subjects"]:
        console().print(subject)


@subjects_app.command("show")
def show_subject(subject: Subject, tenant: Tenant, as_json: Json = False) -> None:
    """Show what there is of a subject, and what of it can be erased."""
    found = run(_get({"tenant": tenant, "subject": subject}))
    if as_json:
        print_json(found)
        return
    _show(found)


@subjects_app.command("erase")
def erase_subject(
    subject: Subject,
    tenant: Tenant,
    reason: Annotated[str, typer.Option("--reason", help="Why; it is kept for ever. Needed with --confirm.")] = "",
    confirm: Annotated[str, typer.Option("--confirm", help="The subject again; without it nothing is erased.")] = "",
    as_json: Json = False,
) -> None:
    """Cancel what is under way for a subject and make its content unreadable, everywhere and for ever. Exits 1 when
    some of it lies in clear and stays readable."""
    if confirm and not reason:
        raise WrongUse("Why is it erased? --reason WHY is kept with the erasure, for whoever asks for proof of it.")
    body: dict[str, Any] = {"subject": subject, "dry_run": not confirm}
    body |= {"reason": reason} if reason else {}
    body |= {"confirm": confirm} if confirm else {}
    answer = run(_post(tenant, body))
    found = answer.value
    in_clear = 0 if found["dry_run"] else found["tier2_uncovered"]["total"]
    if as_json:
        print_json({**found, "position": answer.position or None})
    else:
        _show_erasure(subject, tenant, answer, in_clear)
    if in_clear:
        raise typer.Exit(FAILED)


def _show_erasure(subject: str, tenant: str, answer: Answer, in_clear: int) -> None:
    out, found = console(), answer.value
    if found["dry_run"]:
        out.print(Text(f"Nothing was erased. To do it: --reason WHY --confirm {subject}", style=ODD))
    else:
        deleted = found["deleted"]
        did = f"{counted(deleted['keys'], 'key')}, {counted(deleted['frames'], 'text')} unreadable"
        said = f"{subject} of {tenant} is erased: {did}"
        if in_clear:
            said = f"{subject} of {tenant} is not erased: {counted(in_clear, 'text')} can still be read. Done: {did}"
        out.print(Text.assemble((said, BAD if in_clear else GOOD), ("  event ", DIM), answer.position))
        for run_id in found["cancelled_runs"]:
            out.print(f"cancelled {run_id}")
    for why in found["retained"].values():
        out.print(why)
    _show_problems(found)


@subjects_app.command("proof")
def prove_erasure(subject: Subject, tenant: Tenant, as_json: Json = False) -> None:
    """Show that nothing of a subject can be read, and where its erasure is recorded. Exits 1 when content can be."""
    found = run(_get({"tenant": tenant, "subject": subject}))
    readable = _is_readable(found)
    is_erased = bool(found["erasures"]) and not readable
    if as_json:
        print_json({**found, "erased": is_erased, "readable": readable})
    elif not found["known"]:
        _say_unknown(subject, tenant)
    else:
        out = console()
        _print_erasures(found)
        _show(found)
        if readable:
            out.print(Text("It is not erased, or something of it can be read.", style=BAD))
        else:
            why = "it was erased" if is_erased else "there is no content of it, and none was erased"
            out.print(Text(f"Nothing of it can be read: {why}.", style=GOOD))
    if readable:
        raise typer.Exit(FAILED)


def _is_readable(found: Mapping[str, Any]) -> bool:
    """Whether content can be read, or nobody can say that it cannot: not all was looked at, or a key is elsewhere."""
    has_key = any(not key["erased"] for key in found["keys"])
    never_erased = bool(found["tier1_covered"]["total"] and not found["erasures"])
    in_clear, rest = found["tier2_uncovered"]["total"], found["tier3_residue"]["truncated"]
    return bool(has_key or never_erased or in_clear or rest)


def _print_erasures(found: Mapping[str, Any]) -> None:
    """Each erasure with the keys it destroyed; there may have been none."""
    for told in found["erasures"]:
        keys = [
            key["key_id"] for key in found["keys"] if key["erased"] and key["erasure"]["position"] == told["position"]
        ]
        why = f": {told['reason']}" if told["reason"] else ""
        for key_id in keys or ["no key"]:
            said = f" erased {told['at']} by {told['by']}{why}"
            console().print(Text.assemble((key_id, NAME), said, ("  event ", DIM), told["position"]))


def _say_unknown(subject: str, tenant: str) -> None:
    said = f"There is nothing of {subject} in {tenant}. `loomlog subjects ls` lists who has or had a key."
    console().print(Text(said, style=ODD))


@subjects_app.command("rewrap")
def wrap_anew(as_json: Json = False) -> None:
    """Wrap every key under LOOMLOG_ENCRYPTION_KEY; afterwards the previous one is not needed any more."""
    found = run(_rewrap()).value
    if as_json:
        print_json(found)
        return
    console().print(f"{counted(found['wrapped'], 'key')} wrapped anew")


def _show(found: Mapping[str, Any]) -> None:
    out = console()
    covered, uncovered = found["tier1_covered"]["counts"], found["tier2_uncovered"]["counts"]
    runs = f"{counted(covered['runs'], 'run')} ({covered['live_runs']} under way)"
    keys = counted(covered.get("keys", 0), "key")
    out.print(f"{runs}, {keys}, {counted(covered['frames'], 'encrypted text')}")
    if not found["encrypted"]:
        out.print(Text("Content is not encrypted here: LOOMLOG_ENCRYPTION_KEY is not set.", style=ODD))
    if found["tier2_uncovered"]["total"]:
        out.print(Text(f"{counted(sum(uncovered.values()), 'text')} in clear, which cannot be erased", style=ODD))
    _show_problems(found)


def _show_problems(found: Mapping[str, Any]) -> None:
    out = console()
    if found["tier3_residue"]["truncated"]:
        out.print(Text("There is more than was looked at; the counts are of a part.", style=ODD))
    for error in found["errors"]:
        out.print(Text(error, style=BAD))
    for note in found["notes"]:
        out.print(Text(f"Not looked at: {note}" if "not examined" in note else note, style=DIM))


async def _get(params: Mapping[str, str]) -> Any:
    async with api_of_here() as api:
        return await api.get(PATH, dict(params))


async def _post(tenant: str, body: Mapping[str, Any]) -> Answer:
    async with api_of_here() as api:
        return await api.post(f"{PATH}?tenant={segment(tenant)}", body)


async def _rewrap() -> Answer:
    async with api_of_here() as api:
        return await api.post(f"{PATH}/rewrap", {})
