"""Registering hooks: who may, what is a registration, and whose hooks anybody sees."""

import asyncio
from typing import Any

import pytest

from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.http.signed_callbacks import callback_secrets
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.schemas.generated.hook_events import HookRegistered, HookRemoved
from loomlog.services.application.runs.requests import RunRequest
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.operations import Answer
from loomlog.services.core.refusals import Refused
from loomlog.services.families.hook import limits
from loomlog.services.families.hook.api import LIST, REGISTER, REMOVE, Hook, HookCreated
from loomlog.services.families.hook.services import HookOptions
from tests.services.application.entity_owner import event_at
from tests.services.application.owner import NOW_MS
from tests.services.application.performing import perform
from tests.services.application.world import ACME, ADMIN_CALLER, GLOBEX, IVY, READER, World, declined, world

REQUEST = {"owner": "ops", "name": "guard", "phase": "pre", "callback_url": "https://hooks.example/x"}
KEY = SecretKey(keys=(bytes(32),))


async def registered(made: World, caller: Caller = ACME, **fields: Any) -> Answer[HookCreated]:
    return await perform(made, REGISTER, caller, **{**REQUEST, **fields})


async def register(made: World, caller: Caller = ACME, **fields: Any) -> str:
    return (await registered(made, caller, **fields)).value.id


async def remove(made: World, hook_id: str, caller: Caller = ACME) -> str:
    """Remove a hook; return the position."""
    return (await perform(made, REMOVE, caller, hook_id=hook_id)).positions[0]


async def listed(made: World, caller: Caller) -> list[Hook]:
    hooks: list[Hook] = (await perform(made, LIST, caller)).value.hooks
    return hooks


async def seen(made: World, caller: Caller) -> list[str]:
    return [hook.id for hook in await listed(made, caller)]


async def test_a_hook_is_in_the_log_with_who_and_where_before_it_is_answered() -> None:
    async with world() as made:
        actual = await registered(made, agents=["a/b"], tools=["mcp__*"], timeout_ms=60_000)
        event = event_at(made.log, actual.positions[0])
        assert type(event) is HookRegistered
        assert event.by == "acme-op"
        (hook,) = await listed(made, ACME)
        assert hook == Hook(
            id=actual.value.id,
            tenant_id="acme",
            owner="ops",
            name="guard",
            phase="pre",
            agents=("a/b",),
            tools=("mcp__*",),
            callback_url="https://hooks.example/x",
            fail_mode="open",
            timeout_ms=60_000,
            registered_at=format_rfc3339(NOW_MS),
        )
        assert actual.value.id.startswith("hook_")


async def test_a_run_that_is_started_after_a_registration_is_decided_by_an_owner_that_has_read_it() -> None:
    async with world() as made:
        (position,) = (await registered(made)).positions
        started = await made.layer.runs.start(ACME, RunRequest(agent="soaker", prompt="go"))
        started.stream.close()
        assert position in made.commands()[-1].after


async def test_the_same_name_again_gives_a_new_id_and_keeps_the_place() -> None:
    async with world() as made:
        first, second = await register(made), await register(made, name="other")
        again = await register(made, timeout_ms=7)
        assert again != first
        assert await seen(made, ACME) == [again, second]


async def test_what_is_removed_is_gone_and_cannot_be_removed_again() -> None:
    async with world() as made:
        hook_id = await register(made)
        position = await remove(made, hook_id)
        assert type(event_at(made.log, position)) is HookRemoved
        assert await seen(made, ACME) == []
        assert (await declined(remove(made, hook_id))).code == "not_found"


async def test_hooks_of_others_do_not_exist() -> None:
    async with world() as made:
        ours, theirs, everywhere = (
            await register(made),
            await register(made, GLOBEX),
            await register(made, ADMIN_CALLER),
        )
        assert (await seen(made, ACME), await seen(made, GLOBEX)) == ([ours], [theirs])
        assert await seen(made, ADMIN_CALLER) == [ours, theirs, everywhere]
        for hook_id in (theirs, everywhere, "hook_unknown"):
            assert (await declined(remove(made, hook_id))).code == "not_found"
        await remove(made, ours, ADMIN_CALLER)
        assert await seen(made, ACME) == []


async def test_the_shared_token_registers_for_every_tenant() -> None:
    async with world() as made:
        await register(made, ADMIN_CALLER)
        assert (await listed(made, ADMIN_CALLER))[0].tenant_id == ""


@pytest.mark.parametrize("caller", [IVY, READER])
async def test_who_does_not_operate_the_tenant_may_do_nothing_with_hooks(caller: Caller) -> None:
    async with world() as made:
        for asked in (register(made, caller), remove(made, "hook_x", caller), listed(made, caller)):
            assert (await declined(asked)).code == "insufficient_scope"


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"owner": ""}, "owner"),
        ({"name": ""}, "name"),
        ({"name": "x" * 257}, "name"),
        ({"owner": "a\nb"}, "owner"),
        ({"phase": "during"}, "phase"),
        ({"fail_mode": "maybe"}, "fail_mode"),
        ({"timeout_ms": -1}, "timeout_ms"),
        ({"timeout_ms": 60_001}, "timeout_ms"),
        ({"callback_url": "ftp://x/y"}, "callback_url"),
        ({"callback_url": "hooks.example"}, "callback_url"),
        ({"callback_url": "https://a:b@hooks.example/"}, "callback_url"),
        ({"callback_url": "https://hooks.example/" + "x" * 2_000}, "callback_url"),
        ({"agents": ["a*"]}, "agents"),
        ({"agents": [""]}, "agents"),
        ({"agents": ["a"] * 257}, "agents"),
        ({"tools": [""]}, "tools"),
        ({"tools": ["a*b"]}, "tools"),
        ({"tools": ["**"]}, "tools"),
        ({"tools": ["t"] * 257}, "tools"),
    ],
)
async def test_what_is_no_registration_is_refused_before_anything_is_written(wrong: dict[str, Any], field: str) -> None:
    async with world() as made:
        actual = await declined(registered(made, **wrong))
        assert (actual.code, field in actual.message) == ("invalid_registration", True)
        assert await seen(made, ADMIN_CALLER) == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/x", "http://[::1]:9/x", "HTTPS://Hooks.Example/x"])
async def test_where_an_address_leads_is_asked_when_it_is_dialled(url: str) -> None:
    async with world() as made:
        assert await register(made, callback_url=url)


async def test_a_tenant_has_only_so_many_and_may_still_replace_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HOOKS_PER_TENANT_MAX", 2)
    async with world() as made:
        await register(made)
        await register(made, name="b")
        assert (await declined(registered(made, name="c"))).code == "invalid_registration"
        await register(made, timeout_ms=5)
        await register(made, GLOBEX)


async def test_whoever_registers_is_told_what_callbacks_are_signed_with() -> None:
    async with world(family_options=[HookOptions(secret=KEY)]) as made:
        secret = (await registered(made)).value.signing_secret
        assert secret == callback_secrets(KEY, "acme", "ops", "guard")[0]
        everything = [record.value or b"" for records in made.log.records.values() for record in records]
        assert not any(secret.encode() in value for value in everything)


async def test_without_a_key_nothing_is_signed() -> None:
    async with world() as made:
        assert (await registered(made)).value.signing_secret is None


async def test_of_two_that_register_the_last_place_at_once_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HOOKS_PER_TENANT_MAX", 1)
    async with world() as made:
        results = await asyncio.gather(register(made), register(made, name="b"), return_exceptions=True)
        assert [type(result) for result in results if not isinstance(result, str)] == [Refused]
        assert len(await seen(made, ACME)) == 1
