"""Questions of runs as requests to the client's user (elicitation), and the answers to them. Pure.

    id of a question             in a task, or in an answer that asks for input
    question:<run>:<question>    id of the request itself in a session: the answer names all that is needed, whichever
                                 process gets it

Before: tasks.py, operations.py, endpoint.py. After: services/application/runs/interrupts.py.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from loomlog.services.application.runs.interrupts import ANSWER, DECLINED, InterruptResponse

PREFIX = "question"
METHOD = "elicitation/create"
ELICITATION = "elicitation"
"""Kind of a question that the tool of a call asks (services/core/run/interrupts/questions.py)."""
FIELD = "answer"


class Question(NamedTuple):
    """An open question of a run."""

    id: str
    text: str
    options: tuple[str, ...] = ()
    context: str = ""
    kind: str = ""


def elicitation(question: Question) -> dict[str, Any]:
    """Return the request that puts a question to the client's user."""
    if (form := _form_of(question)) is not None:
        return {"method": METHOD, "params": {"mode": "form", "message": question.text, "requestedSchema": form}}
    answer: dict[str, Any] = {"type": "string", "title": "Answer"}
    if question.options:
        answer["enum"] = list(question.options)
    text = f"{question.text}\n\n{question.context}" if question.context else question.text
    schema = {"type": "object", "properties": {FIELD: answer}, "required": [FIELD]}
    return {"method": METHOD, "params": {"mode": "form", "message": text, "requestedSchema": schema}}


def input_requests(questions: Mapping[str, Question] | tuple[Question, ...]) -> dict[str, Any]:
    """Return the requests for open questions, by their ids."""
    listed = questions.values() if isinstance(questions, Mapping) else questions
    return {question.id: elicitation(question) for question in listed}


def response_of(answer: Any) -> InterruptResponse | None:
    """Return what a client's answer means for the run; None: its user has not decided.

    Raises ValueError with a sentence.
    """
    if not isinstance(answer, Mapping):
        raise ValueError("expected an object with action and content")
    match answer.get("action"):
        case "accept":
            content = answer.get("content")
            text = _answer_of(content) if isinstance(content, Mapping) else None
            if not isinstance(text, str) or not text:
                raise ValueError(f"content.{FIELD}: expected text")
            return InterruptResponse(disposition=ANSWER, answer=text)
        case "decline":
            return InterruptResponse(disposition=DECLINED)
        case "cancel":
            return None
    raise ValueError("action: expected accept, decline or cancel")


def _form_of(question: Question) -> dict[str, Any] | None:
    """Return the form that an MCP server has asked an agent's user for; None for any other question."""
    if question.kind != ELICITATION:
        return None
    try:
        form = orjson.loads(question.context).get("schema")
    except orjson.JSONDecodeError:
        return None
    return form if isinstance(form, dict) else None


def _answer_of(content: Mapping[str, Any]) -> Any:
    """Return the answer to a question as text: that of the one field, or the form as JSON."""
    return content[FIELD] if set(content) == {FIELD} else orjson.dumps(content).decode() if content else None


def request_id(run_id: str, question_id: str) -> str:
    """Return the id of the request that puts a question to the user of a session."""
    return f"{PREFIX}:{run_id}:{question_id}"


def parse_request_id(text: Any) -> tuple[str, str] | None:
    """Return run and question of an id; None when it is no such id."""
    parts = text.split(":") if isinstance(text, str) else []
    return (parts[1], parts[2]) if len(parts) == 3 and parts[0] == PREFIX else None
