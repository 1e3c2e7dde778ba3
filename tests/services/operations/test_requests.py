"""Requests for every operation: who may ask, for which tenant, and how fields that are wrong are refused.

The handlers record the call and refuse it, so what they record has passed everything before them.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import jsonschema_rs
import pytest
import pytest_asyncio

from loomlog.services.api.operation_routes import operation_routes
from loomlog.services.application.authentication import Authenticator
from loomlog.services.application.dispatch import Dispatch
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.scopes import ADMIN, TENANT, USER
from loomlog.services.core.error_codes import STATUS_BY_CODE
from loomlog.services.core.operation_input import field_schemas, required_fields
from loomlog.services.core.operations import Answer, Call, Effect
from loomlog.services.core.refusals import Refused
from tests.connectors.storage.memory import MemoryRequestKeys
from tests.services.api.serving import served
from tests.services.application.world import NOW_MS, tokens
from tests.services.operations.cases import CASES, OF_OBJECTS, OPERATIONS, UNDEFINED, Case, route_of

RECORDED = "not_found"
"""Code of a request that has reached its handler."""
WRONG: tuple[Any, ...] = ({"a": [1]}, [{"a": 1}], "\x01", 1.5, True, None)
every = pytest.mark.parametrize("case", CASES, ids=route_of)
with_fields = pytest.mark.parametrize("case", OF_OBJECTS, ids=route_of)


class ScopedCallers(Authenticator):
    """Callers whose token says what they are: `<tenant> <scope> ...`."""

    def identify(self, authorization: str | None) -> Caller:
        tenant, *scopes = (authorization or "").removeprefix("Bearer ").split()
        return Caller(name="ada", tenant=tenant, subject="ada", scopes=frozenset(scopes))


class Here:
    """The routes of all operations, and what has reached a handler."""

    def __init__(self, app: Any) -> None:
        self.calls: list[Call[Any]] = []
        self._transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        self._clients: dict[str, httpx.AsyncClient] = {}

    async def record(self, call: Call[Any]) -> Answer[Any]:
        self.calls.append(call)
        raise Refused(RECORDED, "it is recorded")

    def client(self, *scopes: str) -> httpx.AsyncClient:
        """Return the client of a caller of the tenant acme with these scopes."""
        token = " ".join(("acme", *scopes))
        if token not in self._clients:
            headers = {"authorization": f"Bearer {token}"}
            self._clients[token] = httpx.AsyncClient(transport=self._transport, base_url="http://test", headers=headers)
        return self._clients[token]

    def member(self, case: Case) -> httpx.AsyncClient:
        """Return the client of a caller who may call the operation and nothing else."""
        return self.client(*case.access.scopes)


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def installation(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Here]:
    folder = tmp_path_factory.mktemp("operations")
    routes = operation_routes(OPERATIONS)
    async with served(folder, routes=routes, request_keys=MemoryRequestKeys()) as made:
        made.service.authenticator = ScopedCallers(tokens())
        here = Here(made.app)
        handlers = dict.fromkeys(OPERATIONS, here.record)
        dispatch = Dispatch(handlers, clock_ms=lambda: NOW_MS, new_token=made.world.token)
        made.world.layer.dispatch = made.service.process_dispatch = dispatch
        yield here


@pytest.fixture
def here(installation: Here) -> Here:
    installation.calls.clear()
    return installation


def refusal(answer: httpx.Response) -> dict[str, Any]:
    """Return the body of a refusal whose status is that of its code."""
    body: dict[str, Any] = answer.json()
    assert answer.status_code == STATUS_BY_CODE[body["code"]], body
    return body


def has_reached(answer: httpx.Response) -> bool:
    """Return whether a request has reached the handler that records it."""
    return code_of(answer.json()) == RECORDED


def code_of(answer: dict[str, Any]) -> str:
    """Return the code of a refusal; of one that a tool's name is in front of, its reason."""
    return str(answer["reason"] if answer["code"] == "tool_refused" else answer["code"])


def codes_of(case: Case) -> set[str]:
    """Return the codes that may refuse a field of an operation."""
    one = case.operation
    own = {one.invalid_code, one.missing_code, one.unknown_code}
    return own | {*one.field_codes.values(), *one.missing_codes.values()}


def start_of(case: Case) -> bytes:
    """Return the beginning of a body, up to its first field."""
    return json.dumps(case.named_op).encode()[:-1] + (b"," if case.named_op else b"")


# --- access ----------------------------------------------------------------------------------------------------------


@every
async def test_who_may_reaches_the_handler_of_the_own_tenant(here: Here, case: Case) -> None:
    answer = await case.send(here.member(case))
    assert has_reached(answer), answer.text
    (call,) = here.calls
    assert (call.caller.tenant, call.caller.subject) == ("acme", "ada")
    assert bool(call.command_id) is (case.operation.effect is not Effect.READ)


@pytest.mark.parametrize("case", [case for case in CASES if case.access.scopes], ids=route_of)
async def test_a_caller_without_the_scope_learns_which_one_is_needed(here: Here, case: Case) -> None:
    answer = await case.send(here.client())
    assert refusal(answer)["code"] == "insufficient_scope"
    assert answer.json()["scope"] == " ".join(case.access.scopes)
    assert not here.calls


@pytest.mark.parametrize("case", [case for case in CASES if not case.access.takes_isolated], ids=route_of)
async def test_an_isolated_caller_is_refused_data_of_the_tenant(here: Here, case: Case) -> None:
    scopes = {*case.access.scopes} - {TENANT, ADMIN}
    assert refusal(await case.send(here.client(USER, *scopes)))["code"] == "insufficient_scope"
    assert not here.calls


