"""`loomlog run` and `loomlog runs ...`: starting, listing, showing, following and resolving runs, over the API.

Before: services/cli/main.py. After: services/cli/http/api.py, connectors/client/run_stream.py,
services/cli/terminal/live_view.py. control.py and history.py have the other commands of the group.
"""

import asyncio
import json
import re
import sys
import uuid
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from loomlog.connectors.client.run_stream import WAITING, Frame, RunStream
from loomlog.services.cli.commands import run
from loomlog.services.cli.errors import FAILED, NotFound, UsageError
from loomlog.services.cli.http.api import RESPONSE_TIMEOUT_S, ApiClient, ApiError, ApiResponse, quote_segment
from loomlog.services.cli.http.requests import get, open_api, print_written
from loomlog.services.cli.runs.tree import list_tree_runs, print_tree, select_subtree
from loomlog.services.cli.terminal.browser import open_page, run_page_path
from loomlog.services.cli.terminal.live_view import create_view, show_run, wait_for_final_row
from loomlog.services.cli.terminal.output import (
    DIM,
    NAME,
    WARNING,
    console,
    error_console,
    print_json,
    print_json_line,
)
from loomlog.services.cli.terminal.run_text import print_facts, print_runs, result_line, run_line
from loomlog.services.cli.terminal.state_text import print_state
from loomlog.services.cli.terminal.timeline import MODEL_FRAMES, Timeline
from loomlog.services.cli.terminal.times import to_rfc3339

PROMPT_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of a prompt, the API's default limit; a longer prompt from a pipe is a mistake."""
PAGES_MAX = 200
"""Pages of a transcript: a million frames."""
SUCCEEDED = "completed"
CALL_PATTERN = re.compile(r"[0-9]{1,7}\.[0-9]{1,3}")

Json = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]
Position = Annotated[
    str, typer.Option("--position", help="Include the writes at these positions; several with commas.")
]
FULL_ID = re.compile(r"[ra]_[0-9a-hjkmnp-tv-z]{26}(-.*)?\Z")
"""An id or a handle that was generated; any other text may be the start of one."""
PREFIX = re.compile(r"[A-Za-z0-9_-]{4,128}\Z")
"""Start of an id, with or without its letter; fewer characters are too likely to be another run's."""
NAMED_MAX = 5
"""Maximum runs named when a prefix is ambiguous."""


def resolve_run_id(text: str | None) -> str | None:
    """Return the id or handle that a text means: itself, or the only run whose id or handle begins with it.

    Each part of a fork's id may be shortened. When a run and its forks match it is the run. An unknown text is
    returned unchanged, and the command reports it. Raises UsageError when several runs match.
    """
    if not text or FULL_ID.match(text) or not PREFIX.match(text):
        return text
    has_letter = text[:2] in ("r_", "a_")
    for prefix in [text] if has_letter else [f"r_{text}", f"a_{text}"]:
        page = get("/v1/runs", {"prefix": prefix, "limit": NAMED_MAX + 1})
        field = "agent_id" if prefix.startswith("a_") else "run_id"
        ids = list(dict.fromkeys(str(row[field]) for row in page["runs"]))
        origins = {"-".join(one.split("-")[: prefix.count("-") + 1]) for one in ids}
        if len(origins) == 1:
            return origins.pop()
        if ids:
            named = ", ".join(ids[:NAMED_MAX]) + (", ..." if len(ids) > NAMED_MAX else "")
            raise UsageError(f"{text} is the start of several runs: {named}. Give more of the id.")
    return text


RunId = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="Id of the run (r_...), its handle (a_...), or the start of one.", callback=resolve_run_id
    ),
]


class CallResolution(StrEnum):
    """Outcome of a call, as an operator found it out."""

    DONE = "done"
    NOT_DONE = "not-done"


runs_app = typer.Typer(
    help="List, show, follow, pause, compact, quarantine, resolve and cancel runs.", no_args_is_help=True
)


