"""Questions of servers to people (elicitation): what is asked, and what an answer means. Pure.

    form    a flat schema: the answer is a JSON object, or a single value where one field is asked for
    url     an address to visit: the person says that it is done

A question says which server asks, because people must not take it for one of their agent. In the era without sessions
a server asks for several things at once: people are asked one after the other, and the call is then made again.

Before: session.py, services/families/mcp/tools.py. After: services/runtime/run/interrupt_responses.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import orjson

from loomlog.connectors.errors import Permanent
from loomlog.connectors.json_schema import SchemaRefused, compile_schema
from loomlog.connectors.protocols import CallQuestion, GivenAnswer

METHOD = "elicitation/create"
FORM, URL = "form", "url"
MESSAGE_CHARACTERS_MAX = 2_000
URL_CHARACTERS_MAX = 2_000
FIELDS_MAX = 50
"""Fields of a form: more is a document, not a question."""
SCHEMA_BYTES_MAX = 24_000
"""Bytes of a form's schema: with the rest it fits the context of a question."""
STATE_BYTES_MAX = 64 * 1024
"""Bytes that a server has kept with a question: they are in the log."""
QUESTIONS_MAX = 20
"""Questions of one call; a server that asks for ever is answered with an error."""
DONE = "done"
"""Answer to a question of the mode url."""
RESOLVED, DECLINED = "resolved", "declined"
"""Statuses of an answer (services/core/run/interrupts/questions.py); with any other one there is no decision."""
_SCALARS = ("string", "number", "integer", "boolean")


def build_question(server: str, params: Mapping[str, Any], *, timeout_ms: int, state: str, held: bool) -> CallQuestion:
    """Return the question of a request. Raises Permanent(invalid) for one that people cannot be asked."""
    message = _clean(params.get("message"))[:MESSAGE_CHARACTERS_MAX].strip() or "it asks for input"
    context: dict[str, Any] = {"server": server}
    options: tuple[str, ...] = ()
    if params.get("mode", FORM) == URL:
        context |= {"mode": URL, "url": _require_url(params.get("url"))}
        options = (DONE,)
    else:
        context |= {"mode": FORM, "schema": _require_form(params.get("requestedSchema"))}
    return CallQuestion(
        question=f"The MCP server {server} asks: {message}",
        context=orjson.dumps(context).decode(),
        options=options,
        call_state=state,
        timeout_ms=timeout_ms,
        is_held=held,
    )


def read_answer(context: str, text: str) -> tuple[str, str]:
    """Return an answer as the JSON that the server gets, and what is wrong with it, empty if nothing is.

    `context` is that of the question. A text that is no JSON object is the value of the only field.
    """
    asked = _parse(context)
    if asked.get("mode") != FORM:
        return text, ""
    schema = asked.get("schema")
    fields = schema.get("properties", {}) if isinstance(schema, dict) else {}
    value = _parse_object(text)
    if value is None and len(fields) == 1:
        [(name, field)] = fields.items()
        value = {name: _convert(text, field)}
    if value is None:
        return text, f"expected a JSON object with {', '.join(list(fields)[:20]) or 'no fields'}"
    try:
        problems = compile_schema(schema).find_problems(value)
    except SchemaRefused as refused:
        return text, str(refused)
    return orjson.dumps(value).decode(), "; ".join(map(str, problems[:5]))


def to_response(answer: GivenAnswer) -> dict[str, Any]:
    """Return what the server is answered."""
    if answer.status == RESOLVED:
        content = _parse_object(answer.answer)
        return {"action": "accept", **({"content": content} if content is not None else {})}
    return {"action": "decline" if answer.status == DECLINED else "cancel"}


# --- the era without sessions ----------------------------------------------------------------------------------------


def ask_for_input(server: str, result: Mapping[str, Any], answers: Sequence[GivenAnswer], ask_ms: int) -> CallQuestion:
    """Return the first question of a result that needs input. Raises Permanent(invalid)."""
    requests = result.get("inputRequests")
    if not isinstance(requests, dict) or not requests:
        raise Permanent(f"{server} needs input and does not say which", kind="invalid")
    for request in requests.values():
        if not isinstance(request, dict) or request.get("method") != METHOD:
            named = request.get("method") if isinstance(request, dict) else None
            raise Permanent(f"{server} asks for {str(named)[:80]}, which this client does not support", kind="invalid")
    if len(answers) + len(requests) > QUESTIONS_MAX:
        raise Permanent(f"{server} asks more than {QUESTIONS_MAX} questions in one call", kind="invalid")
    waiting = {str(key): dict(request.get("params") or {}) for key, request in requests.items()}
    return _ask_next(server, len(answers), result.get("requestState"), waiting, ask_ms)


