"""A run as it was at one of its events, in words.

Before: runs.py, with the JSON of the API. After: the terminal.
"""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from loomlog.services.cli.terminal.formatting import counted, money, number, one_line
from loomlog.services.cli.terminal.output import BAD, DIM, GOOD, NAME, ODD, fact

INPUT_COLUMNS = 160
"""Characters of a call's input and of a result; `--json` has all of it."""
MARKS = {"user": "> ", "assistant": "  "}


def print_moment(out: Console, found: Mapping[str, Any]) -> None:
    """The facts of that moment, then everything that had been said by then."""
    event = found["event"] or {"type": "nothing", "at": "-"}
    out.print(
        Text.assemble(
            fact("run", ""),
            (found["run_id"], NAME),
            (f"  at {found['at']} of {found['last_seq']}  ", DIM),
            f"{event['type']}  {event['at']}",
        )
    )
    for name, value in _facts(found).items():
        if value:
            out.print(fact(name, value))
    out.print()
    for number_of, message in enumerate(found["messages"]):
        if number_of == found.get("inherited_messages", 0) and number_of:
            out.print(Text("-- from here on its own", style=DIM))
        for line in _lines(message):
            out.print(line)
    for sentence in found["drift"]:
        out.print(Text(f"drift: {sentence}", style=BAD))
    out.print(Text(_hint(found), style=DIM))


def _facts(found: Mapping[str, Any]) -> Mapping[str, str]:
    if "definition" not in found:
        return {"status": found["status"]}
    definition, usage = found["definition"], found["usage"]
    opened = ", ".join(f"{call['name']} ({call['id']})" for call in found["open_calls"])
    forked = found["forked_from"]
    return {
        "status": f"{found['status']}, {found['phase'].replace('_', ' ')}"
        + (f", turn {found['turn']}" if found["phase"].startswith("awaiting") else "")
        + (f" ({found['reason']})" if found["reason"] else ""),
        "agent": f"{definition['name']} ({definition['provider']}/{definition['model']})  {definition['sha256'][:12]}",
        "spent": f"{counted(found['turns'], 'turn')}, {number(usage['input_tokens'])} tokens in, "
        f"{number(usage['output_tokens'])} out, {money(found['cost_micros'], found['currency'] or '')}",
        "open": opened,
        "waiting": ", ".join(one_line(_waiting(said), INPUT_COLUMNS) for said in found["waiting_inputs"]),
        "quarantine": found["quarantined"] or "",
        "forked": "" if forked is None else f"from {forked['run_id']} at {forked['seq']}",
        "state": f"sha256 {found['state_sha256']}",
    }


def _waiting(said: str | Mapping[str, Any]) -> str:
    return said if isinstance(said, str) else _text({"text": "", **said})


def _lines(message: Mapping[str, Any]) -> list[Text]:
    lines: list[Text] = []
    for block in message["content"]:
        match block["type"]:
            case "text":
                mark = MARKS[message["role"]]
                style = "" if message["role"] == "assistant" else "bold"
                lines += [Text(f"{mark}{line}", style=style) for line in _text(block).splitlines() or [""]]
            case "tool_use":
                called = one_line(block["input"], INPUT_COLUMNS)
                lines.append(Text.assemble("  -> ", (block["name"], NAME), (f"  {called}", DIM)))
            case "tool_result":
                style = BAD if block["is_error"] else GOOD
                said = one_line(_text(block), INPUT_COLUMNS)
                lines.append(Text.assemble(("  <- ", style), block["name"], (f"  {said}", DIM)))
            case other:
                lines.append(Text(f"  ({other} {block.get('media_type', '')})", style=ODD))
    return lines


def _text(block: Mapping[str, Any]) -> str:
    blob = block.get("blob")
    return str(block["text"]) if blob is None else f"({number(blob['size_bytes'])} bytes in the blob store)"


def _hint(found: Mapping[str, Any]) -> str:
    if not found["forkable"]:
        return f"It cannot be forked here: {found['not_forkable']}."
    more = " --prompt ..." if found["fork_needs_prompt"] else ""
    return f"`loomlog runs fork {found['run_id']} --at {found['at']}{more}` goes another way from here."
