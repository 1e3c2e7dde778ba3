import re

import pytest
from starlette.routing import compile_path

from loomlog.services.api.route_lookup import RouteLookup
from loomlog.services.api.routes import ROUTES


async def application(scope: object, receive: object, send: object) -> None:
    """Never called."""


def first_of_table(method: str, path: str) -> tuple[str, dict[str, str]] | None:
    """As FastAPI finds it, but that a path without parameters goes first."""
    exact = [route for route in ROUTES if (route.method, route.path) == (method, path)]
    for route in (*exact, *ROUTES):
        if route.method == method and (match := compile_path(route.path)[0].match(path)):
            return route.path, match.groupdict()
    return None


APPLICATIONS = [(route.method, route.path, object()) for route in ROUTES]
PATHS = {id(one): path for _, path, one in APPLICATIONS}
LOOKUP = RouteLookup(APPLICATIONS)  # type: ignore[arg-type]  # only their identity counts


@pytest.mark.parametrize("value", ["a", "events", "a/b", "", "ä b", "%2F", "a\n"])
def test_every_route_is_found_as_the_table_has_it(value: str) -> None:
    found = 0
    for route in ROUTES:
        path = re.sub(r"\{[^}]*\}", value, route.path)
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"):
            expected, actual = first_of_table(method, path), LOOKUP.find(method, path)
            assert (actual and (PATHS[id(actual[0])], actual[1])) == expected, (method, path)
            found += expected is not None
    assert found > 20


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/v1/runs/", "/v1/nothing/x", "v1/runs", "//v1/runs"])
def test_what_is_no_route_is_not_found(path: str) -> None:
    assert LOOKUP.find("GET", path) is None


def test_a_parameter_in_the_group_of_a_path_is_refused_when_the_application_is_built() -> None:
    with pytest.raises(AssertionError, match="have to be fixed"):
        RouteLookup([("GET", "/{anything}/x", application)])
