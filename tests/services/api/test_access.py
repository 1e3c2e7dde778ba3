"""Who may call what: each route with each kind of caller, and each scope alone.

What is expected is in access.tsv, which is read by people: a route without a line fails, and so does a line that says
something else than the table of routes. The handlers are replaced here, so what answers is the check before them.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
from starlette.responses import JSONResponse, Response

from loomlog.connectors.configuration.principals import Principal, TokenTable
from loomlog.services.api.app import build_app
from loomlog.services.api.examples import BODY_EXAMPLES
from loomlog.services.api.route import Route
from loomlog.services.api.routes import ROUTES
from loomlog.services.application.authentication import Authenticator
from loomlog.services.core.access.scopes import INCLUDES, SCOPES
from loomlog.services.core.operations import Tag
from tests.services.api.serving import served, service_of
from tests.services.application.world import ACME, ADMIN_CALLER, GLOBEX, IVY, READER

MEMBERS = ("runs:create", "runs:read", "channel:publish", "channel:read", "memory:write", "providers:operator-key")
HELD: Mapping[str, tuple[str, ...]] = {
    "substrate:admin": ("substrate:tenant", "substrate:user", "tenant:read", *MEMBERS),
    "substrate:tenant": ("tenant:read", *MEMBERS),
    "substrate:user": ("runs:create", "runs:read"),
    **dict.fromkeys(MEMBERS, ("tenant:read",)),
    "tenant:read": (),
}
"""What each scope gives beside itself, written once more, so that a change of the catalogue shows here."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of access.tsv."""

    method: str
    path: str
    scopes: str
    isolated: str

    def allows(self, caller: Principal) -> bool:
        """Whether the caller gets past the check."""
        if self.scopes in ("public", "any"):
            return True
        is_isolated = "substrate:user" in caller.scopes and not caller.scopes & {"substrate:admin", "substrate:tenant"}
        if is_isolated and self.isolated != "own":
            return False
        held = caller.scopes | {included for scope in caller.scopes for included in HELD[scope]}
        if "|" in self.scopes:
            return bool(held & set(self.scopes.split("|")))
        return set(self.scopes.split("+")) <= held


def read_lines() -> Iterator[Line]:
    for text in (Path(__file__).parent / "access.tsv").read_text().splitlines():
        if not text.startswith("#"):
            yield Line(*text.split("\t"))


LINES = {(line.method, line.path): line for line in read_lines()}


def principal(name: str, *scopes: str, tenant: str = "acme") -> Principal:
    return Principal(name=name, tenant=tenant, subject=name, scopes=frozenset(scopes), legacy=name == "shared")


CALLERS = [
    principal("shared", "substrate:admin", tenant="default"),
    principal("administrator", "substrate:admin"),
    principal("operator", "substrate:tenant"),
    principal("operator-of-another-tenant", "substrate:tenant", tenant="globex"),
    principal("member", *MEMBERS),
    *(principal(f"only-{scope.replace(':', '-')}", scope) for scope in (*MEMBERS, "tenant:read")),
    principal("isolated", "substrate:user"),
    principal("isolated-with-more", "substrate:user", *MEMBERS, "tenant:read"),
]


async def reached(*_: object) -> Response:
    """A handler that does nothing."""
    return JSONResponse({"reached": True})


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> httpx.ASGITransport:
    """The table of routes over handlers that do nothing."""
    rows = tuple((hashlib.sha256(f"{one.name}-token".encode()).digest(), one) for one in CALLERS)
    service = service_of(None, tmp_path_factory.mktemp("access"))
    service.authenticator = Authenticator(TokenTable(rows=rows))
    tag = Tag(name="Access", description="")
    routes = [replace(route, handler=reached, operation=route.operation_id, tag=tag) for route in ROUTES]
    return httpx.ASGITransport(app=build_app(service, routes))


def client(app: httpx.ASGITransport, name: str = "") -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {name}-token"} if name else {}
    return httpx.AsyncClient(transport=app, base_url="http://test", headers=headers)


def filled(path: str) -> str:
    return re.sub(r"\{[^}]+\}", "1", path)


def line_of(route: Route) -> Line:
    access = route.access
    scopes = ("|" if access.is_any else "+").join(access.scopes) or ("public" if access.is_public else "any")
    return Line(route.method, route.path, scopes, "own" if access.takes_isolated and not access.is_public else "-")


def test_each_route_has_its_line_and_says_the_same() -> None:
    assert {(route.method, route.path): line_of(route) for route in ROUTES} == LINES