OF_TENANTS = [case for case in CASES if case.http.takes_tenant]


@pytest.mark.parametrize("case", [case for case in OF_TENANTS if ADMIN not in case.access.scopes], ids=route_of)
async def test_a_member_names_no_other_tenant(here: Here, case: Case) -> None:
    request = case.request(case.fields)
    request["params"] |= {"tenant": "globex"}
    body = refusal(await here.member(case).request(**request))
    assert (body["code"], body["scope"]) == ("insufficient_scope", ADMIN)
    assert not here.calls


@pytest.mark.parametrize("case", OF_TENANTS, ids=route_of)
async def test_an_administrator_names_any_tenant(here: Here, case: Case) -> None:
    request = case.request(case.fields)
    request["params"] |= {"tenant": "globex"}
    assert has_reached(await here.client(ADMIN).request(**request))
    assert [call.caller.tenant for call in here.calls] == ["globex"]


# --- repetitions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [case for case in CASES if case.body and not case.http.recognises_key], ids=route_of)
async def test_a_key_with_another_body_is_refused(here: Here, case: Case) -> None:
    request = case.request(case.fields)
    request["headers"] |= {"idempotency-key": f"k{case.http.op}"}
    client = here.member(case)
    assert has_reached(await client.request(**request))
    assert has_reached(await client.request(**request))
    answer = await client.request(**{**request, "content": request["content"] + b" "})
    assert refusal(answer)["code"] == "idempotency_key_reused"
    assert answer.status_code == 422
    assert len({call.command_id for call in here.calls}) == 1
    assert {call.issued_at_ms for call in here.calls} == {0}


# --- fields ----------------------------------------------------------------------------------------------------------


@with_fields
async def test_an_unknown_field_is_refused_with_the_nearest_name(here: Here, case: Case) -> None:
    name = max(case.body, key=len)
    body = case.named_op | {other: case.fields[field] for other, field in case.body.items()} | {f"{name}x": 1}
    answer = refusal(await case.send(here.member(case), raw=json.dumps(body).encode()))
    code = case.operation.unknown_code or case.operation.invalid_code
    assert code_of(answer) in (code, case.http.codes.get(code))
    assert f"'{name}x' is unknown; did you mean {name}?" in answer["error"]
    assert not here.calls


@with_fields
async def test_a_field_of_another_type_is_refused_by_its_name(here: Here, case: Case) -> None:
    schemas = field_schemas(case.operation.input)
    for field in case.body.values():
        validator = jsonschema_rs.validator_for(dict(schemas[field]))
        wrong = next((value for value in WRONG if not validator.is_valid(value)), UNDEFINED)
        if wrong is UNDEFINED:
            continue  # any JSON
        answer = refusal(await case.send(here.member(case), **{field: wrong}))
        assert code_of(answer) in codes_of(case), answer
        assert field in answer["error"]
    assert not here.calls


REQUIRED = [
    (case, field)
    for case in OF_OBJECTS
    for field in case.body.values()
    if field in required_fields(case.operation.input)
]


@pytest.mark.parametrize(("case", "field"), REQUIRED, ids=lambda one: route_of(one) if isinstance(one, Case) else one)
async def test_a_missing_field_is_named(here: Here, case: Case, field: str) -> None:
    answer = refusal(await case.send(here.member(case), **{field: UNDEFINED}))
    assert code_of(answer) in codes_of(case), answer
    assert field in answer["error"]
    assert not here.calls


# --- bodies that are made to harm ------------------------------------------------------------------------------------

DEPTH = 10_000
HOSTILE = {
    "lone surrogate": b'"\\ud800"',
    "NUL": b'"\\u0000"',
    "NaN": b"NaN",
    "infinity": b"1e999",
    "depth": b"[" * DEPTH + b"]" * DEPTH,
    "depth of objects": b'{"a":' * DEPTH + b"1" + b"}" * DEPTH,
    "digits": b"9" * 5_000,
    "bytes": b'"\xff\xfe"',
}

NO_TEXT = ("lone surrogate", "NaN", "bytes")
"""What is no JSON, or no text."""


@pytest.mark.parametrize("case", [case for case in CASES if case.body], ids=route_of)
async def test_no_body_makes_the_server_fail(here: Here, case: Case) -> None:
    client, schemas = here.member(case), field_schemas(case.operation.input)
    for kind, value in HOSTILE.items():
        for name in case.body:
            raw = value if case.http.whole_body else start_of(case) + b'"' + name.encode() + b'":' + value + b"}"
            answer = await case.send(client, raw=raw)
            assert 400 <= answer.status_code < 500, (kind, name, answer.text)
            if kind in NO_TEXT or (kind == "NUL" and schemas[case.body[name]].get("type") == "string"):
                assert not here.calls, (kind, name)
            here.calls.clear()
    name = next(iter(case.body)).encode()
    answer = await case.send(client, raw=start_of(case) + b'"' + name + b'":1,"' + name + b'":2}')
    assert refusal(answer)["code"] in {"bad_request", *case.http.codes.values()}
    assert f"{name.decode()!r} twice" in answer.json()["error"]


@pytest.mark.parametrize("case", [case for case in CASES if "{" in case.http.path], ids=route_of)
async def test_no_path_makes_the_server_fail(here: Here, case: Case) -> None:
    for part in ("%00", "%ED%A0%80", "%FF", "%2F", "..%2F..", "a" * 5_000):
        path = case.http.path.replace(":path}", "}")
        for segment in [one for one in path.split("/") if one.startswith("{")]:
            path = path.replace(segment, part)
        answer = await here.member(case).request(**{**case.request(case.fields), "url": path})
        assert 400 <= answer.status_code < 500, (part, answer.text)
