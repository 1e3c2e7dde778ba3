"""Who may limit whom, who sees what was spent, and that a limit that was answered stands."""

import asyncio
from typing import Any

import pytest

from loomlog.schemas.generated.run_events import RunRefused
from loomlog.schemas.generated.values import LimitNotice
from loomlog.services.application.runs.forks import ForkRequest
from loomlog.services.application.runs.requests import RunRequest
from loomlog.services.core.access.decide import Caller
from loomlog.services.families.ports.spending_limits import LimitRequest
from tests.services.application.entity_owner import own
from tests.services.application.owner import NOW_MS, PARTITIONS
from tests.services.application.world import (
    ACME,
    ADMIN_CALLER,
    GLOBEX,
    IVY,
    READER,
    World,
    declined,
    pieces_of,
    until,
    world,
)


def of_user(user: str = "ivy", tenant: str | None = "acme", **amounts: int) -> LimitRequest:
    return LimitRequest(scope="user", tenant=tenant, scope_id=user, **(amounts or {"hard_tokens": 10}))  # type: ignore[arg-type]


OPERATOR = LimitRequest(scope="operator", hard_micros=5)
TENANT_ACME = LimitRequest(scope="tenant", tenant="acme", soft_tokens=5)


async def put(made: World, caller: Caller, wanted: LimitRequest) -> Any:
    return await made.layer.limits.set(caller, wanted)


async def run(made: World, caller: Caller) -> None:
    accepted = await made.layer.runs.start(caller, RunRequest(agent="soaker", prompt="go"))
    await until(lambda: accepted.run_id in made.twin.tables["runs"] or made.project())
    accepted.stream.close()


async def test_a_limit_stands_when_it_was_answered() -> None:
    async with world() as made:
        view, position = await put(made, ACME, of_user())
        assert (view.hard_tokens, view.by, view.used_tokens) == (10, "acme-op", 0)
        assert position == "loom.entity.events/3:2"
        [listed] = await made.layer.limits.limits(ADMIN_CALLER)
        assert listed == view
        assert await made.layer.limits.remove(ACME, "user", None, "ivy") == "loom.entity.events/3:3"
        assert await made.layer.limits.limits(ADMIN_CALLER) == []
        assert await made.layer.limits.remove(ACME, "user", None, "ivy") == ""


async def test_what_was_used_before_there_was_a_limit_counts() -> None:
    async with world() as made:
        await run(made, IVY)
        view, _ = await put(made, ACME, of_user())
        assert view.used_tokens == 4
        others, _ = await put(made, ACME, of_user("rob"))
        assert others.used_tokens == 0
        assert (await put(made, ADMIN_CALLER, OPERATOR))[0].used_tokens == 4
        assert (await put(made, ADMIN_CALLER, OPERATOR))[0].used_tokens == 4  # and not twice


async def test_a_limit_is_not_set_before_all_is_counted_that_was_spent_without_it() -> None:
    async with world() as made:
        made.projecting = False
        accepted = await made.layer.runs.start(IVY, RunRequest(agent="soaker", prompt="go"))
        await pieces_of(accepted.stream)
        actual = await declined(put(made, ACME, of_user()))
        assert (actual.code, actual.retry_after_s) == ("not_yet", 1)
        assert actual.details["lag"] > 0
        assert await made.layer.limits.limits(ADMIN_CALLER) == []
        made.projecting = True
        view, _ = await put(made, ACME, of_user())
        assert view.used_tokens == 4
        made.projecting = False
        assert (await put(made, ACME, of_user(hard_tokens=11)))[0].used_tokens == 4  # its sum is in the books


async def test_whoever_set_a_limit_starts_runs_that_wait_for_it() -> None:
    async with world() as made:
        await run(made, IVY)
        _, position = await put(made, ACME, of_user())
        await run(made, IVY)
        removed = await made.layer.limits.remove(ACME, "user", None, "ivy")
        forked = await made.layer.forks.fork(IVY, made.commands()[0].run_id, ForkRequest(at_seq=2, prompt="other"))
        forked.stream.close()
    assert [command.after for command in made.commands()] == [(), (position,), (removed,)]


async def test_the_position_of_a_limit_is_waited_for() -> None:
    async with world(waits={"position_s": 0.05}) as made:
        _, position = await put(made, ACME, of_user())
        await made.layer.barrier.wait_for([position])
        made.layer.resources.entities.replicas.next_offsets[3] = 1
        actual = await declined(made.layer.barrier.wait_for([position]))
        assert (actual.code, actual.details["lag"]) == ("not_yet", int(position.rpartition(":")[2]))


MAY: list[tuple[Caller, LimitRequest, str]] = [
    (ADMIN_CALLER, OPERATOR, ""),
    (ADMIN_CALLER, TENANT_ACME, ""),
    (ADMIN_CALLER, of_user(), ""),
    (ACME, TENANT_ACME, ""),
    (ACME, of_user(), ""),
    (ACME, of_user(tenant=None), ""),
    (ACME, OPERATOR, "insufficient_scope"),
    (GLOBEX, TENANT_ACME, "insufficient_scope"),
    (GLOBEX, of_user(), "insufficient_scope"),
    (ACME, LimitRequest(scope="user", tenant="acme", hard_tokens=1), "bad_request"),
    (ACME, LimitRequest(scope="user", tenant="acme", scope_id="ivy"), "bad_request"),
    (ADMIN_CALLER, LimitRequest(scope="operator", tenant="acme", hard_tokens=1), "bad_request"),
]


