"""A run at an event, replayed, compared, forked and exported, as a client sees it."""

import io
from typing import Any

import pytest

from loomlog.schemas.generated.values import ContentBlock, Segment
from loomlog.services.core.refusals import Refused
from loomlog.services.stream.archive.bundle_replay import replay_bundle
from tests.projections.stories import requested, started
from tests.services.api.serving import Served, Wire, frames_of
from tests.services.application.world import ACME, ADMIN_CALLER


async def run_id(here: Served, **more: Any) -> str:
    return str((await here.run(**more))[1].data["run_id"])


async def test_a_run_is_shown_as_it_was(here: Served) -> None:
    run = await run_id(here)
    client = here.client()
    then = (await client.get(f"/v1/runs/{run}/state", params={"at": 2})).json()
    assert (then["at"], then["last_seq"], then["status"], then["phase"]) == (2, 4, "running", "awaiting_model")
    assert [message["role"] for message in then["messages"]] == ["user"]
    assert (then["turns"], then["usage"]["input_tokens"], then["event"]["type"]) == (0, 0, "ModelCallRequested")
    now = (await client.get(f"/v1/runs/{run}/state")).json()
    assert (now["status"], now["phase"], now["turns"], now["usage"]["input_tokens"]) == ("completed", "ended", 1, 3)
    assert now["messages"][-1] == {"role": "assistant", "content": [{"type": "text", "text": "ok"}]}
    assert (then["fork_needs_prompt"], now["fork_needs_prompt"]) == (False, True)
    assert now["drift"] == []


async def test_a_run_is_replayed_and_agrees_with_its_row(here: Served) -> None:
    run = await run_id(here)
    actual = (await here.client().get(f"/v1/runs/{run}/replay")).json()
    assert (actual["seq"], actual["drift"], actual["compared"], actual["status"]) == (4, [], True, "completed")
    assert actual["events"][0]["type"] == "RunStarted"
    part = (await here.client().get(f"/v1/runs/{run}/replay?to=2")).json()
    assert (part["seq"], part["compared"], part["not_compared"]) == (2, False, "it ends at seq 2")
    assert part["state_sha256"] != actual["state_sha256"]


@pytest.mark.parametrize("what", ["state?at=99", "replay?to=5"])
async def test_an_event_that_is_not_there_yet_is_404(here: Served, what: str) -> None:
    answer = await here.client().get(f"/v1/runs/{await run_id(here)}/{what}")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert "1 to 4" in answer.json()["error"]


@pytest.mark.parametrize("what", ["state?at=0", "state?at=x", "replay?to=-1", "diff", "diff?with=r_x&at=no"])
async def test_a_question_that_makes_no_sense_is_a_clear_400(here: Served, what: str) -> None:
    answer = await here.client().get(f"/v1/runs/{await run_id(here)}/{what}")
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


async def test_two_runs_are_compared_step_by_step(here: Served) -> None:
    first, second = await run_id(here), await run_id(here, prompt="other")
    actual = (await here.client().get(f"/v1/runs/{first}/diff", params={"with": second})).json()
    assert (actual["same"], actual["shared_steps"], actual["definition"]) == (False, 0, [])
    assert (actual["first"]["a"]["text"], actual["first"]["b"]["text"]) == ("go", "other")
    same = (await here.client().get(f"/v1/runs/{first}/diff", params={"with": first})).json()
    assert (same["same"], same["first"], same["shared_steps"]) == (True, None, 2)


async def test_a_fork_answers_with_its_stream_and_says_where_it_comes_from(here: Served) -> None:
    run = await run_id(here)
    client = here.client()
    answer = await client.post(
        f"/v1/runs/{run}/fork?ids=1", json={"at": 4, "prompt": "again", "overrides": {"model": "tiny"}}
    )
    assert answer.status_code == 200, answer.text
    frames = frames_of(answer.text)
    assert frames[-1].event == "done"
    assert answer.headers["x-loomlog-position"]
    forked = frames[1].data["run_id"]
    row = (await client.get(f"/v1/runs/{forked}")).json()
    assert row["forked_from"] == {"run_id": run, "seq": 4}
    state = (await client.get(f"/v1/runs/{forked}/state")).json()
    assert [message["role"] for message in state["messages"]] == ["user", "assistant", "user", "assistant"]
    assert (state["inherited_messages"], state["definition"]["model"]) == (2, "tiny")
    assert state["forked_from"]["run_id"] == run
    proof = (await client.get(f"/v1/runs/{forked}/replay")).json()
    assert (proof["drift"], proof["compared"], proof["continues"]) == ([], True, 1)
    parted = (await client.get(f"/v1/runs/{run}/diff", params={"with": forked})).json()
    assert (parted["shared_steps"], parted["first"]["a"]) == (2, None)
    assert {one["name"] for one in parted["definition"]} == {"model", "sha256"}
    # Both are counted from the event that they share: the origin has done nothing since.
    assert parted["common"] == {"run_id": run, "seq": 4}
    assert (parted["a"]["turns"], parted["a"]["input_tokens"], parted["b"]["turns"]) == (0, 0, 1)
    swapped = (await client.get(f"/v1/runs/{forked}/diff", params={"with": run})).json()
    assert (swapped["a"]["turns"], swapped["b"]["turns"], swapped["common"]) == (1, 0, parted["common"])
    later = (await client.post(f"/v1/runs/{run}/fork?ids=1", json={"at": 4, "prompt": "once more"})).text
    sibling = frames_of(later)[1].data["run_id"]
    siblings = (await client.get(f"/v1/runs/{forked}/diff", params={"with": sibling})).json()
    assert (siblings["common"], siblings["a"]["turns"], siblings["b"]["turns"]) == (parted["common"], 1, 1)


