"""`loomlog evals judge`: which runs, what the judge is asked, what it may answer, and when it stops."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from loomlog.services.cli.main import app
from loomlog.services.cli.runs import evals, judge
from loomlog.services.cli.runs.judge import Verdict, parse_verdict
from tests.services.cli.fake_api import FakeApi, Scripted, frame, let_commands_use, refused, row

RUBRIC = "Is it short and right?"
TARGETS = ("r_" + "1" * 26, "r_" + "2" * 26, "r_" + "3" * 26)
GOOD = json.dumps({"score": 0.75, "dimensions": {"style": 0.5}, "rationale": "fine"})


def stream(run_id: str, text: str, session_id: str = "s_1") -> Scripted:
    """A whole run that says a text."""
    ids = {"agent_id": "a_1", "run_id": run_id, "session_id": session_id}
    pieces = [frame("agent", ids), frame("text", {"text": text}, 1), frame("done", {"stop_reason": "end_turn"}, 2)]
    return Scripted(pieces=pieces, headers={"x-loomlog-position": "loom.run.events/2:17"})


class Installation(FakeApi):
    """Has the TARGETS, and a judge whose replies are given."""

    def __init__(self, *replies: str, cost_micros: int = 400_000, currency: str | None = "USD") -> None:
        super().__init__()
        self.listed = [row(run_id, user_id="ada", tenant_id="acme") for run_id in TARGETS]
        self.rows |= {one["run_id"]: one for one in self.listed}
        self.replies = list(replies)
        self.price = {"cost_micros": cost_micros, "currency": currency}
        self.status = "completed"
        self.judged = 0
        listed = [*self.listed, row("r_" + "9" * 26, agent="critic")]
        self.answers["GET", "/v1/runs"] = Scripted(body={"runs": listed, "next": None})
        self.pages[evals.PATH] = self.stored
        for run_id in TARGETS:
            self.answers["GET", f"/v1/runs/{run_id}/stream"] = stream(run_id, f"answer of {run_id}")

    def stored(self, request: httpx.Request) -> dict[str, Any]:
        self.judged += 1
        return {"eval_id": f"eval_{self.judged}"}

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST" and request.url.path != evals.PATH and self.replies:
            run_id = f"r_judge{len(self.asked)}"
            self.rows[run_id] = row(run_id, status=self.status, error="broken", **self.price)
            self.streams.append(stream(run_id, self.replies.pop(0), "s_judge"))
        return super()._answer(request)

    def starts(self) -> list[tuple[str, Any]]:
        paths = ("/v1/runs", "/v1/sessions/s_judge/messages")
        return [
            (request.url.path, json.loads(request.content))
            for request in self.asked
            if request.method == "POST" and request.url.path in paths
        ]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(*replies: str, **more: Any) -> Installation:
        fake = Installation(*replies, **more)
        let_commands_use(monkeypatch, fake.client)
        monkeypatch.setattr(judge, "PARALLEL", 1)
        return fake

    return make


def invoke(*arguments: str, rubric: str = RUBRIC) -> Any:
    return CliRunner().invoke(app, ["evals", "judge", "--agent", "critic", "--rubric", rubric, *arguments])


def results(found: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(found.stdout)
    return answer


# --- which runs ------------------------------------------------------------------------------------------------------


def test_without_yes_the_runs_are_shown_and_nothing_is_started(made: Any) -> None:
    fake = made(GOOD)
    found = invoke("--def", "def_1", "--since", "2026-01-01T00:00:00Z")
    assert found.exit_code == 0, found.output
    assert all(run_id in found.stdout for run_id in TARGETS)
    assert found.stdout.splitlines()[-1] == "3 runs. With --yes critic judges them."
    assert fake.starts() == []
    query = fake.asked[0].url.params
    assert (query["def_id"], query["status"], query["from"]) == ("def_1", "completed", "2026-01-01T00:00:00.000Z")
    assert results(invoke("--def", "def_1", "--json")) == {"agent": "critic", "runs": list(TARGETS)}


def test_named_runs_are_judged_and_the_limit_holds(made: Any) -> None:
    made()
    assert results(invoke("--run", TARGETS[1], "--run", TARGETS[1], "--json"))["runs"] == [TARGETS[1]]
    assert results(invoke("--of", "assistant", "--limit", "2", "--json"))["runs"] == list(TARGETS[:2])


@pytest.mark.parametrize("arguments", [(), ("--run", TARGETS[0], "--def", "def_1")])
def test_runs_or_filters_have_to_be_given_and_not_both(made: Any, arguments: tuple[str, ...]) -> None:
    fake = made()
    assert invoke(*arguments).exit_code == 2
    assert fake.asked == []


def test_a_run_that_is_not_completed_is_not_judged(made: Any) -> None:
    made().rows[TARGETS[0]]["status"] = "running"
    found = invoke("--run", TARGETS[0])
    assert found.exit_code == 2
    assert "only completed runs are judged" in found.stderr


# --- judging ---------------------------------------------------------------------------------------------------------


def test_each_run_is_judged_by_the_rubric_and_its_text_is_untrusted(made: Any) -> None:
    fake = made(GOOD, GOOD, GOOD)
    found = invoke("--def", "def_1", "--yes", "--idempotency-key", "k")
    assert found.exit_code == 0, found.output
    assert "3 runs judged, 0 failed, 0 left; cost 1.20 USD" in found.stdout
    path, body = fake.starts()[0]
    assert (path, body["agent"], body["user_id"]) == ("/v1/runs", "critic", "ada")
    assert body["metadata"] == {"judged_run_id": TARGETS[0]}
    instructions, answer = body["segments"][0]["content"]
    assert instructions["type"] == "trusted-text"
    assert RUBRIC in instructions["text"]
    assert answer == {"type": "untrusted-block", "kind": "answer", "text": f"answer of {TARGETS[0]}"}
    stored = fake.bodies(evals.PATH)[0]
    assert (stored["run_id"], stored["score"], stored["dimensions"]) == (TARGETS[0], 0.75, {"style": 0.5})
    assert stored["judgement"]["agent"] == "critic"
    assert stored["judgement"]["run_id"].startswith("r_judge")
    (first, *_) = [one for one in fake.asked if one.url.path == evals.PATH]
    assert first.url.params["tenant"] == "acme"


def test_the_same_key_gives_the_same_requests(made: Any) -> None:
    keys = []
    for _ in range(2):
        fake = made(GOOD)
        invoke("--run", TARGETS[0], "--yes", "--idempotency-key", "k")
        keys.append([one.headers["idempotency-key"] for one in fake.asked if one.method == "POST"])
    assert keys[0] == keys[1]
    assert len(set(keys[0])) == 2


def test_an_answer_of_another_form_is_asked_for_once_more_in_its_session(made: Any) -> None:
    fake = made("I think 0.7", GOOD)
    found = invoke("--run", TARGETS[0], "--yes", "--json")
    assert found.exit_code == 0, found.output
    (first, _), (again, body) = fake.starts()
    assert (first, again) == ("/v1/runs", "/v1/sessions/s_judge/messages")
    assert "it is not one JSON object" in body["prompt"]
    assert body["user_id"] == "ada"
    (one,) = results(found)["results"]
    assert (one["score"], one["cost_micros"], one["eval_id"]) == (0.75, 800_000, "eval_1")


def test_two_answers_of_another_form_fail_and_nothing_is_stored(made: Any) -> None:
    fake = made("no", '{"score": true}')
    found = invoke("--run", TARGETS[0], "--yes", "--json")
    assert found.exit_code == 1
    (one,) = results(found)["results"]
    assert one["error"] == "the judge's answer cannot be used: score must be a finite number"
    assert one["score"] is None
    assert fake.bodies(evals.PATH) == []


def test_a_judge_that_fails_is_reported_and_the_others_go_on(made: Any) -> None:
    fake = made(GOOD, GOOD, GOOD)
    fake.status = "failed"
    found = invoke("--def", "def_1", "--yes")
    assert found.exit_code == 1
    assert "the judge's run failed" in found.stdout
    assert "0 runs judged, 3 failed, 0 left" in found.stdout


def test_a_run_without_text_is_not_judged(made: Any) -> None:
    fake = made(GOOD)
    fake.answers["GET", f"/v1/runs/{TARGETS[0]}/stream"] = stream(TARGETS[0], " ")
    found = invoke("--run", TARGETS[0], "--yes", "--json")
    assert found.exit_code == 1
    assert results(found)["results"][0]["error"] == "it has no text to judge"
    assert fake.starts() == []


def test_a_refused_judgement_fails_that_run_alone(made: Any) -> None:
    fake = made(GOOD, GOOD, GOOD)
    fake.answers["POST", evals.PATH] = refused(422, "tool_refused", "rationale: too long", reason="too_large")
    found = invoke("--def", "def_1", "--yes", "--json")
    assert [one["error"] for one in results(found)["results"]] == ["Rationale: too long."] * 3
    assert found.exit_code == 1


def test_a_judge_that_does_not_exist_ends_it_with_what_is_done(made: Any) -> None:
    fake = made()
    fake.streams.append(refused(404, "unknown_agent", "there is no agent critic"))
    found = invoke("--def", "def_1", "--yes")
    assert found.exit_code == 4
    assert "There is no agent critic" in found.stderr
    assert "2 left" in found.stdout
    assert len(fake.starts()) == 1


# --- the budget ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("budget", "judged"), [("0.39", 1), ("0.8", 2), ("1.19", 2), ("1.2", 3), ("5", 3)])
def test_it_stops_before_the_budget_is_exceeded(made: Any, budget: str, judged: int) -> None:
    made(GOOD, GOOD, GOOD)
    found = invoke("--def", "def_1", "--yes", "--budget", budget, "--json")
    assert found.exit_code == 0, found.output
    answer = results(found)
    assert (len(answer["results"]), answer["left"]) == (judged, 3 - judged)
    assert answer["costs"] == [{"cost_micros": 400_000 * judged, "currency": "USD"}]
    assert answer["stopped"] == ("budget" if judged < 3 else None)


def test_a_budget_of_a_judge_without_a_price_cannot_be_kept(made: Any) -> None:
    fake = made(GOOD, GOOD, currency=None, cost_micros=0)
    found = invoke("--def", "def_1", "--yes", "--budget", "1")
    assert found.exit_code == 1
    assert "has no price" in found.stderr
    assert len(fake.starts()) == 1


@pytest.mark.parametrize("budget", ["-1", "much", "nan"])
def test_a_budget_is_an_amount(made: Any, budget: str) -> None:
    made()
    assert invoke("--def", "def_1", "--budget", budget).exit_code == 2


# --- the rubric ------------------------------------------------------------------------------------------------------


def test_a_rubric_is_a_file_or_a_text(made: Any, tmp_path: Path) -> None:
    file = tmp_path / "rubric.md"
    file.write_text("Only brevity counts.")
    fake = made(GOOD)
    assert invoke("--run", TARGETS[0], "--yes", rubric=str(file)).exit_code == 0
    assert "Only brevity counts." in fake.starts()[0][1]["segments"][0]["content"][0]["text"]


@pytest.mark.parametrize("rubric", ["missing.md", " ", "x " * 40_000, ""])
def test_a_rubric_that_says_nothing_is_refused(made: Any, rubric: str) -> None:
    fake = made()
    found = invoke("--run", TARGETS[0], "--yes", rubric=rubric)
    assert found.exit_code == 2, found.output
    assert fake.starts() == []


# --- verdicts --------------------------------------------------------------------------------------------------------


def test_a_verdict_is_one_json_object() -> None:
    assert parse_verdict(f"\n{GOOD}\n") == Verdict(score=0.75, dimensions={"style": 0.5}, rationale="fine")
    assert parse_verdict('{"score": 3}') == Verdict(score=3.0, dimensions={}, rationale="")


@pytest.mark.parametrize(
    "text",
    [
        "", "0.5", "[]", "null", f"```json\n{GOOD}\n```", f"{GOOD} and more", "{}", '{"score": null}', '{"score": "1"}',
        '{"score": true}', '{"score": NaN}', '{"score": 1e999}', '{"score": 1, "dimensions": [1]}',
        '{"score": 1, "dimensions": {"a": "b"}}', '{"score": 1, "rationale": 5}', '{"score": 1, "extra": 1}',
        "[" * 100_000, '{"score": 1' + "0" * 400 + "}",
    ],
)  # fmt: skip
def test_anything_else_is_no_verdict(text: str) -> None:
    with pytest.raises(ValueError, match=r"it is not|it has|must be"):
        parse_verdict(text)
