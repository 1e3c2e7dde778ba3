"""An MCP server of ours over standard input and output; its first argument says how it behaves."""

import json
import os
import sys

WAITING: dict = {}
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
            case None:
                answered(request)
            case "initialize" if behaviour == "needs":
                send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "no sessions"}})
            case "server/discover":
                answer(request, {"supportedVersions": ["2026-07-28"]})
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
    elif behaviour == "notifies":
        line = json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}) + "\n"
        while True:
            sys.stdout.write(line * 1_000)
    elif behaviour == "asks":
        ask(request, str(arguments.get("text")))
    elif behaviour == "needs":
        need(request, str(arguments.get("text")))
    elif behaviour == "changes":
        send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        answer(request, {"content": [{"type": "text", "text": "changed"}]})
    elif behaviour == "notes":
        note(request, str(arguments.get("text")))
    elif behaviour == "environment":
        answer(request, {"content": [{"type": "text", "text": json.dumps(dict(os.environ))}]})
    else:
        answer(request, {"content": [{"type": "text", "text": str(arguments.get("text"))}]})


FORM = {"type": "object", "properties": {"colour": {"type": "string", "enum": ["red", "blue"]}}, "required": ["colour"]}


def ask(request: dict, text: str) -> None:
    """Ask the user, and answer with what came; `silent`: with nothing, `nested`: for a form that is not flat. With a
    third argument the text is written to that file before.
    """
    if len(sys.argv) > 2:
        with open(sys.argv[2], "a") as file:
            file.write(text + "\n")
    if text == "silent":
        return
    form = {"type": "object", "properties": {"a": {"type": "object"}}} if text == "nested" else FORM
    params = {"message": "Which colour?", "requestedSchema": form}
    question = f"ask-{request['id']}"
    send({"jsonrpc": "2.0", "id": question, "method": "elicitation/create", "params": params})
    WAITING[question] = request


def need(request: dict, text: str) -> None:
    """Ask for input in place of a result; with the answer return it, and write the text to the file."""
    given = request["params"].get("inputResponses")
    if given is None:
        asked = {"method": "elicitation/create", "params": {"message": "Which colour?", "requestedSchema": FORM}}
        result = {"resultType": "input_required", "inputRequests": {"colour": asked}, "requestState": "kept"}
        answer(request, result)
        return
    with open(sys.argv[2], "a") as file:
        file.write(text + "\n")
    seen = {"state": request["params"]["requestState"], **given}
    answer(request, {"content": [{"type": "text", "text": json.dumps(seen)}]})


def answered(message: dict) -> None:
    """Answer the call whose question has an answer."""
    request = WAITING.pop(message["id"], None)
    if request is not None:
        answer(request, {"content": [{"type": "text", "text": json.dumps(message["result"])}]})


def note(request: dict, text: str) -> None:
    """Write the text to the file of the second argument, which is the effect of the call; `hang` is not answered."""
    with open(sys.argv[2], "a") as file:
        file.write(text + "\n")
    if text != "hang":
        answer(request, {"content": [{"type": "text", "text": f"noted {text}"}]})


if __name__ == "__main__":
    main(sys.argv[1])
