"""A run as it was at one of its events, as text.

Before: services/cli/runs/runs.py, with the JSON of the API. After: the terminal.
"""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from loomlog.services.cli.terminal.formatting import money, number, one_line, pluralize
from loomlog.services.cli.terminal.output import DIM, ERROR, NAME, SUCCESS, WARNING, fact_line

INPUT_COLUMNS = 160
"""Characters of a call's input and of a result; `--json` has all of it."""
ROLE_PREFIXES = {"user": "> ", "assistant": "  "}


def print_state(out: Console, state: Mapping[str, Any]) -> None:
    """Print the facts at that event, then the transcript up to it."""
    event = state["event"] or {"type": "nothing", "at": "-"}
    out.print(
        Text.assemble(
            fact_line("run", ""),
            (state["run_id"], NAME),
            (f"  at {state['at']} of {state['last_seq']}  ", DIM),
            f"{event['type']}  {event['at']}",
        )
    )
    for name, value in _facts(state).items():
        if value:
            out.print(fact_line(name, value))
    out.print()
    for number_of, message in enumerate(state["messages"]):
        if number_of == state.get("inherited_messages", 0) and number_of:
            out.print(Text("-- from here on its own", style=DIM))
        for line in _message_lines(message):
            out.print(line)
    for sentence in state["drift"]:
        out.print(Text(f"drift: {sentence}", style=ERROR))
    out.print(Text(_fork_hint(state), style=DIM))


def _open_call(call: Mapping[str, Any]) -> str:
    channels = ", ".join(call.get("channels", ()))
    return f"{call['name']} ({call['id']}{', waits for ' + channels if channels else ''})"


def _facts(state: Mapping[str, Any]) -> Mapping[str, str]:
    if "definition" not in state:
        return {"status": state["status"]}
    definition, usage = state["definition"], state["usage"]
    opened = ", ".join(map(_open_call, state["open_calls"]))
    forked = state["forked_from"]
    return {
        "status": f"{state['status']}, {state['phase'].replace('_', ' ')}"
        + (f", turn {state['turn']}" if state["phase"].startswith("awaiting") else "")
        + (f" ({state['reason']})" if state["reason"] else ""),
        "agent": f"{definition['name']} ({definition['provider']}/{definition['model']})  {definition['sha256'][:12]}",
        "spent": f"{pluralize(state['turns'], 'turn')}, {number(usage['input_tokens'])} tokens in, "
        f"{number(usage['output_tokens'])} out, {money(state['cost_micros'], state['currency'] or '')}",
        "open": opened,
        "waiting": ", ".join(one_line(_input_text(entry), INPUT_COLUMNS) for entry in state["waiting_inputs"]),
        "quarantine": state["quarantined"] or "",
        "forked": "" if forked is None else f"from {forked['run_id']} at {forked['seq']}",
        "state": f"sha256 {state['state_sha256']}",
    }


def _input_text(message: str | Mapping[str, Any]) -> str:
    return message if isinstance(message, str) else _block_text({"text": "", **message})


def _message_lines(message: Mapping[str, Any]) -> list[Text]:
    lines: list[Text] = []
    for block in message["content"]:
        match block["type"]:
            case "text":
                mark = ROLE_PREFIXES[message["role"]]
                style = "" if message["role"] == "assistant" else "bold"
                lines += [Text(f"{mark}{line}", style=style) for line in _block_text(block).splitlines() or [""]]
            case "tool_use":
                called = one_line(block["input"], INPUT_COLUMNS)
                lines.append(Text.assemble("  -> ", (block["name"], NAME), (f"  {called}", DIM)))
            case "tool_result":
                style = ERROR if block["is_error"] else SUCCESS
                text = one_line(_block_text(block), INPUT_COLUMNS)
                lines.append(Text.assemble(("  <- ", style), block["name"], (f"  {text}", DIM)))
            case other:
                lines.append(Text(f"  ({other} {block.get('media_type', '')})", style=WARNING))
    return lines


def _block_text(block: Mapping[str, Any]) -> str:
    blob = block.get("blob")
    return str(block["text"]) if blob is None else f"({number(blob['size_bytes'])} bytes in the blob store)"


def _fork_hint(state: Mapping[str, Any]) -> str:
    if not state["forkable"]:
        return f"It cannot be forked here: {state['not_forkable']}."
    more = " --prompt ..." if state["fork_needs_prompt"] else ""
    return f"`loomlog runs fork {state['run_id']} --at {state['at']}{more}` goes another way from here."
