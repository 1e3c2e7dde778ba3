from dataclasses import replace
from typing import Any

import pytest

from loomlog.connectors.configuration.channel_block import EVENT_CHANNELS, ChannelBlock
from loomlog.schemas.generated.definition_commands import DefineVersion
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.channel.access import is_system_channel
from loomlog.services.families.channel.declarations import declaration_json
from loomlog.services.families.definition.state import CHANNEL
from loomlog.services.stream.entities.answers import CommandUnanswered
from tests.services.entities import NOW_MS
from tests.services.families.channel.declared_channels import ADMIN, MEMBER, DeclaredChannels


def names(here: DeclaredChannels, tenant: str = "acme") -> list[str]:
    return [one.name for one in here.declarations.list(tenant) if one.name not in EVENT_CHANNELS]


def test_a_channel_of_the_file_is_seen_by_every_tenant() -> None:
    here = DeclaredChannels()
    plaza = here.declarations.find("anyone", "plaza")
    assert plaza is not None
    assert (plaza.scope, plaza.source, plaza.tenant) == ("global", "yaml", "")
    assert (plaza.default_ttl_s, plaza.max_messages) == (3_600, 500)
    assert here.declarations.find("anyone", "plazza") is None
    assert names(here) == ["beat", "inbox", "news", "plaza", "research/c1"]


def test_the_channels_of_events_exist_without_a_file_and_are_the_systems() -> None:
    here = DeclaredChannels({})
    scopes = {one.name: one.scope for one in here.declarations.list("acme")}
    assert scopes == {
        "_system/interrupts/pending": "user",
        "_system/interrupts/resolved": "user",
        "_system/provider-events": "global",
        "_system/runtime-state": "global",
    }
    assert all(is_system_channel(one) and one.source == "system" for one in here.declarations.list("acme"))


def test_a_file_changes_a_channel_of_events() -> None:
    here = DeclaredChannels({"_system/runtime-state": ChannelBlock(scope="global", max_messages=7)})
    declared = here.declarations.find("acme", "_system/runtime-state")
    assert declared is not None
    assert (declared.max_messages, declared.source) == (7, "yaml")
    assert is_system_channel(declared)  # by its name


async def test_what_is_declared_at_run_time_is_seen_by_its_tenant_only() -> None:
    here = DeclaredChannels()
    made = await here.create(name="mine", scope="user", description="d", default_ttl="1h", max_messages=9)
    assert declaration_json(made) == {
        "name": "mine",
        "description": "d",
        "scope": "user",
        "semantic": "queue",
        "publisher": "",
        "period": "",
        "default_ttl": 3_600,
        "max_messages": 9,
        "source": "runtime",
    }
    assert here.declarations.find("acme", "mine") == made
    assert here.declarations.find("other", "mine") is None
    assert "mine" in names(here)
    assert "mine" not in names(here, "other")


async def test_a_global_channel_is_made_by_an_administrator_and_seen_by_all() -> None:
    here = DeclaredChannels()
    with pytest.raises(Refused, match="made by an administrator") as refused:
        await here.create(name="all", scope="global")
    assert refused.value.code == "insufficient_scope"
    made = await here.create(ADMIN, name="all", scope="global")
    assert made.tenant == ""
    assert here.declarations.find("other", "all") == made
    with pytest.raises(Refused, match="only an administrator"):
        await here.update("all", description="x")
    assert (await here.update("all", ADMIN, description="x")).description == "x"


async def test_a_channel_without_a_scope_is_the_tenants() -> None:
    assert (await DeclaredChannels().create(name="mine")).scope == "tenant"


async def test_a_taken_name_is_refused() -> None:
    here = DeclaredChannels()
    await here.create(ADMIN, name="all", scope="global")
    await here.create(name="mine")
    for name in ("all", "mine"):
        with pytest.raises(Refused) as refused:
            await here.create(name=name)
        assert refused.value.code == "channel_name_in_use"
    await here.create(replace(MEMBER, tenant="other"), name="mine")


async def test_two_processes_that_declare_a_name_at_once_make_one_channel() -> None:
    here = DeclaredChannels()
    there = DeclaredChannels(entities=here.entities)  # has not read what the other one writes
    there.number = 100
    await here.create(name="mine", description="first")
    with pytest.raises(Refused) as refused:
        await there.create(name="mine", description="second")
    assert refused.value.code == "channel_name_in_use"
    made = here.declarations.find("acme", "mine")
    assert made is not None
    assert made.description == "first"


async def test_a_repeated_request_is_answered_as_before() -> None:
    here = DeclaredChannels()
    again = replace(MEMBER, command_id="same", issued_at_ms=0)
    first = await here.operations.create({"name": "mine"}, again)
    assert await here.operations.create({"name": "mine"}, again) == first
    deletion = replace(again, command_id="deletion")
    gone = await here.operations.delete("mine", deletion)
    assert await here.operations.delete("mine", deletion) == gone


async def test_an_update_keeps_what_it_does_not_name() -> None:
    here = DeclaredChannels()
    await here.create(name="mine", scope="user", description="d", max_messages=9)
    changed = await here.update("mine", description="e", default_ttl=60)
    assert (changed.scope, changed.description, changed.default_ttl_s, changed.max_messages) == ("user", "e", 60, 9)
    with pytest.raises(Refused, match="'scope' is unknown"):
        await here.update("mine", scope="agent")


