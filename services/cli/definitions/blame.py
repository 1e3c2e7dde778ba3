"""`loomlog blame RUN`: which version a run was pinned to, who made it and why, and who made it active and why.

Before: services/cli/main.py. After: GET /v1/runs/{run_id}/blame.
"""

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from loomlog.services.cli.commands import run
from loomlog.services.cli.definitions.definition_text import author_text, format_time
from loomlog.services.cli.definitions.versions import hint, version_name
from loomlog.services.cli.http.api import quote_segment
from loomlog.services.cli.runs.runs import Json, RunId, get_run, open_api
from loomlog.services.cli.terminal.output import DIM, NAME, SUCCESS, WARNING, console, fact_line, print_json

FILE = "file"
HANDLE = "a_"


def blame(run_id: RunId, as_json: Json = False) -> None:
    """Show the definition that a run was pinned to, who made it and why."""
    chain = run(_get_blame(run_id))
    if as_json:
        print_json(chain)
        return
    out = console()
    out.print(Text.assemble(("run", DIM), " " * 9, (chain["run_id"], NAME), f"  agent {chain['agent']}"))
    for name, value in _facts(chain):
        out.print(Text.assemble((f"{name:<12}", DIM), value) if isinstance(value, Text) else fact_line(name, value))


def _facts(chain: Mapping[str, Any]) -> list[tuple[str, str | Text]]:
    content_hash = chain.get("content_sha256") or chain.get("definition_sha256") or ""
    skills = [
        ("skill", f"{version_name(skill['name'], skill['version'])}  {skill['def_id'] or 'of a file'}")
        for skill in chain.get("skills") or ()
    ]
    if not chain["def_id"] or not chain["version"]:
        return [*_file_facts(chain, content_hash), *skills]
    version = version_name(chain["agent"], chain["version"])
    facts: list[tuple[str, str | Text]] = [
        ("version", f"{version}  {chain['def_id']}  {content_hash}"),
        ("made", _made(chain)),
        *([("from", chain["parent_def_id"])] if chain.get("parent_def_id") else []),
        ("promoted", _promoted(chain)),
        ("now", _now(chain)),
        *skills,
        ("changes", hint("diff", chain["def_id"])),
    ]
    if chain["is_active_now"]:
        facts.append(("take back", hint("rollback", chain["agent"])))
    else:
        facts.append(("history", hint("show", chain["agent"])))
    return facts


def _file_facts(chain: Mapping[str, Any], content_hash: str) -> list[tuple[str, str | Text]]:
    file = chain.get("file") or {}
    now: list[tuple[str, str | Text]] = []
    if file.get("differs_from_pin") is not None:
        differs = bool(file["differs_from_pin"])
        text = "the file says something else now" if differs else "the file says the same"
        now = [("now", Text(text, style=WARNING if differs else SUCCESS))]
    return [
        ("version", f"{chain['agent']}  of a configuration file  {content_hash}"),
        *now,
        ("take back", "change the file and restart"),
        ("", f"{hint('fork', chain['agent'])} --promote --set KEY=VALUE"),
    ]


def _made(chain: Mapping[str, Any]) -> str:
    return f"{format_time(chain['created_at'])}  by {author_text(chain) or 'unknown'}{_quoted(chain['description'])}"


def _promoted(chain: Mapping[str, Any]) -> str:
    if not chain.get("promoted_at"):
        return "never: the run named the version by its id"
    text = (
        f"{format_time(chain['promoted_at'])}  by {chain['promoted_by'] or 'unknown'}{_quoted(chain['promoted_why'])}"
    )
    return text + (f"  event {chain['promotion_position']}" if chain.get("promotion_position") else "")


def _now(chain: Mapping[str, Any]) -> Text:
    return Text("active", style=SUCCESS) if chain["is_active_now"] else Text("no longer active", style=WARNING)


def _quoted(reason: str | None) -> str:
    return f': "{reason}"' if reason else ", without a reason"


async def _get_blame(run_id: str) -> Mapping[str, Any]:
    async with open_api() as api:
        if run_id.startswith(HANDLE):
            run_id = (await get_run(api, run_id))["run_id"]
        chain: Mapping[str, Any] = await api.get(f"/v1/runs/{quote_segment(run_id)}/blame")
        return chain
