"""What an installation says of itself, to whom."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio

from tests.services.api.serving import Served, served
from tests.services.application.world import ACME, ADMIN_CALLER, IVY


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path) as made:
        made.service.features = {"scheduler": True, "documents": False}
        yield made


async def config(here: Served, caller: Any) -> Any:
    return (await here.client(caller).get("/v1/config")).json()


async def test_the_view_widens_with_its_caller(here: Served) -> None:
    admin, tenant = await config(here, ADMIN_CALLER), await config(here, ACME)
    assert (admin["view"], tenant["view"], (await config(here, IVY))["view"]) == (
        "admin",
        "authenticated",
        "authenticated",
    )
    assert admin["features"]["scheduler"] == {"available": True}
    assert admin["features"]["storage"]["available"]
    assert "storage" not in tenant["features"]
    assert {"commit", "build_time", "url"} < tenant["instance"].keys()
    assert [tier["name"] for tier in tenant["user_tiers"]] == ["default", "resilient"]
    assert tenant["limits"]["max_request_bytes"] == here.service.max_request_bytes
    (model,) = tenant["models"]
    assert model == {
        "provider": "mock",
        "model": "mock-generic",
        "tiers": ["middle"],
        "active": True,
        "selected": True,
    }
    assert {"provider": "mock", "active": True} in tenant["providers"]


async def test_without_a_token_it_is_refused(here: Served) -> None:
    assert (await here.client(None).get("/v1/config")).status_code == 401


async def test_a_public_view_has_neither_plans_nor_limits_and_a_wrong_token_none(here: Served) -> None:
    here.service.public_config = True
    view = await config(here, None)
    assert view["view"] == "public"
    assert view["instance"] == {"version": "1.2.3"}
    assert view.keys() & {"user_tiers", "limits"} == set()
    assert (await config(here, ADMIN_CALLER))["view"] == "admin"
    wrong = await here.client(None).get("/v1/config", headers={"authorization": "Bearer wrong"})
    assert wrong.status_code == 401
    assert (await here.client(None).get("/v1/_routing")).status_code == 401


async def test_what_is_kept_how_long_is_said(here: Served) -> None:
    here.service.memory_changes_hours = 24
    view = (await here.client(ACME).get("/v1/_retention")).json()
    assert (view["enabled"], view["chats_mode"], view["admin"]) == (False, "off", False)
    kept = {one["what"]: one["max_age_ms"] for one in view["kept"]}
    assert kept["the feed of changes of memory"] == 24 * 3_600_000
    assert kept["runs, sessions and transcripts"] is None
    assert (await here.client(IVY).get("/v1/_retention")).status_code == 403
