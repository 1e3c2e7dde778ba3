"""`loomlog run` and `loomlog runs ...`: starting, listing, showing, following, resolving, over the API.

Before: main.py. After: api.py, following.py, live.py. orders.py and histories.py have the other commands of the group.
"""

import asyncio
import os
import re
import sys
import uuid
from collections.abc import Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from loomlog.services.cli.commands import run
from loomlog.services.cli.failures import FAILED, Failure, WrongUse
from loomlog.services.cli.http.api import Api, Refusal, segment
from loomlog.services.cli.http.run_stream import WAITING, Followed, Frame
from loomlog.services.cli.runs.tree import below, family_of, print_tree
from loomlog.services.cli.settings import cli_settings
from loomlog.services.cli.terminal.live_view import final_row, show_run, view_for
from loomlog.services.cli.terminal.output import (
    DIM,
    NAME,
    ODD,
    console,
    error_console,
    print_json,
    print_json_line,
    print_table,
)
from loomlog.services.cli.terminal.run_text import ended_line, print_facts, run_line, table_row
from loomlog.services.cli.terminal.state_text import print_moment

PROMPT_BYTES_MAX = 16 * 1024 * 1024
"""What the API takes by default; a longer prompt from a pipe is a mistake."""
PAGES_MAX = 200
"""Of a transcript: a million frames."""
SUCCEEDED = "completed"
CALL = re.compile(r"[0-9]{1,7}\.[0-9]{1,3}")

Json = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="Id of the run (r_...) or its handle (a_...).")]


class Outcome(StrEnum):
    """What somebody found out about a call."""

    DONE = "done"
    NOT_DONE = "not-done"


runs_app = typer.Typer(
    help="List, show, follow, pause, compact, quarantine, resolve and cancel runs.", no_args_is_help=True
)


def api_of_here() -> Api:
    """The API this installation has, with the token of the environment."""
    cli = cli_settings(os.environ, working_directory=Path.cwd())
    return Api(cli.api_url, cli.token)