def test_what_is_included_is_what_is_written_here() -> None:
    assert set(HELD) == SCOPES
    for scope, included in HELD.items():
        assert INCLUDES.get(scope, frozenset()) - {scope} == set(included), scope


@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: caller.name)
async def test_a_caller_gets_past_the_check_of_these_routes_and_no_other(
    app: httpx.ASGITransport, caller: Principal
) -> None:
    async with client(app, caller.name) as http:
        for line in LINES.values():
            answer = await http.request(line.method, filled(line.path))
            expected = 200 if line.allows(caller) else 403
            assert answer.status_code == expected, f"{caller.name}: {line}"
            if expected == 403:
                assert answer.json()["code"] == "insufficient_scope"
                assert set(re.split("[|+]", line.scopes)) == set(answer.json()["scope"].split())


async def test_without_a_token_the_public_routes_are_all_there_is(app: httpx.ASGITransport) -> None:
    async with client(app) as http:
        for line in LINES.values():
            answer = await http.request(line.method, filled(line.path))
            assert answer.status_code == (200 if line.scopes == "public" else 401), line


KEY = "/v1/_memory/scopes/user/ada/keys/k"
CHANGES = (
    ("PUT", KEY),
    ("DELETE", KEY),
    ("DELETE", "/v1/_memory/scopes/user/ada"),
    ("POST", "/v1/_memory/reembed"),
    ("POST", "/v1/_channels"),
    ("PATCH", "/v1/_channels/team"),
    ("DELETE", "/v1/_channels/team"),
    ("POST", "/v1/_channels/team/purge"),
    ("POST", "/v1/_channels/_system%2Fruntime-state"),
)
PUBLISHES = (("POST", "/v1/_channels/team/publish"), ("POST", "/v1/_channels/_broadcast"))
TAKES = (("POST", "/v1/_channels/team/subscribe"), ("POST", "/v1/_channels/team/ack"))


@pytest.mark.parametrize(
    ("scope", "refused"),
    [
        ("runs-read", (*CHANGES, *PUBLISHES, *TAKES)),
        ("channel-read", (*CHANGES, *PUBLISHES)),
        ("channel-publish", (*CHANGES, *TAKES)),
        ("memory-write", (*CHANGES[1:], *PUBLISHES, *TAKES)),
    ],
)
async def test_a_narrow_token_changes_nothing_else(
    app: httpx.ASGITransport, scope: str, refused: tuple[tuple[str, str], ...]
) -> None:
    async with client(app, f"only-{scope}") as http:
        for method, path in {*CHANGES, *PUBLISHES, *TAKES}:
            answer = await http.request(method, path)
            assert answer.status_code == (403 if (method, path) in refused else 200), f"{method} {path}"


# --- whose data ------------------------------------------------------------------------------------------------------

OF_A_RUN = [
    route
    for route in ROUTES
    if re.search(r"\{(run_id|agent_id|session_id)\}", route.path)
    and "substrate:admin" not in route.access.scopes
    and not route.path.endswith("/blame")  # needs definitions; test_definition_query_endpoints.py
    and "{approval_id}" not in route.path  # needs an approval that waits
]


async def test_the_runs_of_others_do_not_exist_for_isolated_users_and_other_tenants(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        own, other = [await here.run(caller=caller) for caller in (IVY, ACME)]
        own_ids, other_ids = [
            {"session_id": frames[0].data["text"], **frames[1].data, "interrupt_id": "i", "call": "1.0"}
            for frames in (own, other)
        ]
        for route in OF_A_RUN:

            async def status(caller: object, ids: Mapping[str, str], route: Route = route) -> int:
                path = re.sub(r"\{(\w+)\}", lambda part: str(ids[part[1]]), route.path)
                needed = {"with": ids["run_id"]} if route.path.endswith("/diff") else {}
                body = (
                    BODY_EXAMPLES[route.body] if isinstance(route.body, type) else getattr(route.body, "example", None)
                )
                answer = await here.client(caller).request(route.method, path, json=body, params=needed)  # type: ignore[arg-type]
                return answer.status_code

            name = f"{route.method} {route.path}"
            assert await status(IVY, other_ids) == (404 if route.access.takes_isolated else 403), name
            assert await status(GLOBEX, other_ids) == 404, name
            assert await status(GLOBEX, own_ids) == 404, name
            if not route.is_mutating:
                assert await status(IVY, own_ids) == 200, name
                assert await status(ADMIN_CALLER, own_ids) == 200, name
                assert await status(READER, own_ids) == 200, name
