from loomlog.schemas.generated.hook_events import HookRegistered
from tests.services.api.serving import Served
from tests.services.application.entity_owner import event_at
from tests.services.application.world import ACME

BODY = {"owner": "ops", "name": "guard", "phase": "pre", "callback_url": "http://127.0.0.1:9/x"}


async def test_register_list_and_delete_have_the_shapes_that_clients_know(here: Served) -> None:
    client = here.client(ACME)
    made = await client.post("/v1/hooks", json=BODY | {"tools": ["HTTP"]})
    assert made.status_code == 200
    position = made.headers["x-loomlog-position"]
    assert type(event_at(here.world.log, position)) is HookRegistered
    hook_id = made.json()["id"]
    (row,) = (await client.get("/v1/hooks", params={"position": position})).json()["hooks"]
    assert row.pop("registered_at").endswith("Z")
    assert row == {
        "id": hook_id,
        "tenant_id": "acme",
        **BODY,
        "agents": [],
        "tools": ["HTTP"],
        "fail_mode": "open",
        "timeout_ms": 0,
    }
    gone = await client.delete(f"/v1/hooks/{hook_id}")
    assert (gone.status_code, gone.json()) == (200, {"deleted": hook_id})
    again = await client.delete(f"/v1/hooks/{hook_id}")
    assert (again.status_code, again.json()["code"]) == (404, "not_found")
