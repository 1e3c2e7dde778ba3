"""A repeated request with the same Idempotency-Key has its effect once, on every route that changes something."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from loomlog.connectors.errors import Transient
from loomlog.schemas.generated.run_commands import PauseRun, PostInput
from loomlog.schemas.ids import command_identity
from loomlog.services.api.openapi import build_document
from loomlog.services.api.routes import ROUTES
from loomlog.services.application.request_context import (
    RequestContext,
    command_id,
    command_tokens,
    current_request,
    repeatable,
)
from tests.connectors.storage.memory import MemoryRequestKeys
from tests.services.api.serving import Served, served
from tests.services.application.runs.test_control import start
from tests.services.application.world import ADMIN_CALLER, until_type

KEY = {"Idempotency-Key": "order-17"}


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path) as made:
        yield made


def test_every_route_that_changes_something_documents_the_key_and_no_other_does() -> None:
    document = build_document("1")
    for route in ROUTES:
        parameters = document["paths"][route.template][route.method.lower()].get("parameters", [])
        has_key = any(parameter["name"] == "Idempotency-Key" for parameter in parameters)
        assert has_key == (route.method in ("POST", "PUT", "PATCH", "DELETE")), route.path


@contextlib.contextmanager
def request(scope: str = "a", key: str = "k", body: bytes = b"1") -> Iterator[None]:
    context = RequestContext(idempotency_key=key, scope=(scope,))
    context.hash_body(body)
    reset = current_request.set(context)
    try:
        yield
    finally:
        current_request.reset(reset)


def fresh() -> str:
    return "fresh"


def test_tokens_of_a_keyed_request_are_those_of_its_repetition_and_of_no_other_request() -> None:
    token = repeatable(fresh, "step")
    drawn = []
    for parts in (("a", "k", b"1"), ("a", "k", b"1"), ("b", "k", b"1"), ("a", "l", b"1"), ("a", "k", b"2")):
        with request(*parts):
            drawn.append((token(), token()))
    assert drawn[0] == drawn[1]
    assert len({one for pair in drawn for one in pair}) == 8
    assert token() == "fresh"


def test_commands_of_a_key_have_one_identity_and_each_body_another_id() -> None:
    token = command_tokens(fresh, "step")
    ids = []
    for body in (b"1", b"1", b"2"):
        with request(body=body):
            ids.append((command_id("entity", token()), command_id(f"c_{token()}")))
    assert ids[0] == ids[1]
    assert not set(ids[0]) & set(ids[2])
    assert [command_identity(one) for one in ids[0]] == [command_identity(one) for one in ids[2]]
    assert command_identity(f"{ids[0][0]}.settle") == command_identity(f"{ids[2][0]}.settle")
    assert (command_id(token()), command_identity("c-body-x")) == ("fresh", "c-body-x")


def test_a_build_that_draws_one_more_token_makes_the_same_command_of_a_repetition() -> None:
    with request():
        before = command_id("entity", command_tokens(fresh, "entity")())
    with request():
        repeatable(fresh, "a step of the next build")()
        after = command_id("entity", command_tokens(fresh, "entity")())
    assert before == after


async def test_a_repeated_input_reaches_the_run_once_also_much_later(here: Served) -> None:
    run = await start(here.world, "parker", interactive=True)
    await until_type(run.stream, "awaiting_input")
    path = f"/v1/runs/{run.run_id}/input"
    first = await here.client().post(path, json={"text": "second"}, headers=KEY)
    await until_type(run.stream, "awaiting_input")
    soon = await here.client().post(path, json={"text": "second"}, headers=KEY)
    here.world.hub._recent_events.drop_expired(float("inf"))  # as if half a minute had passed
    late = await here.client().post(path, json={"text": "second"}, headers=KEY)
    other = await here.client().post(path, json={"text": "third"}, headers=KEY)
    run.stream.close()
    assert [answer.status_code for answer in (first, soon, late, other)] == [200, 200, 200, 422]
    assert other.json()["code"] == "idempotency_key_reused"
    assert first.json() == soon.json() == late.json()
    assert soon.headers["x-loomlog-position"] == first.headers["x-loomlog-position"]
    facts = here.world.states[run.run_id].facts  # type: ignore[union-attr]
    texts = [block.text for message in facts.messages if message.role == "user" for block in message.blocks]
    assert texts == ["go", "second"]
    sent = [command for command in here.world.commands() if isinstance(command, PostInput)]
    assert len(sent) == 2  # those soon after are answered without a command, or refused


async def test_a_repeated_pause_has_the_answer_of_the_first(here: Served) -> None:
    run = await start(here.world, "silent", interactive=True)
    path = f"/v1/runs/{run.run_id}/pause"
    answers = [await here.client().post(path, json={}, headers=KEY) for _ in range(2)]
    without_key = await here.client().post(path, json={})
    run.stream.close()
    assert [answer.status_code for answer in (*answers, without_key)] == [200, 200, 409]
    assert answers[0].json() == answers[1].json()
    assert len([command for command in here.world.commands() if isinstance(command, PauseRun)]) == 2


async def test_a_repeated_snapshot_is_the_same_file_and_another_body_none(here: Served) -> None:
    path = "/v1/_snapshots"
    answers = [await here.client().post(path, json={"label": label}, headers=KEY) for label in ("a", "a", "b")]
    assert [answer.status_code for answer in answers] == [201, 201, 422]
    assert answers[0].json() == answers[1].json()
    assert answers[2].json()["code"] == "idempotency_key_reused"
    assert (await here.client().get(path)).json()["entries"] == [answers[0].json()]
    again = await here.client().post(path, json={"label": "b"}, headers={"Idempotency-Key": "another"})
    assert again.status_code == 201
    assert (await here.client().get(f"{path}/{again.json()['id']}")).status_code == 200


async def test_concurrent_repetitions_have_one_effect(here: Served) -> None:
    run = await start(here.world, "parker", interactive=True)
    await until_type(run.stream, "awaiting_input")
    path = f"/v1/runs/{run.run_id}/input"
    answers = await asyncio.gather(
        *(here.client(ADMIN_CALLER).post(path, json={"text": "second"}, headers=KEY) for _ in range(8))
    )
    run.stream.close()
    assert {answer.status_code for answer in answers} == {200}
    facts = here.world.states[run.run_id].facts  # type: ignore[union-attr]
    texts = [block.text for message in facts.messages if message.role == "user" for block in message.blocks]
    assert texts == ["go", "second"]


async def test_a_key_that_no_header_can_carry_is_refused(here: Served) -> None:
    answer = await here.client().post("/v1/runs/r_1/input", json={"text": "x"}, headers={"Idempotency-Key": "a b"})
    assert (answer.status_code, "Idempotency-Key" in answer.json()["error"]) == (400, True)


# --- bodies that name what is changed --------------------------------------------------------------------------------


@pytest.fixture
async def keyed(here: Served) -> Served:
    here.world.layer._request_keys = MemoryRequestKeys()
    return here


async def test_a_key_is_that_of_its_caller_method_and_path(keyed: Served) -> None:
    for client, path in (
        (keyed.client(), "/v1/_pause"),
        (keyed.client(), "/v1/_resume"),
        (keyed.client(), "/v1/_repair"),
    ):
        answer = await client.post(path, json={"agent": path}, headers=KEY)
        assert answer.json().get("code") != "idempotency_key_reused"


async def test_without_the_store_of_keys_requests_are_carried_out_and_owners_compare_bodies(here: Served) -> None:
    class Away:
        async def first_body(self, key: str, body: str) -> str:
            raise Transient("no answer", kind="timeout")

    here.world.layer._request_keys = Away()
    bodies = [{"scope": "agent", "agent": name} for name in ("parker", "soaker")]
    answers = [await here.client().post("/v1/_pause", json=body, headers=KEY) for body in bodies]
    assert answers[0].status_code == 200
    assert answers[1].json()["code"] == "idempotency_key_reused"


def test_routes_whose_owner_recognises_a_key_name_what_they_change_in_their_path() -> None:
    recognising = {(route.method, route.template) for route in ROUTES if route.recognises_key}
    assert recognising == {
        ("POST", "/v1/runs"),
        ("POST", "/v1/runs:batch"),
        ("POST", "/v1/sessions/{session_id}/messages"),
        ("PUT", "/v1/_memory/scopes/{scope}/{scope_id}/keys/{key}"),
    }