def start(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Name of the agent.")],
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What it is to do; - reads it from stdin.")],
    session: Annotated[str, typer.Option("--session", help="Go on with this session (s_...).")] = "",
    follow_it: Annotated[bool, typer.Option("--follow/--no-follow", help="Show the run until it ends.")] = True,
    idempotency_key: Annotated[
        str, typer.Option("--idempotency-key", help="The same key again gives the same run, not a second one.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Start a run, and follow it."""
    text = _prompt(prompt)
    # A session is gone on with as its own route does it: with what was said in it before.
    path = f"/v1/sessions/{segment(session)}/messages?ids=1" if session else "/v1/runs?ids=1"
    body = {"agent": agent, "prompt": text}
    run(_start(path, body, idempotency_key or str(uuid.uuid4()), follow_it=follow_it, as_json=as_json))


async def _start(path: str, body: Mapping[str, Any], key: str, *, follow_it: bool, as_json: bool) -> None:
    async with api_of_here() as api:
        followed = Followed(api, body=body, idempotency_key=key, path=path)
        if follow_it:
            await follow(api, followed, as_json=as_json)
            return
        await accepted(followed)
        ids = followed.ids
        if as_json:
            print_json(
                {
                    "run_id": ids.run_id,
                    "session_id": ids.session_id,
                    "agent_id": ids.agent_id,
                    "position": ids.position or None,
                    "idempotency_key": key,
                }
            )
            return
        out = console()
        out.print(run_line(ids))
        out.print(Text(f"`loomlog runs follow {ids.run_id}` shows it.", style=DIM))


async def accepted(followed: Followed) -> None:
    """Until the run's ids are known and its first event is in the log."""
    async with aclosing(followed.frames()) as frames:
        async for frame in frames:
            if frame.name == WAITING:
                error_console().print(frame.data["error"], style=ODD)
            if frame.name == "agent":
                return


@runs_app.command("follow")
def follow_run(run_id: RunId, as_json: Json = False) -> None:
    """Show a run from its beginning until it ends."""
    run(_follow_known(run_id, as_json=as_json))


async def _follow_known(run_id: str, *, as_json: bool) -> None:
    async with api_of_here() as api:
        row = await row_of(api, run_id)
        await follow(api, Followed(api, run_id=row["run_id"]), as_json=as_json)


async def follow(api: Api, followed: Followed, *, as_json: bool) -> None:
    """Ends with exit code 1 when the run did not complete."""
    try:
        row = await (_lines(api, followed) if as_json else show_run(api, followed, console()))
    except asyncio.CancelledError:
        _say_it_goes_on(followed)
        raise
    if row["status"] != SUCCEEDED:
        raise typer.Exit(FAILED)


async def _lines(api: Api, followed: Followed) -> Mapping[str, Any]:
    """The frames as JSON lines, and the run itself as the last one."""
    async for frame in followed.frames():
        print_json_line({"event": frame.name, "id": frame.seq, "data": frame.data})
    row = await final_row(api, followed.ids.run_id)
    print_json_line({"event": "run", "id": None, "data": row})
    return row


def _say_it_goes_on(followed: Followed) -> None:
    run_id = followed.ids.run_id
    if run_id:
        print("\nNo longer followed; the run goes on.", file=sys.stderr)
        print(f"  loomlog runs follow {run_id}", file=sys.stderr)
        print(f"  loomlog runs cancel {run_id} --reason ...", file=sys.stderr)


@runs_app.command("ls")
def list_runs(
    status: Annotated[str, typer.Option(help="running, completed, failed, cancelled; several with commas.")] = "all",
    agent: Annotated[str, typer.Option(help="Only runs of this agent.")] = "",
    session: Annotated[str, typer.Option(help="Only runs of this session.")] = "",
    user: Annotated[str, typer.Option(help="Only runs of this user.")] = "",
    parent: Annotated[str, typer.Option(help="Only children of the run with this handle (a_...).")] = "",
    tenant: Annotated[str, typer.Option(help="Only runs of this tenant (administrators).")] = "",
    since: Annotated[str, typer.Option(help="Only runs started at or after this time (RFC 3339).")] = "",
    until: Annotated[str, typer.Option(help="Only runs started before this time (RFC 3339).")] = "",
    limit: Annotated[int, typer.Option(min=1, max=500, help="Most runs to list.")] = 20,
    cursor: Annotated[str, typer.Option(help="`next` of an earlier answer.")] = "",
    as_json: Json = False,
) -> None:
    """List runs, newest first."""
    params: dict[str, str | int] = {
        "status": status,
        "agent": agent,
        "session_id": session,
        "user_id": user,
        "parent_agent_id": parent,
        "tenant": tenant,
        "from": since,
        "to": until,
        "limit": limit,
        "cursor": cursor,
    }
    found = run(_get("/v1/runs", params))
    if as_json:
        print_json(found)
        return
    out = console()
    if not found["runs"]:
        out.print("No runs." if status == "all" else f"No runs that are {status}.")
        out.print(Text('`loomlog run assistant "Hello"` starts one.', style=DIM))
        return
    now = datetime.now(UTC)
    print_table(
        out,
        ("RUN", "AGENT", "STATUS", "TURNS", "CALLS", "TOKENS", "COST", "TOOK", "STARTED"),
        [table_row(row, now) for row in found["runs"]],
        right=(3, 4, 5, 6, 7),
    )
    if found["next"]:
        out.print(Text(f"There are more: --cursor {found['next']}", style=DIM))


@runs_app.command("show")
def show(
    run_id: RunId,
    at: Annotated[int | None, typer.Option("--at", min=1, help="As it was after the event of that seq.")] = None,
    as_json: Json = False,
) -> None:
    """Show what is known of a run: its facts and everything that was said and done."""
    if at:
        moment = run(_moment(run_id, at))
        if as_json:
            print_json(moment)
        else:
            print_moment(console(), moment)
        return
    row, frames = run(_whole(run_id))
    if as_json:
        print_json({"run": row, "frames": frames})
        return
    out = console()
    print_facts(out, row)
    out.print()
    # The clock stands still: nothing is under way in what is stored.
    view = view_for(out, clock=lambda: 0.0)
    view.run_id, view.is_past = row["run_id"], True
    view.made_again = frozenset(row.get("under_way") or ())
    for frame in frames:
        for line in view.take(_stored(frame)):
            out.print(line)
    if row["status"] == "running" and not row["quarantined"]:
        for hint in view.hints.values():
            out.print(hint)
    out.print(ended_line(row))
    out.print(Text(f"`loomlog replay {row['run_id']}` folds it again from the log and compares.", style=DIM))


@runs_app.command("tree")
def tree(run_id: RunId, as_json: Json = False) -> None:
    """Show a run with all sub-agents below it, and how each of them stands."""
    rows = run(_tree(run_id))
    if as_json:
        print_json({"runs": rows})
    else:
        print_tree(console(), rows)


async def _tree(run_id: str) -> list[Mapping[str, Any]]:
    async with api_of_here() as api:
        row = await row_of(api, run_id)
        return below(await family_of(api, row), row["run_id"]) or [row]


@runs_app.command("resolve")
def resolve(
    run_id: RunId,
    call: Annotated[str, typer.Option("--call", metavar="TURN.INDEX", help="The call, as `runs show` names it.")],
    outcome: Annotated[Outcome, typer.Option("--as", help="It had its effect; or it had none and is made again.")],
    result: Annotated[str, typer.Option("--result", help="What the model is told of a call that is done.")] = "",
    as_json: Json = False,
) -> None:
    """Say what became of a tool call of unknown outcome that waits for it."""
    if not CALL.fullmatch(call):
        raise WrongUse(f"--call is {call!r}: expected TURN.INDEX, such as 1.0.")
    answer, position = run(_resolve(run_id, call, outcome, result))
    if as_json:
        print_json({**answer, "position": position or None})
        return
    what = "is made again" if answer["repeated"] else "is done"
    console().print(
        Text.assemble(f"Call {answer['call']} of ", (answer["run_id"], NAME), f" {what}  ", (position, DIM))
    )


async def row_of(api: Api, run_id: str) -> Mapping[str, Any]:
    """The run of an id or a handle. Raises Refusal."""
    path = "/v1/runs" if run_id.startswith("r_") else "/v1/agents"
    try:
        row: Mapping[str, Any] = await api.get(f"{path}/{segment(run_id)}")
    except Refusal as refusal:
        if refusal.status == 404:
            raise Failure(f"There is no run {run_id}. `loomlog runs ls` lists them.") from refusal
        raise
    return row


async def _get(path: str, params: Mapping[str, str | int]) -> Any:
    async with api_of_here() as api:
        return await api.get(path, params)


async def _whole(run_id: str) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    """The row and the stored frames of that run."""
    async with api_of_here() as api:
        row = await row_of(api, run_id)
        frames: list[Mapping[str, Any]] = []
        cursor = ""
        for _ in range(PAGES_MAX):
            page = await api.get(f"/v1/sessions/{row['session_id']}/transcript", {"cursor": cursor})
            frames += [frame for frame in page["events"] if frame["run_id"] == row["run_id"]]
            cursor = page.get("next") or ""
            if not cursor:
                break
        return row, frames


async def _moment(run_id: str, at: int) -> Mapping[str, Any]:
    async with api_of_here() as api:
        row = await row_of(api, run_id)
        found: Mapping[str, Any] = await api.get(f"/v1/runs/{row['run_id']}/state", {"at": at})
        return found


async def _resolve(run_id: str, call: str, outcome: Outcome, result: str) -> tuple[Mapping[str, Any], str]:
    async with api_of_here() as api:
        row = await row_of(api, run_id)
        body = {"outcome": outcome.value.replace("-", "_")} | ({"result": result} if result else {})
        answer = await api.post(f"/v1/runs/{row['run_id']}/calls/{call}/resolve", body)
        return answer.value, answer.position


def _prompt(prompt: str) -> str:
    if prompt != "-":
        return prompt
    text = sys.stdin.read(PROMPT_BYTES_MAX + 1)
    if not text.strip():
        raise WrongUse("The prompt is - but nothing came on stdin.")
    if len(text) > PROMPT_BYTES_MAX:
        raise WrongUse(f"The prompt on stdin has more than {PROMPT_BYTES_MAX} characters.")
    return text


def _stored(frame: Mapping[str, Any]) -> Frame:
    """A frame of the transcript as a stream would show it."""
    name = frame["type"]
    if name == "user_input":
        said = " ".join(
            str(block.get("text") or f"({block.get('media_type') or block['type']})")
            for segment in frame.get("payload") or ()
            if segment["role"] == "user"
            for block in segment["content"]
        )
        return Frame(name="steer", data={"user_input": {"text": said}}, seq=frame["seq"])
    return Frame(name=name, data=frame["event"], seq=frame["seq"])