async def test_a_fork_under_the_same_key_is_the_same_fork(here: Served) -> None:
    run = await run_id(here)
    client, headers = here.client(), {"Idempotency-Key": "once"}
    first = await client.post(f"/v1/runs/{run}/fork", json={"at": 2}, headers=headers)
    again = await client.post(f"/v1/runs/{run}/fork", json={"at": 2}, headers=headers)
    assert frames_of(first.text)[1].data == frames_of(again.text)[1].data
    assert again.headers["idempotent-replayed"] == "true"
    other = await client.post(f"/v1/runs/{run}/fork", json={"at": 1}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "at"),
        ({"at": 0}, "at"),
        ({"at": 9}, "has the events 1 to 4"),
        ({"at": 2, "overrides": {"temprature": 1}}, "did you mean temperature?"),
        ({"at": 2, "overrides": {"modle": "x"}}, "did you mean model?"),
        ({"at": 2, "overrides": {"volumes": []}}, "there is no field 'volumes'"),
        ({"at": 2, "overrides": {"temperature": 3}}, "expected 0 to 2"),
        ({"at": 2, "overrides": {"max_iterations": "many"}}, "expected a whole number"),
        ({"at": 2, "overrides": {"effort": "huge"}}, "low, medium, high"),
        ({"at": 2, "overrides": {"tools": "Read"}}, "expected a list"),
        ({"at": 4}, "needs a prompt"),
        ({"at": 2, "surprise": 1}, "surprise"),
    ],
)
async def test_a_fork_that_makes_no_sense_is_a_clear_400(here: Served, body: Any, says: str) -> None:
    answer = await here.client().post(f"/v1/runs/{await run_id(here)}/fork", json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request"), answer.text
    assert says in answer.json()["error"]


async def test_an_export_is_a_file_that_replays_by_itself(here: Served) -> None:
    run = await run_id(here)
    answer = await here.client().get(f"/v1/runs/{run}/export")
    assert answer.headers["content-type"] == "application/gzip"
    assert f'filename="{run}.loomlog-run.gz"' in answer.headers["content-disposition"]
    replay = replay_bundle(io.BytesIO(answer.content))
    assert (replay.header.run_id, replay.replayed.seq, replay.drift) == (run, 4, ())
    proof = (await here.client().get(f"/v1/runs/{run}/replay")).json()
    assert replay.replayed.state_sha256 == proof["state_sha256"]


async def test_a_fork_by_an_administrator_stays_in_the_tenant_of_its_origin(here: Served) -> None:
    run = await run_id(here, caller=ACME)
    forked = frames_of((await here.client(ADMIN_CALLER).post(f"/v1/runs/{run}/fork", json={"at": 1})).text)
    row = (await here.client(ACME).get(f"/v1/runs/{forked[1].data['run_id']}")).json()
    assert row["tenant_id"] == "acme"


async def test_an_export_without_one_of_its_payloads_breaks_off_and_is_not_taken_for_whole(
    here: Served, caplog: pytest.LogCaptureFixture
) -> None:
    run = "r_blob"
    here.world.tenants[run] = "default"
    ref = await here.world.blobs.put(b"long " * 20_000)
    block = ContentBlock(type="trusted-text", blob=ref)
    here.world.happen(run, started(run, segments=(Segment(role="user", content=(block,)),)), requested(1))
    here.world.blobs.blobs.clear()
    wire = Wire(here.app, "GET", f"/v1/runs/{run}/export").begin()
    with pytest.raises(Refused, match="blob store"):
        await wire.done()
    assert f"{ref.sha256} is not in memory" in caplog.text
    assert (wire.status, wire.ended) == (200, False)
