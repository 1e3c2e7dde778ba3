"""Script that uses memory in a way that can be checked afterwards: `mock-memory`.

Each turn has four calls at once, all in the scope of the user:

    incr            MEMORY_COUNTER, which all runs of the user share
    set             `own/<key>`: {"run": <key>, "turn": <turn>}
    get             the same key
    append_dedupe   `turns/<key>`: the number of the turn

`<key>` is derived from the user's text, so runs with different texts have keys of their own. After "memory 5 ..." there
are five such turns, otherwise MEMORY_TURNS; then a text that repeats the last results of incr and get.

Before: model.py. After: script.py.
"""

import hashlib

import orjson

from loomlog.connectors.models.mock.script import (
    ScriptedCall,
    ScriptTurn,
    last_user_text,
    results_since_user,
    strip_fence,
)
from loomlog.connectors.protocols import ModelRequest

MEMORY_TOOL = "Memory"
MEMORY_COUNTER = "count"
MEMORY_TURNS = 2
MEMORY_TURNS_MAX = 100
CALLS_OF_TURN = 4
SHOWN_CHARACTERS = 300


def turn(request: ModelRequest) -> ScriptTurn:
    prompt = last_user_text(request.messages)
    results = [strip_fence(result.text) for result in results_since_user(request.messages)]
    number = len(results) // CALLS_OF_TURN + 1
    if number > turns_of(prompt):
        return ScriptTurn(text=f"{number - 1} turns of memory: {' '.join(results[-4:-1:2])[:SHOWN_CHARACTERS]}")
    key = own_key(prompt)
    return ScriptTurn(
        text=f"turn {number}",
        calls=(
            _call("incr", MEMORY_COUNTER, delta=1),
            _call("set", f"own/{key}", value={"run": key, "turn": number}),
            _call("get", f"own/{key}"),
            _call("append_dedupe", f"turns/{key}", value=number),
        ),
    )


def own_key(prompt: str) -> str:
    """Return what names the keys of a run with this text: 16 hex digits."""
    return hashlib.sha256(prompt.encode(errors="replace")).hexdigest()[:16]


def turns_of(prompt: str) -> int:
    """Return how many turns with calls a run with this text has."""
    match prompt.split():
        case ["memory", times, *_] if times.isascii() and times.isdigit():
            return min(int(times), MEMORY_TURNS_MAX)
    return MEMORY_TURNS


def _call(op: str, key: str, **fields: object) -> ScriptedCall:
    arguments = {"op": op, "scope": "user", "key": key, **fields}
    return ScriptedCall(name=MEMORY_TOOL, input=orjson.dumps(arguments).decode())