def start(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Name of the agent.")],
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What it is to do; - reads it from stdin.")],
    session: Annotated[str, typer.Option("--session", help="Go on with this session (s_...).")] = "",
    should_follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Show the run until it ends.")] = True,
    idempotency_key: Annotated[
        str, typer.Option("--idempotency-key", help="The same key again gives the same run, not a second one.")
    ] = "",
    on_complete: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JSON",
            help='What happens when it has ended, such as {"kind": "channel.publish", "channel": "done", "payload": '
            '"{{run.final_text}}"}; several times for several.',
        ),
    ] = None,
    output_schema: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="JSON Schema of the final answer: the run ends with a record that meets it."),
    ] = None,
    position: Position = "",
    as_json: Json = False,
) -> None:
    """Start a run and follow it."""
    text = _read_prompt(prompt)
    # A session is continued through its own route, with its earlier conversation.
    path = f"/v1/sessions/{quote_segment(session)}/messages?ids=1" if session else "/v1/runs?ids=1"
    body: dict[str, Any] = {"agent": agent, "prompt": text}
    if on_complete:
        if session:
            raise UsageError("--on-complete and --session: a run that continues a session has no hooks")
        body["on_complete"] = [_parse_hook(one) for one in on_complete]
    if output_schema is not None:
        body["output_schema"] = _read_schema(output_schema)
    key = idempotency_key or str(uuid.uuid4())
    run(_start_run(path, body, key, position, should_follow=should_follow, as_json=as_json))


def _read_schema(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"--output-schema {path}: expected a file with a JSON Schema: {error}") from error


def _parse_hook(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"--on-complete {text[:60]!r}: expected JSON: {error}") from error


async def _start_run(
    path: str, body: Mapping[str, Any], key: str, position: str, *, should_follow: bool, as_json: bool
) -> None:
    async with open_api() as api:
        followed = RunStream(api, body=body, idempotency_key=key, path=path, position=position)
        if should_follow:
            await follow(api, followed, as_json=as_json)
            return
        await wait_until_accepted(followed)
        ids = followed.ids
        if as_json:
            print_json({**asdict(ids), "position": ids.position or None, "idempotency_key": key})
            return
        out = console()
        out.print(run_line(ids))
        out.print(Text(f"`loomlog runs follow {ids.run_id}` shows it.", style=DIM))


async def wait_until_accepted(follower: RunStream) -> None:
    """Wait until the run's ids are known and its first event is in the log."""
    async with aclosing(follower.frames()) as frames:
        async for frame in frames:
            if frame.name == WAITING:
                error_console().print(frame.data["error"], style=WARNING)
            if frame.name == "agent":
                return


@runs_app.command("follow")
def follow_run(run_id: RunId, as_json: Json = False) -> None:
    """Show a run from its beginning until it ends."""
    run(_follow_existing(run_id, as_json=as_json))


async def _follow_existing(run_id: str, *, as_json: bool) -> None:
    async with open_api() as api:
        row = await get_run(api, run_id)
        turns = await count_turns_before(api, row)
        await follow(api, RunStream(api, run_id=row["run_id"]), as_json=as_json, turns_before=turns)


async def follow(api: ApiClient, follower: RunStream, *, as_json: bool, turns_before: int = 0) -> None:
    """Show a run until it ends. Exits 1 when it did not complete."""
    try:
        shown = _print_frames(api, follower) if as_json else show_run(api, follower, console(), turns_before)
        row = await shown
    except asyncio.CancelledError:
        _print_detach_hint(follower)
        raise
    if row["status"] != SUCCEEDED:
        raise typer.Exit(FAILED)


async def _print_frames(api: ApiClient, follower: RunStream) -> Mapping[str, Any]:
    """Print the frames as JSON lines, with the run itself as the last one."""
    async for frame in follower.frames():
        print_json_line({"event": frame.name, "id": frame.seq, "data": frame.data})
    row = await wait_for_final_row(api, follower.ids.run_id)
    print_json_line({"event": "run", "id": None, "data": row})
    return row


def _print_detach_hint(follower: RunStream) -> None:
    run_id = follower.ids.run_id
    if run_id:
        print("\nNo longer followed; the run continues.", file=sys.stderr)
        print(f"  loomlog runs follow {run_id}", file=sys.stderr)
        print(f"  loomlog runs cancel {run_id}", file=sys.stderr)


