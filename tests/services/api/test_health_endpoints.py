from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.services.api.serving import Served, served
from tests.services.application.health.test_health_checks import whole_log
from tests.services.application.log.memory_access import memory_access


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path, log_access=memory_access(whole_log())) as made:
        yield made


async def test_the_parts_are_told_as_lines(here: Served) -> None:
    report = (await here.client().get("/v1/_doctor")).json()
    states = {check["name"]: check["state"] for check in report["checks"]}
    assert (states["broker"], states["topics"]) == ("ok", "ok")
    assert states["insights"] == "off", "nobody has signed anything here"
    assert report["ok"] == all(state != "fail" for state in states.values())
    assert all(set(check) == {"name", "state", "text", "remedy"} for check in report["checks"])


async def test_a_failure_is_an_answer(here: Served) -> None:
    here.world.postgres_is_away = True
    answer = await here.client().get("/v1/_doctor")
    assert (answer.status_code, answer.json()["ok"]) == (200, False)
