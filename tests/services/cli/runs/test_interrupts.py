import json
from datetime import UTC, datetime
from functools import partial

import pytest

from loomlog.services.cli.runs import interrupts
from tests.services.cli import fake_api
from tests.services.cli.fake_api import POSITION, FakeApi, Scripted, row

ASKED = {
    "interrupt_id": "intr_1",
    "run_id": "r_1",
    "agent": "assistant",
    "kind": "question",
    "status": "pending",
    "question": "Shall I\ndelete it?",
    "options": ["yes", "no"],
    "context": "It is not merged.",
    "priority": "high",
    "created_at": "2026-01-31T12:00:00.000Z",
    "expires_at": "2026-01-31T13:00:00.000Z",
    "resolved_at": None,
    "answer": None,
    "resolved_by": None,
}
PATH = "/v1/runs/r_1/interrupts/intr_1/resolve"


@pytest.fixture
def fake(fake: FakeApi) -> FakeApi:
    fake.rows["r_1"] = row("r_1")
    fake.pages["/v1/interrupts"] = lambda request: {"interrupts": [ASKED], "total": 3, "next": None}
    done = {"interrupt_id": "intr_1", "status": "resolved", "resolved_at": "2026-01-31T12:00:01.000Z"}
    fake.answers["POST", PATH] = Scripted(body=done, headers={"X-Loomlog-Position": POSITION})
    return fake


invoke = partial(fake_api.invoke, "inbox")


def words(changes=None, now="2026-01-31T12:08:00+00:00") -> list[str]:
    return [line.plain for line in interrupts.question_lines(ASKED | (changes or {}), datetime.fromisoformat(now))]


def test_ids_are_one_segment_of_a_path(fake):
    invoke("answer", "../x", "intr_1", "yes")
    assert fake.asked[-1].url.raw_path == b"/v1/agents/..%2Fx"
    invoke("answer", "r_1", "../x", "yes")
    assert fake.asked[-1].url.raw_path == b"/v1/runs/r_1/interrupts/..%2Fx/resolve"


def test_a_question_says_whose_it_is_what_it_asks_and_how_long_it_waits():
    assert words() == [
        "r_1  assistant  intr_1  high  expires in 52 min 00 s",
        "  Shall I delete it?   [yes | no]",
        "  It is not merged.",
    ]


def test_one_in_free_text_has_no_options_and_one_that_has_ended_says_how():
    assert words({"options": [], "context": None})[1] == "  Shall I delete it?"
    ended = words({"status": "resolved", "answer": "yes", "resolved_by": "Ada", "context": None})
    assert ended[0].endswith("resolved")
    assert ended[-1] == "  > yes (Ada)"
    assert words(now=datetime(2027, 1, 1, tzinfo=UTC).isoformat())[0].endswith("expires now")


def test_the_inbox_shows_what_waits_and_how_much_more_there_is(fake):
    result = invoke("--user", "ada", "--limit", "1")
    assert "Shall I delete it?" in result.stdout
    assert "2 more; --limit shows them." in result.stdout
    asked = fake.asked[0].url.params
    assert (asked["user_id"], asked["status"], asked["limit"]) == ("ada", "pending", "1")


def test_an_empty_inbox_says_so(fake):
    fake.pages["/v1/interrupts"] = lambda request: {"interrupts": [], "total": 0, "next": None}
    assert invoke().stdout == "Nothing waits for an answer.\n"


def test_programs_get_the_answer_of_the_api(fake):
    assert json.loads(invoke("--json").stdout) == {"interrupts": [ASKED], "total": 3, "next": None}
    assert json.loads(invoke("answer", "r_1", "intr_1", "yes", "--json").stdout)["position"] == POSITION


@pytest.mark.parametrize(
    ("arguments", "body", "said"),
    [
        (("answer", "r_1", "intr_1", "yes"), {"disposition": "answer", "answer": "yes"}, "Answered"),
        (
            ("answer", "r_1", "intr_1", "yes", "--by", "Ada"),
            {"disposition": "answer", "answer": "yes", "resolved_by": "Ada"},
            "Answered",
        ),
        (("decline", "r_1", "intr_1"), {"disposition": "declined"}, "Declined"),
    ],
)
def test_an_answer_is_sent_and_its_position_shown(fake, arguments, body, said):
    result = invoke(*arguments)
    assert result.stdout == f"{said} intr_1  event {POSITION}\n"
    assert fake.bodies(PATH) == [body]
