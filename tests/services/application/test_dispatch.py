"""Which tenant an operation is about."""

from typing import Any

import pytest

from loomlog.services.application.dispatch import Dispatch
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import TENANT
from loomlog.services.core.operations import Answer, Call, Effect, NoInput, NoOutput, Operation
from loomlog.services.core.refusals import Refused
from tests.services.application.world import ACME, ADMIN_CALLER, GLOBEX

LIST_OWN, LIST_ALL = (
    Operation(
        name=f"sketch.list_{spans_tenants}",
        summary="List them.",
        input=NoInput,
        output=NoOutput,
        access=requires(TENANT),
        effect=Effect.READ,
        spans_tenants=spans_tenants,
    )
    for spans_tenants in (False, True)
)


async def tenant_of(operation: Operation[Any, Any], caller: Caller, named: str) -> str:
    async def handle(call: Call[NoInput]) -> Answer[NoOutput]:
        tenants.append(call.caller.tenant)
        return Answer(value=NoOutput())

    tenants: list[str] = []
    dispatch = Dispatch({operation: handle}, clock_ms=lambda: 1, new_token=lambda: "t")
    await dispatch.request(operation, caller, {}, tenant=named)
    return tenants[0]


@pytest.mark.parametrize(
    ("operation", "caller", "named", "tenant"),
    [
        (LIST_OWN, ACME, "", "acme"),
        (LIST_OWN, ADMIN_CALLER, "", ADMIN_CALLER.tenant),
        (LIST_OWN, ADMIN_CALLER, "globex", "globex"),
        (LIST_ALL, ACME, "", "acme"),
        (LIST_ALL, GLOBEX, "globex", "globex"),
        (LIST_ALL, ADMIN_CALLER, "", ""),
        (LIST_ALL, ADMIN_CALLER, ADMIN_CALLER.tenant, ADMIN_CALLER.tenant),
    ],
)
async def test_administrators_may_mean_another_tenant_or_all(
    operation: Operation[Any, Any], caller: Caller, named: str, tenant: str
) -> None:
    assert await tenant_of(operation, caller, named) == tenant


@pytest.mark.parametrize("operation", [LIST_OWN, LIST_ALL])
async def test_members_mean_their_own_tenant(operation: Operation[Any, Any]) -> None:
    with pytest.raises(Refused) as caught:
        await tenant_of(operation, ACME, "globex")
    assert caught.value.code == "insufficient_scope"
