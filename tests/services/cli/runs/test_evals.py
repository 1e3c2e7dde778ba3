"""`loomlog evals submit | ls | show`."""

import json
from functools import partial
from typing import Any

import pytest

from loomlog.services.cli.runs import evals
from tests.services.cli import fake_api
from tests.services.cli.fake_api import FakeApi, Scripted, row

RUN = "r_" + "0" * 26
JUDGEMENT = {
    "eval_id": "eval_1",
    "run_id": RUN,
    "def_id": "def_1",
    "score": 0.5,
    "dimensions": {"style": 0.25},
    "judgement": {"points": [1]},
    "rationale": "short\nand right",
    "emitter_role": "external",
    "emitter_agent_id": "",
    "emitter_run_id": "",
    "created_at": "2026-01-31T12:00:00.000000000Z",
}
SUMS = {"mean": 0.5, "median": 0.5, "min": 0.25, "max": 0.75, "latest": 0.75, "count": 2}


def answer(fake: FakeApi, body: dict[str, Any], **headers: str) -> None:
    fake.answers["POST", evals.PATH] = Scripted(body=body, headers=headers)


invoke = partial(fake_api.invoke, "evals")


def test_a_judgement_is_submitted_with_its_dimensions_under_a_key(fake: FakeApi) -> None:
    answer(fake, {"eval_id": "eval_1", "score": 0.5}, **{"x-loomlog-position": "loom.entity.events/1:7"})
    result = invoke(
        "submit", RUN, "0.5", "--dimension", "style=0.25", "--rationale", "fine", "--judgement", '{"a": 1}',
        "--idempotency-key", "k", "--tenant", "acme",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "eval_1" in result.stdout
    assert "loom.entity.events/1:7" in result.stdout
    (request,) = fake.asked
    assert json.loads(request.content) == {
        "op": "submit",
        "run_id": RUN,
        "score": 0.5,
        "dimensions": {"style": 0.25},
        "rationale": "fine",
        "judgement": {"a": 1},
    }
    assert (request.headers["idempotency-key"], request.url.params["tenant"]) == ("k", "acme")


def test_a_handle_means_its_newest_run(fake: FakeApi) -> None:
    answer(fake, {"eval_id": "eval_1"})
    fake.rows["a_" + "0" * 26] = row(RUN)
    result = invoke("submit", "a_" + "0" * 26, "1", "--json")
    assert json.loads(result.stdout) == {"eval_id": "eval_1", "position": None}
    assert fake.bodies(evals.PATH)[0]["run_id"] == RUN


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--dimension", "style"), "--dimension is 'style': expected NAME=SCORE"),
        (("--dimension", "=1"), "--dimension is '=1'"),
        (("--dimension", "style=good"), "--dimension is 'style=good'"),
        (("--judgement", "{"), "--judgement is not JSON"),
    ],
)
def test_options_of_another_form_are_refused_before_anything_is_sent(
    fake: FakeApi, arguments: tuple[str, ...], words: str
) -> None:
    result = invoke("submit", RUN, "1", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert fake.asked == []


@pytest.mark.parametrize(
    ("arguments", "body"),
    [
        (("--run", RUN), {"op": "list_for_run", "run_id": RUN, "limit": 20}),
        (("--def", "def_1", "--cursor", "c"), {"op": "list_for_def", "def_id": "def_1", "limit": 20, "cursor": "c"}),
    ],
)
def test_judgements_of_a_run_or_a_version_are_listed(
    fake: FakeApi, arguments: tuple[str, ...], body: dict[str, Any]
) -> None:
    answer(fake, {"evaluations": [JUDGEMENT], "next": "page2"})
    result = invoke("ls", *arguments)
    assert result.exit_code == 0, result.output
    head, first, more = result.stdout.splitlines()
    assert head.split() == ["EVALUATION", "RUN", "SCORE", "BY", "AT", "WHY"]
    assert first.split() == ["eval_1", RUN, "0.5", "external", "2026-01-31T12:00:00Z", "short", "and", "right"]
    assert "--cursor page2" in more
    assert fake.bodies(evals.PATH) == [body]
    assert json.loads(invoke("ls", *arguments, "--json").stdout)["evaluations"] == [JUDGEMENT]


@pytest.mark.parametrize("arguments", [(), ("--run", RUN, "--def", "def_1")])
def test_a_run_or_a_version_has_to_be_named_and_not_both(fake: FakeApi, arguments: tuple[str, ...]) -> None:
    assert invoke("ls", *arguments).exit_code == 2
    assert fake.asked == []


def test_a_judgement_is_shown_without_empty_fields(fake: FakeApi) -> None:
    answer(fake, JUDGEMENT)
    result = invoke("show", "eval_1")
    assert fake.bodies(evals.PATH) == [{"op": "get", "eval_id": "eval_1"}]
    assert '{"points":[1]}' in result.stdout
    assert "emitter_agent_id" not in result.stdout
    assert invoke("show", "eval_1", "--lineage").exit_code == 2


def test_the_sums_of_a_version_are_a_table(fake: FakeApi) -> None:
    sums = {"count": 2, "score": SUMS, "dimensions": {"style": SUMS}, "by_emitter_role": {"self": SUMS | {"count": 1}}}
    answer(fake, sums)
    result = invoke("show", "def_1", "--lineage")
    assert fake.bodies(evals.PATH) == [{"op": "aggregate", "def_id": "def_1", "include_lineage": True}]
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[1:] == [
        ["score", "2", "0.5", "0.5", "0.25", "0.75", "0.75"],
        ["style", "2", "0.5", "0.5", "0.25", "0.75", "0.75"],
        ["by", "self", "1", "0.5", "0.5", "0.25", "0.75", "0.75"],
    ]