@pytest.mark.parametrize(("caller", "wanted", "code"), MAY)
async def test_whoever_operates_a_tenant_limits_that_tenant_and_nobody_else(
    caller: Caller, wanted: LimitRequest, code: str
) -> None:
    async with world() as made:
        if code:
            assert (await declined(put(made, caller, wanted))).code == code
            assert await made.layer.limits.limits(ADMIN_CALLER) == []
        else:
            view, _ = await put(made, caller, wanted)
            assert (view.scope, view.tenant) == (wanted.scope, "" if wanted.scope == "operator" else "acme")


SEEN: list[tuple[Caller, list[str]]] = [
    (ADMIN_CALLER, ["operator", "tenant", "user", "user"]),
    (ACME, ["tenant", "user", "user"]),
    (READER, ["tenant", "user", "user"]),
    (IVY, ["user"]),
    (GLOBEX, []),
]


@pytest.mark.parametrize(("caller", "scopes"), SEEN)
async def test_everybody_sees_the_limits_within_reach(caller: Caller, scopes: list[str]) -> None:
    async with world() as made:
        for expected in (of_user("ivy"), of_user("rob"), OPERATOR, TENANT_ACME):
            await put(made, ADMIN_CALLER, expected)
        assert [view.scope for view in await made.layer.limits.limits(caller)] == scopes
        assert [v.tenant for v in await made.layer.limits.limits(ADMIN_CALLER, "acme")] == ["acme"] * 3


async def test_without_a_runtime_a_limit_is_said_to_be_pending_and_is_set_when_one_comes() -> None:
    async with world(entity_owner=False, waits={"control_s": 0.05}) as made:
        assert (await declined(put(made, ACME, of_user()))).code == "limit_pending"
        owner = asyncio.create_task(own(made.log, PARTITIONS, lambda: NOW_MS))
        await until(lambda: made.layer.limits._accounts.state.limits)
        owner.cancel()
        await asyncio.wait([owner])


async def test_usage_says_which_calls_were_paid_with_a_key_of_their_run() -> None:
    async with world() as made:
        accepted = await made.layer.runs.start(IVY, RunRequest(agent="silent", prompt="go"))
        await until(lambda: accepted.run_id in made.states)
        made.reply(accepted.run_id, credential_source="run")
        accepted.stream.close()
        await run(made, IVY)
        made.project()
        rows = await made.layer.usage.report(ADMIN_CALLER, ["source"])
    assert [(row["source"], row["call_count"]) for row in rows] == [("operator", 1), ("run", 1)]


async def test_usage_is_grouped_as_asked_and_confined_to_the_caller() -> None:
    async with world() as made:
        await run(made, IVY)
        await run(made, IVY)
        await run(made, GLOBEX)
        rows = await made.layer.usage.report(ADMIN_CALLER, ["tenant", "user", "source"])
        assert [(row["tenant_id"], row["user_id"], row["source"], row["call_count"]) for row in rows] == [
            ("acme", "ivy", "operator", 2),
            ("globex", "globex-op", "operator", 1),
        ]
        assert (rows[0]["input_tokens"], rows[0]["output_tokens"], rows[0]["unpriced_calls"]) == (6, 2, 2)
        assert "currency" not in rows[0]
        assert len(await made.layer.usage.report(IVY, ["user"])) == 1
        assert await made.layer.usage.report(READER, ["model"]) != []
        assert len(await made.layer.usage.report(ADMIN_CALLER, ["tenant"], tenant="globex")) == 1
        assert await made.layer.usage.report(ADMIN_CALLER, [], since_ms=4_000_000_000_000) == []
        assert (await declined(made.layer.usage.report(ACME, [], tenant="globex"))).code == "insufficient_scope"
        assert (await declined(made.layer.usage.report(ADMIN_CALLER, ["colour"]))).code == "bad_request"


async def test_a_run_that_a_limit_forbids_is_refused_with_the_limit() -> None:
    notice = LimitNotice(scope="user", scope_id="ivy", severity="hard", used=18, limit=10, message="no more")
    async with world() as made:
        asked = asyncio.create_task(made.layer.runs.start(IVY, RunRequest(agent="deaf", prompt="go")))
        await until(made.commands)
        refusal = RunRefused(code="token_limit_exceeded", message="token_limit_exceeded: no more", limit=notice)
        made.happen(made.commands()[0].run_id, refusal)
        actual = await declined(asked)
    assert (actual.code, actual.retry_after_s) == ("token_limit_exceeded", None)
    assert dict(actual.details) == {
        "scope": "user",
        "scope_id": "ivy",
        "window": "month",
        "unit": "tokens",
        "used": 18,
        "limit": 10,
        "message": "no more",
    }
