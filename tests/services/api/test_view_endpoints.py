"""What happened across runs, as clients see it."""

from typing import Any

import pytest

from tests.services.api.serving import Served
from tests.services.application.world import ACME, ADMIN_CALLER, GLOBEX, IVY


async def events(here: Served, caller: Any = ADMIN_CALLER, **query: Any) -> Any:
    answer = await here.client(caller).get("/v1/_events", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_what_runs_did_is_listed_newest_first(here: Served) -> None:
    older, newer = [(await here.run(caller=caller))[1].data["run_id"] for caller in (ACME, GLOBEX)]
    page = await events(here, type="done", limit=1)
    assert (page["total"], page["total_is_exact"], page["limit"], page["offset"]) == (2, True, 1, 0)
    (newest,) = page["events"]
    assert (newest["run_id"], newest["type"], newest["payload"]["type"]) == (newer, "done", "done")
    assert page["next"]
    (other,) = (await events(here, type="done", limit=1, offset=1))["events"]
    assert other["run_id"] == older
    assert other["seq"] < newest["seq"]


async def test_a_tenant_sees_its_own_runs_and_an_isolated_user_none(here: Served) -> None:
    own = (await here.run(caller=ACME))[1].data["run_id"]
    await here.run(caller=GLOBEX)
    assert {event["run_id"] for event in (await events(here, ACME))["events"]} == {own}
    assert {event["run_id"] for event in (await events(here, tenant="acme"))["events"]} == {own}
    assert (await here.client(IVY).get("/v1/_events")).status_code == 403
    assert (await here.client(ACME).get("/v1/_events?tenant=globex")).status_code == 403


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "offset=10001", "offset=-1", "from=soon", "cursor=x!"])
async def test_a_question_that_makes_no_sense_is_a_clear_400(here: Served, query: str) -> None:
    answer = await here.client().get(f"/v1/_events?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    assert query.partition("=")[0] in answer.json()["error"]
