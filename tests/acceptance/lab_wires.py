"""The model of somebody else's on two more wires, as strict as the vendors are.

On Gemini's wire a call whose signature does not come back is 400, and so is a word its schemas do not know. On Ollama's
the first call is written into the text, as small models do, and the server says which window the model has.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

SIGNATURE = "c2lnbmVkIGJ5IHRoZSBsYWI="
WINDOW = 16_384
UNKNOWN_TO_GEMINI = ("additionalProperties", "oneOf", "$ref", "$defs", "const", "default", "exclusiveMinimum")

Step = Callable[[list[str]], tuple[str, dict[str, str]] | str]
"""What the lab does after these answers: a call, or a last sentence."""
Answer = tuple[int, str, bytes]
"""Status, media type, body."""


def posted(path: str, body: Mapping[str, Any], step: Step) -> Answer | None:
    """The answer on one of these wires; None for a path of another."""
    if path == "/v1beta/models/lab-1:streamGenerateContent?alt=sse":
        return _gemini(body, step)
    if path == "/api/chat":
        return _ollama(body, step)
    return None


def got(path: str) -> Answer:
    """What is asked beside the turns."""
    documents: Mapping[str, Any] = {
        "/api/ps": {"models": [{"name": "lab-1:latest", "context_length": WINDOW}]},
        "/api/tags": {"models": [{"name": "lab-1:latest"}]},
        "/v1beta/models?pageSize=1": {"models": [{"name": "models/lab-1"}]},
        "/v1beta/models?pageSize=1000": {"models": [{"name": "models/lab-1"}]},
        "/v1/models": {"data": [{"id": "lab-1"}]},
    }
    if path not in documents:
        return _refused(404, f"no {path}")
    return 200, "application/json", json.dumps(documents[path]).encode()


def _gemini(body: Mapping[str, Any], step: Step) -> Answer:
    declared = json.dumps(body["tools"][0]["functionDeclarations"])
    if unknown := [word for word in UNKNOWN_TO_GEMINI if f'"{word}"' in declared]:
        return _refused(400, f"Unknown name {unknown[0]}")
    parts = [part for content in body["contents"] for part in content["parts"]]
    if any("functionCall" in part and part.get("thoughtSignature") != SIGNATURE for part in parts):
        return _refused(400, "Function call is missing a thought_signature")
    answers = [part["functionResponse"]["response"]["output"] for part in parts if "functionResponse" in part]
    following = step(answers)
    if isinstance(following, str):
        said: list[Any] = [{"text": following}]
    else:
        name, arguments = following
        thought = {"text": f"Now {name}.", "thought": True}
        said = [thought, {"functionCall": {"name": name, "args": arguments}, "thoughtSignature": SIGNATURE}]
    usage = {"promptTokenCount": 1000, "candidatesTokenCount": 6, "thoughtsTokenCount": 4}
    chunks = [{"candidates": [{"content": {"role": "model", "parts": [part]}}]} for part in said]
    chunks.append({"candidates": [{"finishReason": "STOP"}], "usageMetadata": usage, "modelVersion": "lab-1"})
    return 200, "text/event-stream", "".join(f"data: {json.dumps(chunk)}\r\n\r\n" for chunk in chunks).encode()


def _ollama(body: Mapping[str, Any], step: Step) -> Answer:
    answers = [message["content"] for message in body["messages"] if message["role"] == "tool"]
    return 200, "application/x-ndjson", b"".join(_lines(answers, step(answers)))


def _lines(answers: list[str], following: tuple[str, dict[str, str]] | str) -> Iterator[bytes]:
    if isinstance(following, str):
        yield _line({"content": following})
    else:
        name, arguments = following
        yield _line({"thinking": f"Now {name}."})
        call = {"function": {"name": name, "arguments": arguments}}
        if answers:
            yield _line({"tool_calls": [call]})
        else:
            for character in f"<tool_call>\n{json.dumps({'type': 'function', **call})}\n</tool_call>":
                yield _line({"content": character})
    yield _line({"content": ""}, done=True, done_reason="stop", prompt_eval_count=1000, eval_count=10)


def _line(message: dict[str, Any], **more: Any) -> bytes:
    return (
        json.dumps({"model": "lab-1", "message": {"role": "assistant"} | message, "done": False} | more).encode()
        + b"\n"
    )


def _refused(status: int, message: str) -> Answer:
    return status, "application/json", json.dumps({"error": {"code": status, "message": message}}).encode()