def next_question(server: str, answers: Sequence[GivenAnswer], ask_ms: int) -> CallQuestion | None:
    """Return what the server has asked besides, in the same result; None: all of it is answered."""
    state = _parse(answers[-1].call_state)
    waiting = state.get("waiting")
    if not waiting:
        return None
    return _ask_next(server, state["round"], state.get("state"), waiting, ask_ms, refused="refused" in state)


def input_params(answers: Sequence[GivenAnswer]) -> dict[str, Any]:
    """Return the parameters with which a call is made again: the answers to the last result, and the server's state."""
    last = _parse(answers[-1].call_state)
    if "refused" in last:
        return {}
    states = [(_parse(one.call_state), one) for one in answers]
    responses = {state["key"]: to_response(one) for state, one in states if state.get("round") == last["round"]}
    state = {} if last.get("state") is None else {"requestState": last["state"]}
    return {"inputResponses": responses, **state}


def _ask_next(
    server: str, number: int, state: Any, waiting: dict[str, Any], ask_ms: int, *, refused: bool = False
) -> CallQuestion:
    key, *others = waiting
    kept: dict[str, Any] = {
        "round": number,
        "state": state,
        "key": key,
        "waiting": {one: waiting[one] for one in others},
    }
    if refused:
        kept["refused"] = True
    text = orjson.dumps(kept).decode()
    if len(text.encode()) > STATE_BYTES_MAX:
        raise Permanent(f"{server} keeps more than {STATE_BYTES_MAX} bytes with its question", kind="invalid")
    return build_question(server, waiting[key], timeout_ms=ask_ms, state=text, held=False)


# --- addresses to visit before a call (2025-11-25) -------------------------------------------------------------------


def ask_to_visit(
    server: str, data: Mapping[str, Any], answers: Sequence[GivenAnswer], ask_ms: int
) -> CallQuestion | None:
    """Return the first address that a refused call needs a visit of; None: the error names none, or too many."""
    listed = data.get("elicitations")
    asked = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    if not asked or len(answers) + len(asked) > QUESTIONS_MAX:
        return None
    waiting = {str(number): {**one, "mode": URL} for number, one in enumerate(asked)}
    return _ask_next(server, len(answers), None, waiting, ask_ms, refused=True)


def was_not_visited(answers: Sequence[GivenAnswer]) -> bool:
    """Return whether a person did not visit an address without which the call would be refused again."""
    return bool(answers) and "refused" in _parse(answers[-1].call_state) and answers[-1].status != RESOLVED


# --- parts -----------------------------------------------------------------------------------------------------------


def _require_form(schema: object) -> dict[str, Any]:
    if not isinstance(schema, dict) or schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        raise Permanent("the form asked for is no object with properties", kind="invalid")
    fields = schema["properties"]
    if len(fields) > FIELDS_MAX or not all(isinstance(one, dict) and _is_flat(one) for one in fields.values()):
        raise Permanent(f"the form asked for is not flat, or has more than {FIELDS_MAX} fields", kind="invalid")
    kept = {name: schema[name] for name in ("type", "properties", "required") if name in schema}
    try:
        if len(orjson.dumps(kept)) > SCHEMA_BYTES_MAX:
            raise Permanent(f"the form asked for has more than {SCHEMA_BYTES_MAX} bytes", kind="invalid")
        compile_schema(kept)
    except SchemaRefused as refused:
        raise Permanent(f"the form asked for: {refused}", kind="invalid") from refused
    return kept


def _is_flat(field: Mapping[str, Any]) -> bool:
    if field.get("type") == "array":
        items = field.get("items")
        return isinstance(items, dict) and ("enum" in items or "anyOf" in items) and "properties" not in items
    return field.get("type") in _SCALARS and "properties" not in field


def _require_url(url: object) -> str:
    try:
        parts = urlsplit(str(url))
        is_usable = (
            parts.scheme in ("https", "http") and bool(parts.hostname) and not (parts.username or parts.password)
        )
    except ValueError:
        is_usable = False
    if not isinstance(url, str) or not is_usable or not url.isascii() or not url.isprintable() or " " in url:
        raise Permanent("the address asked for is no http(s) address", kind="invalid")
    if len(url) > URL_CHARACTERS_MAX:
        raise Permanent(f"the address asked for has more than {URL_CHARACTERS_MAX} characters", kind="invalid")
    return url


def _convert(text: str, field: object) -> Any:
    """Return a text as the value that a field wants, as far as it is one."""
    kind = field.get("type") if isinstance(field, dict) else None
    if kind in ("number", "integer", "boolean"):
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            return text
    return [text] if kind == "array" else text


def _parse_object(text: str) -> dict[str, Any] | None:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _parse(text: str) -> dict[str, Any]:
    return _parse_object(text) or {}


def _clean(text: object) -> str:
    return "".join(c if c == "\n" or c.isprintable() else " " for c in str(text or ""))
