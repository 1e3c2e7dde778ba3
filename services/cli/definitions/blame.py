"""`loomlog blame RUN`: which version a run was pinned to, who made it and why, and who made it active and why.

Before: services/cli/main.py. After: GET /v1/runs/{run_id}/blame.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from loomlog.services.cli.commands import run
from loomlog.services.cli.definitions.definition_text import author_text, format_time
from loomlog.services.cli.definitions.versions import hint, version_name
from loomlog.services.cli.http.api import quote_segment
from loomlog.services.cli.http.requests import open_api
from loomlog.services.cli.runs.runs import Json, RunId, get_run
from loomlog.services.cli.terminal.output import DIM, NAME, SUCCESS, WARNING, console, fact_line, print_json

HANDLE = "a_"
Fact = tuple[str, str | Text]


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


def _facts(chain: Mapping[str, Any]) -> Iterator[Fact]:
    content_hash = chain["content_sha256"] or chain["definition_sha256"] or ""
    if chain["version"]:
        yield from _version_facts(chain, content_hash)
    else:
        yield from _file_facts(chain, content_hash)
    for skill in chain["skills"] or ():
        yield "skill", f"{version_name(skill['name'], skill['version'])}  {skill['def_id'] or 'of a file'}"
    if chain["version"]:
        yield "changes", hint("diff", chain["def_id"])
        if chain["is_active_now"]:
            first = version_name(chain["agent"], 1)
            yield "take back", hint("rollback", chain["agent"]) if chain["version"] > 1 else hint("retire", first)
        else:
            yield "history", hint("show", chain["agent"])


def _version_facts(chain: Mapping[str, Any], content_hash: str) -> Iterator[Fact]:
    yield "version", f"{version_name(chain['agent'], chain['version'])}  {chain['def_id']}  {content_hash}"
    yield "made", _made(chain)
    if chain["parent_def_id"]:
        yield "from", chain["parent_def_id"]
    yield "promoted", _promoted(chain)
    yield "now", _now(chain)
    if (chain["file"] or {}).get("differs_from_pin"):
        yield "file", "the configuration file of this name says something else"


def _file_facts(chain: Mapping[str, Any], content_hash: str) -> Iterator[Fact]:
    file = chain["file"]
    yield "version", f"{chain['agent']}  of a configuration file  {content_hash}"
    if file is None:
        yield "now", Text("no configuration file has it any more", style=WARNING)
    elif file["def_id"] != chain["def_id"]:
        yield "now", Text("the file says something else", style=WARNING)
    elif not chain["is_active_now"]:
        yield "now", Text("a version made at run time is active instead", style=WARNING)
    else:
        yield "now", Text("active", style=SUCCESS)
    yield "change", f"the file, and restart; or {hint('fork', chain['agent'])} --promote --set KEY=VALUE"


def _made(chain: Mapping[str, Any]) -> str:
    return f"{format_time(chain['created_at'])}  by {author_text(chain) or 'unknown'}{_quoted(chain['description'])}"


def _promoted(chain: Mapping[str, Any]) -> str:
    if not chain["promoted_at"]:
        return "never: the run named the version by its id"
    text = (
        f"{format_time(chain['promoted_at'])}  by {chain['promoted_by'] or 'unknown'}{_quoted(chain['promoted_why'])}"
    )
    return text + (f"  event {chain['promotion_position']}" if chain["promotion_position"] else "")


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
