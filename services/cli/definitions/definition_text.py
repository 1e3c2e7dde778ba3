"""Definitions as text: a version, its history, differences by field, a lineage.

Before: reads.py, changes.py, transfer.py, blame.py, with the JSON of the API. After: the terminal.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from loomlog.services.cli.definitions.sources import PROMPT, PROMPT_BASE, to_yaml
from loomlog.services.cli.definitions.versions import SHARED_NAME, version_name
from loomlog.services.cli.terminal.formatting import one_line, pluralize
from loomlog.services.cli.terminal.output import DIM, ERROR, NAME, SUCCESS, WARNING, fact_line, print_table

REASON_CHARACTERS = 80
HASH_CHARACTERS = 19
"""Characters of a content hash in a table: `sha256:` and twelve digits, as people compare them."""
INDENT = "  "


def format_time(text: str | None) -> str:
    """Shorten a time of the API to the second."""
    return f"{text[:19]}Z" if text else ""


def tenant_name(tenant_id: str) -> str:
    """Return a tenant as --tenant names it."""
    return tenant_id or SHARED_NAME


def version_label(row: Mapping[str, Any]) -> str:
    """Format a version as `researcher@3`."""
    return version_name(row["name"], row["version"])


def status_text(row: Mapping[str, Any]) -> Text:
    """Format whether a version is active or retired."""
    if row["retired"]:
        return Text("retired", style=WARNING)
    return Text("active", style=SUCCESS) if row.get("promoted") else Text("")


def describe_active(line: Mapping[str, Any] | None) -> str:
    """Describe what a name resolves to, from the row of its line."""
    if line is None:
        return "nothing"
    if line["active_def_id"]:
        return f"{version_name(line['name'], line['active_version'])}  {line['active_def_id']}"
    return "the configuration file" if line["static_def_id"] else "nothing"


def judgements_text(judgements: Mapping[str, Any] | None) -> str:
    """Format the number of judgements and their mean score."""
    if not judgements or not judgements["count"]:
        return ""
    return f"{judgements['mean']:.2f} of {pluralize(judgements['count'], 'judgement')}"


def author_text(row: Mapping[str, Any]) -> str:
    """Format who made a version: a subject or an agent, and its run."""
    who = row.get("created_by") or row.get("created_by_agent_id") or ""
    agent = row.get("created_by_agent_id") or ""
    named = f" ({agent})" if agent and agent != who else ""
    run_id = f" in run {row['created_by_run_id']}" if row.get("created_by_run_id") else ""
    return f"{who}{named}{run_id}"


def print_version(out: Console, row: Mapping[str, Any]) -> None:
    """Print the facts of a version, then its definition as YAML."""
    made = [format_time(row.get("created_at")), *([f"by {who}"] if (who := author_text(row)) else [])]
    facts = {
        "version": version_label(row),
        "kind": row["kind"],
        "tenant": tenant_name(row["tenant_id"]) if row["version"] else "",
        "def_id": row["def_id"],
        "status": status_text(row).plain or ("inactive" if row["version"] else "of a configuration file"),
        "parent": row["parent_def_id"],
        "made": " ".join(part for part in made if part),
        "why": row["description"],
        "expires": format_time(row.get("expires_at")),
        "judged": judgements_text(row.get("judgements")),
        "hash": row["content_sha256"],
    }
    for name, value in facts.items():
        if value:
            out.print(fact_line(name, value))
    content = dict(row["definition"])
    if content.get(PROMPT_BASE) == content.get(PROMPT):
        content.pop(PROMPT_BASE, None)
    out.print()
    out.print(to_yaml(content).rstrip())


def print_history(out: Console, versions: Sequence[Mapping[str, Any]], active: str | None) -> None:
    """Print the versions of a line, newest first."""
    rows = [
        (
            Text(version_label(row), style=NAME),
            status_text({**row, "promoted": row["def_id"] == active}),
            row["def_id"],
            format_time(row["created_at"]),
            author_text(row),
            row["content_sha256"][:HASH_CHARACTERS],
            one_line(row["description"], REASON_CHARACTERS),
        )
        for row in versions
    ]
    print_table(out, ("VERSION", "STATUS", "ID", "MADE", "BY", "HASH", "WHY"), rows)


def print_diff(out: Console, changes: Iterable[Mapping[str, Any]], indent: str = "") -> None:
    """Print the differing fields: what was removed in the colour of errors, what was added in that of success.

    The prompt without skills is left out where it has the same change as the prompt.
    """
    changes = list(changes)
    for change in changes:
        if change["field"] == PROMPT_BASE and {**change, "field": PROMPT} in changes:
            continue
        out.print(Text(f"{indent}{change['field']}", style=NAME))
        for line in _diff_lines(change):
            style = {"-": ERROR, "+": SUCCESS, "@": DIM}.get(line[:1], "")
            out.print(Text(f"{indent}{INDENT}{line}", style=style))


def print_output_change(out: Console, change: Mapping[str, Any] | None) -> None:
    """Print what a change of the output schema means to those who read the records."""
    if change is None:
        return
    style = ERROR if change["kind"] == "breaking" else SUCCESS
    out.print(Text.assemble("the change of the output schema is ", (change["kind"], style)))
    for reason in change["reasons"]:
        out.print(Text(f"{INDENT}{reason}"))


def _diff_lines(change: Mapping[str, Any]) -> Iterator[str]:
    hunks = change.get("diff")
    if hunks:
        yield from hunks.splitlines() if isinstance(hunks, str) else hunks
        return
    for sign, name in (("-", "before"), ("+", "after")):
        if change.get(name) is not None:
            yield from (f"{sign} {line}" for line in _value_lines(change[name]))


def _value_lines(value: Any) -> Sequence[str]:
    if isinstance(value, str):
        return value.splitlines() or [""]
    if isinstance(value, Mapping) or (isinstance(value, list) and any(isinstance(one, Mapping) for one in value)):
        return to_yaml(value).rstrip("\n").split("\n")
    return [orjson.dumps(value).decode()]


def print_lineage(out: Console, lineage: Mapping[str, Any], row: Mapping[str, Any], active: str | None) -> None:
    """Print a lineage as a tree from its root; `row` is the version that was asked for."""
    chain = [*reversed(lineage["ancestors"]), row]
    branches: dict[str, Tree] = {}
    top: Tree | None = None
    for number, one in enumerate([*chain, *lineage["descendants"]]):
        text = _lineage_line(one, is_asked=one["def_id"] == row["def_id"], active=active)
        parent = branches.get(chain[number - 1]["def_id"] if 0 < number < len(chain) else one["parent_def_id"])
        branch = Tree(text) if parent is None else parent.add(text)
        branches[one["def_id"]] = branch
        top = top or branch
    assert top is not None, "the version itself is there"
    out.print(top)
    if lineage["truncated"]:
        out.print(Text(f"There is more than {lineage['depth']} steps away: --depth.", style=DIM))


def _lineage_line(row: Mapping[str, Any], *, is_asked: bool, active: str | None) -> Text:
    return Text.assemble(
        (version_label(row), NAME),
        (f"  {row['def_id']}", DIM),
        ("  active" if row["def_id"] == active else "", SUCCESS),
        ("  retired" if row["retired"] else "", WARNING),
        ("  <- this one" if is_asked else "", DIM),
        f"  {one_line(row.get('description') or '', REASON_CHARACTERS)}".rstrip(),
    )
