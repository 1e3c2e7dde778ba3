"""Runs that answer with a record, on a whole stack: by each way they are started, and beside a death of the runtime."""

import time
from typing import Any

import httpx
import pytest

from tests.acceptance.installation import Installation
from tests.acceptance.test_agent_loop import finished
from tests.acceptance.test_channels import poll
from tests.acceptance.test_definitions import define, kill_owner
from tests.acceptance.test_families import api

pytestmark = pytest.mark.stack
SCHEMA = {
    "type": "object",
    "properties": {"verdict": {"enum": ["ok", "bad"]}, "lines": {"type": "array", "items": {"type": "integer"}}},
    "required": ["verdict", "lines"],
    "additionalProperties": False,
}
RECORD = {"verdict": "ok", "lines": []}
RUNS = 24
DEADLINE_S = 60.0


def run_of(client: httpx.Client, frames: list[tuple[str, Any]]) -> Any:
    run_id = next(data["run_id"] for event, data in frames if event == "agent")
    return client.get(f"/v1/runs/{run_id}").json()


def test_a_run_answers_with_the_record_that_its_request_asks_for(stack: Installation) -> None:
    with api(stack) as client:
        frames = finished(client, agent="talker", prompt="go", output_schema=SCHEMA)
        assert frames[-1][0] == "done"
        assert frames[-1][1]["result"] == RECORD
        row = run_of(client, frames)
        assert (row["status"], row["result"], row["iterations"]) == ("completed", RECORD, 1)
        assert len(row["output_schema_sha256"]) == 64
        assert stack.loomlog("replay", row["run_id"], "--json").json["drift"] == []
        plain = finished(client, agent="talker", prompt="go")
        assert "result" not in plain[-1][1]
        assert not {"result", "output_schema_sha256"} & run_of(client, plain).keys()


def test_a_bad_answer_is_corrected_and_one_too_many_fails_the_run(stack: Installation) -> None:
    with api(stack) as client:
        frames = finished(client, agent="talker", prompt="give 2 bad answers", output_schema=SCHEMA)
        rejected = [data["output_rejected"] for event, data in frames if event == "output_rejected"]
        assert [(one["number"], one["path"]) for one in rejected] == [(1, "$"), (2, "$")]
        assert frames[-1][1]["result"] == RECORD
        frames = finished(client, agent="talker", prompt="give 2 bad answers", output_schema=SCHEMA, output_retries=1)
        assert frames[-1][0] == "error"
        row = run_of(client, frames)
        assert (row["status"], row["error_code"], row["result"]) == ("failed", "output_invalid", None)
        assert "$: the answer is not JSON" in row["error"]


def test_the_schema_of_a_definition_holds_for_children_batches_and_code(stack: Installation) -> None:
    with api(stack) as client:
        typed = {"provider": "mock", "model": "mock-generic", "output_schema": SCHEMA}
        define(client, op="create", name="judge", overlay=typed)
        spawn = '[{"spawn": "judge", "prompt": "go"}]'
        # An owner may find the definition of a child 20 ms after it was written.
        text = poll(
            lambda: [data["text"] for event, data in finished(client, agent="puppet", prompt=spawn) if event == "text"],
            bool,
        )[0]
        assert text.endswith('{"verdict":"ok","lines":[]}')
        batch = client.post("/v1/runs:batch", json={"spawns": [{"agent": "judge", "prompt": "go"}]}).json()
        assert batch["results"][0]["result"] == RECORD
        code = "function run(input) { return { verdict: 'ok', lines: [Number(input.prompt)] } }"
        script = {"provider": "code-js", "model": "code", "code_body": code, "output_schema": SCHEMA}
        define(client, op="create", name="counting", overlay=script)
        assert finished(client, agent="counting", prompt="7")[-1][1]["result"] == {"verdict": "ok", "lines": [7]}
        failed = finished(client, agent="counting", prompt="0.5")
        assert run_of(client, failed)["error_code"] == "output_invalid"
        assert [event for event, _ in failed].count("output_rejected") == 1


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"output_schema": {"type": "string"}}, 'the type at the top must be "object"'),
        ({"output_schema": {"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}}}, "leaves the"),
        ({"output_schema": {"type": "object", "description": "x" * 70_000}}, "at most 65536"),
        ({"output_schema": SCHEMA, "interactive": True}, "interactive"),
        ({"output_schema": []}, "output_schema must be an object"),
        ({"output_retries": 11}, "output_retries must be at most 10"),
    ],
)
def test_a_bad_schema_is_refused_before_anything_runs(stack: Installation, body: dict[str, Any], said: str) -> None:
    with api(stack) as client:
        answer = client.post("/v1/runs", json={"agent": "talker", "prompt": "go", **body})
    assert answer.status_code == 400
    assert said in answer.json()["error"]


def test_a_key_stands_for_the_schema_too(stack: Installation) -> None:
    with api(stack) as client:
        asked = {"agent": "talker", "prompt": "go", "idempotency_key": "typed-once", "output_schema": SCHEMA}
        first = finished(client, **asked)
        assert finished(client, **asked)[-1][1]["result"] == first[-1][1]["result"]
        other = {**asked, "output_schema": {**SCHEMA, "title": "another"}}
        answer = client.post("/v1/runs", json=other)
        assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")


def test_each_run_has_its_record_and_its_corrections_once_beside_a_death_of_the_runtime(stack: Installation) -> None:
    with api(stack) as client:
        spawn = {"agent": "talker", "prompt": "give 2 bad answers", "output_schema": SCHEMA}
        batch = client.post("/v1/runs:batch", json={"spawns": [spawn] * RUNS, "mode": "detach"}).json()
        kill_owner(stack)
        ids = [one["run_id"] for one in batch["results"]]
        deadline = time.monotonic() + DEADLINE_S
        for run_id in ids:
            while (row := client.get(f"/v1/runs/{run_id}").json()).get("status") in (None, "running"):
                assert time.monotonic() < deadline, row
            assert (row["status"], row["result"], row["iterations"]) == ("completed", RECORD, 3)
            assert client.get(f"/v1/runs/{run_id}/stream").text.count("event: output_rejected") == 2