@runs_app.command("ls")
def list_runs(
    status: Annotated[str, typer.Option(help="running, completed, failed, cancelled; several with commas.")] = "all",
    agent: Annotated[str, typer.Option(help="Only runs of this agent.")] = "",
    session: Annotated[str, typer.Option(help="Only runs of this session.")] = "",
    user: Annotated[str, typer.Option(help="Only runs of this user.")] = "",
    parent: Annotated[str, typer.Option(help="Only children of the run with this handle (a_...).")] = "",
    tenant: Annotated[str, typer.Option(help="Only runs of this tenant (administrators).")] = "",
    since: Annotated[str, typer.Option(metavar="TIME", help="Only runs started since: 24h, or RFC 3339.")] = "",
    until: Annotated[str, typer.Option(metavar="TIME", help="Only runs started before: 24h, or RFC 3339.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=500, help="Most runs to list.")] = 20,
    cursor: Annotated[str, typer.Option(help="`next` of an earlier answer.")] = "",
    wide: Annotated[bool, typer.Option("--wide", help="Show whole ids.")] = False,
    position: Position = "",
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
        "from": to_rfc3339(since, option="--since"),
        "to": to_rfc3339(until, option="--until"),
        "limit": limit,
        "cursor": cursor,
        "position": position,
    }
    listing = get("/v1/runs", params)
    if as_json:
        print_json(listing)
        return
    out = console()
    if not listing["runs"]:
        out.print("No runs." if status == "all" else f"No runs that are {status}.")
        out.print(Text('`loomlog run assistant "Hello"` starts one.', style=DIM))
        return
    print_runs(out, listing["runs"], wide=wide)
    if listing["next"]:
        out.print(Text(f"There are more: --cursor {listing['next']}", style=DIM))


@runs_app.command("show")
def show(
    run_id: RunId,
    at: Annotated[int | None, typer.Option("--at", min=1, help="As it was after the event of that seq.")] = None,
    position: Position = "",
    web: Annotated[bool, typer.Option("--web", help="Open the run on the web page instead.")] = False,
    as_json: Json = False,
) -> None:
    """Show a run: its facts, and its transcript as a timeline with durations, tokens and cost."""
    if web:
        if at or as_json:
            raise UsageError("--web opens the page of the run: leave out --at and --json")
        base_url, needs_token, row = run(_find_run_page(run_id, position))
        open_page(base_url, run_page_path(row["run_id"]), needs_token=needs_token)
        return
    if at:
        moment = run(_get_state(run_id, at, position))
        if as_json:
            print_json(moment)
        else:
            print_state(console(), moment)
        return
    row, frames, turns_before = run(_get_run_with_frames(run_id, position))
    if as_json:
        print_json({"run": row, "frames": frames})
        return
    out = console()
    print_facts(out, row)
    out.print()
    # The clock is fixed, because nothing is in progress in a stored transcript.
    view = create_view(out, clock=lambda: 0.0)
    timeline = Timeline(frames, columns=view.columns)
    view.columns -= timeline.columns
    view.run_id, view.is_finished, view.turn = row["run_id"], True, turns_before
    view.retried_calls = frozenset(row.get("under_way") or ())
    out.print(timeline.head())
    for frame in frames:
        margin, turn = timeline.margin(frame), view.turn
        lines = view.handle_frame(_transcript_frame(frame))
        # The line of the frame itself is the last; those before it complete the turn above.
        has_line = frame["type"] != "done" and (frame["type"] not in MODEL_FRAMES or view.turn != turn)
        for place, line in enumerate(lines, start=1):
            out.print(Text.assemble(margin if has_line and place == len(lines) else timeline.blank(), line))
    if row["status"] == "running" and not row["quarantined"]:
        for hint in view.hints.values():
            out.print(hint)
    out.print(result_line(row))
    out.print(Text(f"`loomlog replay {row['run_id']}` folds it again from the log and compares.", style=DIM))


@runs_app.command("tree")
def tree(run_id: RunId, as_json: Json = False) -> None:
    """Show a run with all sub-agents below it, and the status of each."""
    rows = run(_get_tree(run_id))
    if as_json:
        print_json({"runs": rows})
    else:
        print_tree(console(), rows)


async def _get_tree(run_id: str) -> list[Mapping[str, Any]]:
    async with open_api() as api:
        row = await get_run(api, run_id)
        return select_subtree(await list_tree_runs(api, row), row["run_id"]) or [row]


@runs_app.command("resolve")
def resolve(
    run_id: RunId,
    call: Annotated[str, typer.Option("--call", metavar="TURN.INDEX", help="The call, as `runs show` names it.")],
    outcome: Annotated[
        CallResolution, typer.Option("--as", help="It had its effect; or it had none and is made again.")
    ],
    result: Annotated[str, typer.Option("--result", help="Result passed to the model for a completed call.")] = "",
    as_json: Json = False,
) -> None:
    """Report the outcome of a tool call whose outcome is unknown and that waits for it."""
    if not CALL_PATTERN.fullmatch(call):
        raise UsageError(f"--call is {call!r}: expected TURN.INDEX, such as 1.0.")
    body = {"outcome": outcome.value.replace("-", "_")} | ({"result": result} if result else {})
    response = send_to_run(run_id, f"calls/{call}/resolve", body)
    if as_json:
        print_written(response)
        return
    answer = response.value
    what = "is made again" if answer["repeated"] else "is done"
    console().print(
        Text.assemble(f"Call {answer['call']} of ", (answer["run_id"], NAME), f" {what}  ", (response.position, DIM))
    )


async def get_run(api: ApiClient, run_id: str, position: str = "") -> Mapping[str, Any]:
    """Return the run with an id or a handle, with the writes at `position`. Raises Refusal."""
    path = "/v1/runs" if run_id.startswith("r_") else "/v1/agents"
    try:
        row: Mapping[str, Any] = await api.get(f"{path}/{quote_segment(run_id)}", position=position)
    except ApiError as refusal:
        if refusal.status == 404:
            raise NotFound(f"There is no run {run_id}. `loomlog runs ls` lists them.") from refusal
        raise
    return row


def send_to_run(
    run_id: str, path: str, body: Mapping[str, Any], *, timeout_s: float = RESPONSE_TIMEOUT_S
) -> ApiResponse:
    """Post to a path below that of the run with an id or a handle. Raises Refusal."""

    async def ask() -> ApiResponse:
        async with open_api() as api:
            row = await get_run(api, run_id)
            return await api.post(f"/v1/runs/{row['run_id']}/{path}", body, timeout_s=timeout_s)

    return run(ask())


async def _find_run_page(run_id: str, position: str) -> tuple[str, bool, Mapping[str, Any]]:
    """Return the address of the API, whether its page asks for a token, and the run."""
    async with open_api() as api:
        return api.base_url, bool(api.token), await get_run(api, run_id, position)


async def count_turns_before(api: ApiClient, row: Mapping[str, Any]) -> int:
    """Return the turns that a fork shares with its origin, so that its own are numbered by the conversation."""
    forked = row.get("forked_from")
    if forked is None:
        return 0
    state = await api.get(f"/v1/runs/{forked['run_id']}/state", {"at": forked["seq"]})
    return int(state["turns"])


async def _get_run_with_frames(run_id: str, position: str) -> tuple[Mapping[str, Any], list[Mapping[str, Any]], int]:
    """Return the row and the stored frames of a run, and the turns before its own."""
    async with open_api() as api:
        row = await get_run(api, run_id, position)
        frames: list[Mapping[str, Any]] = []
        cursor = ""
        for _ in range(PAGES_MAX):
            page = await api.get(f"/v1/sessions/{row['session_id']}/transcript", {"cursor": cursor})
            frames += [frame for frame in page["events"] if frame["run_id"] == row["run_id"]]
            cursor = page.get("next") or ""
            if not cursor:
                break
        return row, frames, await count_turns_before(api, row)


async def _get_state(run_id: str, at: int, position: str = "") -> Mapping[str, Any]:
    async with open_api() as api:
        row = await get_run(api, run_id, position)
        moment: Mapping[str, Any] = await api.get(f"/v1/runs/{row['run_id']}/state", {"at": at})
        return moment


def _read_prompt(prompt: str) -> str:
    if prompt != "-":
        return prompt
    text = sys.stdin.read(PROMPT_BYTES_MAX + 1)
    if not text.strip():
        raise UsageError("The prompt is - but nothing came on stdin.")
    if len(text) > PROMPT_BYTES_MAX:
        raise UsageError(f"The prompt on stdin has more than {PROMPT_BYTES_MAX} characters.")
    return text


def _transcript_frame(frame: Mapping[str, Any]) -> Frame:
    """Convert a frame of the transcript to the form of a stream."""
    name = frame["type"]
    if name == "user_input":
        text = " ".join(
            str(block.get("text") or f"({block.get('media_type') or block['type']})")
            for segment in frame.get("payload") or ()
            if segment["role"] == "user"
            for block in segment["content"]
        )
        return Frame(name="steer", data={"user_input": {"text": text}}, seq=frame["seq"])
    return Frame(name=name, data=frame["event"], seq=frame["seq"])
