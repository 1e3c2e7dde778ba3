"""Questions of runs as requests to the user of an MCP client, and what the answers mean."""

import json

import pytest

from loomlog.services.api.mcp.questions import Question, elicitation, response_of

FORM = {"type": "object", "properties": {"colour": {"type": "string"}, "size": {"type": "integer"}}}


def params(question: Question) -> dict:
    return elicitation(question)["params"]


def test_a_question_of_an_agent_is_a_form_with_one_field():
    asked = params(Question("i", "Shall I?", ("yes", "no"), "because"))
    assert asked["message"] == "Shall I?\n\nbecause"
    assert asked["requestedSchema"]["properties"]["answer"]["enum"] == ["yes", "no"]


def test_a_form_that_a_server_asks_for_is_passed_on():
    context = json.dumps({"server": "crm", "mode": "form", "schema": FORM})
    assert params(Question("i", "Which?", (), context, "elicitation"))["requestedSchema"] == FORM
    assert params(Question("i", "Which?", (), context, "question"))["requestedSchema"] != FORM
    assert "answer" in params(Question("i", "Which?", (), "no json", "elicitation"))["requestedSchema"]["properties"]


@pytest.mark.parametrize(
    ("content", "answer"), [({"answer": "yes"}, "yes"), ({"colour": "red", "size": 7}, '{"colour":"red","size":7}')]
)
def test_an_answer_is_text_or_the_form_as_json(content, answer):
    response = response_of({"action": "accept", "content": content})
    assert response is not None
    assert response.answer == answer


@pytest.mark.parametrize("content", [{}, {"answer": 7}, None])
def test_an_answer_without_content_is_refused(content):
    with pytest.raises(ValueError, match=r"content\.answer"):
        response_of({"action": "accept", "content": content})
