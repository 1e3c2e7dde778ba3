"""An MCP server of ours over standard input and output; its first argument says how it behaves."""

import json
import os
import sys

ECHO = {"name": "echo", "description": "Says it again.", "inputSchema": {"type": "object"}}


def send(frame: object) -> None:
    sys.stdout.write(json.dumps(frame) + "\n")
    sys.stdout.flush()


def answer(request: dict, result: object) -> None:
    send({"jsonrpc": "2.0", "id": request["id"], "result": result})


def main(behaviour: str) -> None:
    if behaviour == "greets":
        print("listening", flush=True)
    if behaviour == "dies":
        print("no licence", file=sys.stderr, flush=True)
        sys.exit(3)
    for line in sys.stdin:
        request = json.loads(line)
        match request.get("method"):
            case "initialize":
                answer(request, {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {}})
            case "tools/list":
                answer(request, {"tools": [ECHO]})
            case "tools/call":
                call(behaviour, request)


def call(behaviour: str, request: dict) -> None:
    arguments = request["params"]["arguments"]
    if behaviour == "other_id":
        send({"jsonrpc": "2.0", "id": request["id"] + 1_000, "result": {"content": []}})
    elif behaviour == "ends":
        sys.exit(0)
    elif behaviour == "silent":
        return
    elif behaviour == "floods":
        while True:
            sys.stdout.write("x" * 65_536)
            sys.stdout.flush()
    elif behaviour == "changes":
        send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        answer(request, {"content": [{"type": "text", "text": "changed"}]})
    elif behaviour == "notes":
        note(request, str(arguments.get("text")))
    elif behaviour == "environment":
        answer(request, {"content": [{"type": "text", "text": json.dumps(dict(os.environ))}]})
    else:
        answer(request, {"content": [{"type": "text", "text": str(arguments.get("text"))}]})


def note(request: dict, text: str) -> None:
    """Write the text to the file of the second argument, which is the effect of the call; `hang` is not answered."""
    with open(sys.argv[2], "a") as file:
        file.write(text + "\n")
    if text != "hang":
        answer(request, {"content": [{"type": "text", "text": f"noted {text}"}]})


if __name__ == "__main__":
    main(sys.argv[1])