async def test_a_deleted_channel_is_gone_and_its_name_free() -> None:
    here = DeclaredChannels()
    await here.create(name="mine", max_messages=1)
    await here.delete("mine")
    assert here.declarations.find("acme", "mine") is None
    assert "mine" not in names(here)
    for operation in (here.delete("mine"), here.update("mine", description="x"), here.delete("never")):
        with pytest.raises(Refused) as refused:
            await operation
        assert refused.value.code == "channel_not_found"
    assert (await here.create(name="mine")).max_messages == 0


async def test_a_channel_of_the_file_is_changed_in_the_file() -> None:
    here = DeclaredChannels()
    for operation in (
        here.create(name="plaza"),
        here.create(name="research/c1"),
        here.update("plaza", ADMIN, description="x"),
        here.delete("_system/runtime-state", ADMIN),
    ):
        with pytest.raises(Refused, match="in the file") as refused:
            await operation
        assert refused.value.code == "channel_yaml_immutable"


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({}, "invalid_request", "name is missing: expected text"),
        ({"name": 5}, "invalid_request", "name: expected text, not 5"),
        ({"name": "a/b"}, "invalid_request", "name is 'a/b': expected"),
        ({"name": "a" * 129}, "invalid_request", "expected 1 to 128 letters"),
        ({"name": "a", "scop": "user"}, "invalid_request", "'scop' is unknown; did you mean scope?"),
        ({"name": "a", "scope": "run"}, "channel_scope_invalid", "scope is 'run': expected one of global, tenant"),
        ({"name": "a", "scope": ["user"]}, "invalid_request", "scope: expected text or null, not a list of 1"),
        ({"name": "a", "semantic": "stack"}, "invalid_request", "semantic: expected 'queue', 'topic' or 'broadcast'"),
        ({"name": "a", "max_messages": True}, "invalid_request", "max_messages: expected a whole number"),
        ({"name": "a", "max_messages": 1e300}, "invalid_request", "max_messages: expected a"),
        ({"name": "a", "default_ttl": 10**40}, "invalid_request", "default_ttl: expected"),
        ({"name": "a", "period": 60}, "invalid_request", "period: needs publisher: system"),
        ({"name": "a", "publisher": "system"}, "invalid_request", "publisher: system needs a period"),
        ({"name": "a", "description": "é" * 5_000}, "invalid_request", "description: at most 8192 bytes"),
    ],
)
async def test_a_wrong_declaration_is_refused_with_what_was_expected(fields: Any, code: str, text: str) -> None:
    here = DeclaredChannels()
    with pytest.raises(Refused) as refused:
        await here.create(MEMBER, **fields)
    assert refused.value.code == code
    assert text in str(refused.value)
    assert here.entities.asked == []


async def test_a_channel_with_a_period_is_found_by_the_publisher_of_the_system() -> None:
    here = DeclaredChannels()
    await here.create(ADMIN, name="tick", scope="global", publisher="system", period="30s")
    assert [(one.name, one.period_s) for one in here.declarations.with_period()] == [("beat", 60), ("tick", 30)]


async def test_what_was_written_is_what_a_run_of_the_tenant_has_to_read() -> None:
    here = DeclaredChannels()
    assert here.operations.written_positions("acme") == ()
    _, position = await here.operations.create({"name": "mine"}, MEMBER)
    assert here.operations.written_positions("acme") == (position,)
    assert here.operations.written_positions("other") == ()
    _, position = await here.operations.create({"name": "all", "scope": "global"}, replace(ADMIN, command_id="d"))
    assert here.operations.written_positions("other") == (position,)


async def test_an_owner_that_does_not_answer_is_unavailable_and_the_outcome_unknown() -> None:
    here = DeclaredChannels()
    here.entities.error = CommandUnanswered("30 s")
    with pytest.raises(Unavailable) as unavailable:
        await here.create(name="mine")
    assert unavailable.value.is_unknown


@pytest.mark.parametrize(
    ("tenant", "name", "content", "text"),
    [
        ("acme", "a/b", '{"scope": "user"}', "expected 1 to 128 letters"),
        ("acme", "a", '{"scope": "global"}', "global channels are those of all tenants"),
        ("", "a", '{"scope": "user"}', "others belong to a tenant"),
        ("acme", "a", "{}", "scope: it is missing"),
        ("acme", "a", '{"scope": "user", "size": 1}', "size"),
        ("acme", "a", "[]", "expected an object"),
    ],
)
async def test_the_owner_checks_what_a_sender_of_its_own_may_have_left_out(
    tenant: str, name: str, content: str, text: str
) -> None:
    here = DeclaredChannels()
    envelope = CommandEnvelope(command_id="x", tenant=tenant, subject="s", issued_at_ms=NOW_MS)
    answer = await here.ask(DefineVersion(envelope=envelope, kind=CHANNEL, name=name, content=content), wait_s=1)
    (event,) = answer.events
    assert isinstance(event, CommandRefused)
    assert text in event.message
