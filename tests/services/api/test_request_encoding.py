"""Names in a path or a query are exactly what was sent: bytes that are no UTF-8 are refused on every route."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from loomlog.services.api.routes import ROUTES
from loomlog.services.families.memory import FAMILY
from tests.services.api.serving import Served, served
from tests.services.application.world import ADMIN_CALLER
from tests.services.entities import MemoryEntities

BAD = ("%ED%A0%80", "%FF", "a%C3", "%C0%AF")
"""Half of a surrogate pair, a byte of no character, half of one, and a slash in too many bytes."""
WITH_PARAMETERS = sorted({(route.method, route.path) for route in ROUTES if "{" in route.path})
RAW = "/v1/_memory/scopes/user/ada/keys/"


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path) -> AsyncIterator[Served]:
    entities = MemoryEntities(FAMILY)
    async with served(tmp_path, entity_commands=entities, entity_reads=entities) as made:
        yield made


async def test_no_route_takes_a_path_that_is_not_utf8(here: Served) -> None:
    assert len(WITH_PARAMETERS) > 50
    client = here.client(ADMIN_CALLER)
    for number, (method, path) in enumerate(WITH_PARAMETERS):
        answer = await client.request(method, re.sub(r"\{[^}]*\}", BAD[number % len(BAD)], path))
        assert (answer.status_code, "percent-encoded UTF-8" in answer.text) == (400, True), (method, path, answer.text)


@pytest.mark.parametrize("bad", BAD)
async def test_no_key_and_no_query_is_read_as_another(here: Served, bad: str) -> None:
    client = here.client(ADMIN_CALLER)
    refused = await client.put(RAW + bad, json={"value": 1})
    assert (refused.status_code, "the path is not" in refused.text) == (400, True)
    refused = await client.get(f"/v1/_memory/scopes/user/ada/keys?prefix={bad}")
    assert (refused.status_code, "the query is not" in refused.text) == (400, True)
    assert (await client.put(RAW + "%EF%BF%BD", json={"value": 1})).status_code == 200
