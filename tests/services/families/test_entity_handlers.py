"""The operations that follow from commands and queries, below their transports: content, refusals, access and JSON."""

from dataclasses import replace as changed
from typing import Any

import pytest

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.records import replace
from loomlog.services.application.content import PLAINTEXT, ContentAccess
from loomlog.services.application.dispatch import Dispatch
from loomlog.services.core.access.scopes import USER
from loomlog.services.core.entity_operations import entity_operations
from loomlog.services.core.families import NAME_BYTES_MAX, name_problem
from loomlog.services.core.refusals import Refused
from loomlog.services.families.entity_handlers import EntityHandlers
from tests.services.application.world import ACME, ADMIN_CALLER, IVY, READER
from tests.services.entities import COUNTER, NOW_MS, Counter, MemoryEntities
from tests.services.stream.encryption.test_subject_keys import TOPIC, erased, keys_over

NO_SCOPE = replace(READER, scopes=frozenset())
(INCREMENT,), (REMAINING,) = COUNTER.commands, COUNTER.queries


class Here:
    """The operations of a family over entities in memory."""

    def __init__(self, family: Any = COUNTER, content: ContentAccess = PLAINTEXT) -> None:
        self.memory = MemoryEntities(family)
        handlers = EntityHandlers(self.memory, self.memory, decrypt=content.decrypt).by_operation([family])
        tokens = iter(range(1_000))
        self.dispatch = Dispatch(handlers, clock_ms=lambda: NOW_MS, new_token=lambda: f"t{next(tokens)}")
        self.operations = {operation.name.partition(".")[2]: operation for operation in entity_operations(family)}

    async def ask(self, verb: str, caller: Any = ACME, *, tenant: str = "", **fields: Any) -> Any:
        return (await self.dispatch.request(self.operations[verb], caller, fields, tenant=tenant)).value


async def test_content_is_decrypted_in_replies_states_answers_and_refusals_until_it_is_erased() -> None:
    keys = keys_over(MemoryLog({TOPIC: 1}))
    token = (await keys.cipher_for("acme", "ivy")).text("a secret")
    family: Any = changed(
        COUNTER,
        commands=[changed(INCREMENT, reply=lambda events: {"notes": [f"said: {token}"]})],
        queries=[changed(REMAINING, answer=lambda state, parameters: {"note": token})],
        view=lambda state: {"value": state.value, "note": {"text": token}},
    )
    here = Here(family, ContentAccess(keys))

    async def seen(caller: Any, tenant: str = "") -> list[str]:
        reply = await here.ask("increment", caller, tenant=tenant, name="a", by=1)
        shown = await here.ask("show", caller, tenant=tenant, id="a")
        page = await here.ask("ls", caller, tenant=tenant)
        answer = await here.ask("remaining", caller, tenant=tenant, id="a")
        assert page.items == [shown]
        return [reply.fields["notes"][0], shown.state["note"]["text"], answer.fields["note"]]

    assert await seen(ACME) == ["said: a secret", "a secret", "a secret"]
    assert await seen(ADMIN_CALLER, "acme") == ["said: a secret", "a secret", "a secret"]
    # A key opens only what belongs to its tenant.
    assert "a secret" not in "".join(await seen(ADMIN_CALLER))
    await erased(keys)
    assert await seen(ACME) == ["said: [erased]", "[erased]", "[erased]"]


async def test_a_refusal_may_repeat_content() -> None:
    keys = keys_over(MemoryLog({TOPIC: 1}))
    token = (await keys.cipher_for("acme", "ivy")).text("a secret")
    refusing = changed(COUNTER.rules, decide=lambda state, command, at: [CommandRefused(code="no", message=token)])
    with pytest.raises(Refused, match="a secret"):
        await Here(changed(COUNTER, rules=refusing), ContentAccess(keys)).ask("increment", name="a", by=1)


async def test_a_confined_caller_needs_a_family_that_is_meant_for_it() -> None:
    with pytest.raises(Refused) as caught:
        await Here().ask("increment", IVY, name="a", by=1)
    assert caught.value.code == "insufficient_scope"
    own = Here(changed(COUNTER, scope=USER, commands=[changed(INCREMENT, scope=USER)]))
    assert (await own.ask("increment", IVY, name="a", by=1)).fields["value"] == 1
    assert (await own.ask("show", IVY, id="a")).state["value"] == 1


async def test_a_state_with_large_numbers_and_bytes_is_json() -> None:
    here = Here()
    await here.ask("increment", name="a", by=1)
    entity = here.memory.entities["acme", "a"]
    here.memory.entities["acme", "a"] = replace(entity, state=Counter(value=2**70, stamp=b"\x01"))
    assert (await here.ask("show", id="a")).state == {"value": str(2**70), "stamp": "AQ=="}


@pytest.mark.parametrize("name", ["", "ä" * (NAME_BYTES_MAX // 2) + "x", "a\nb", "\0", "a\u2028b", "\ud800", "\x7f"])
async def test_an_id_that_no_store_takes_is_refused(name: str) -> None:
    assert name_problem(name)
    here = Here()
    for verb in ("show", "remaining"):
        with pytest.raises(Refused) as caught:
            await here.ask(verb, id=name)
        assert caught.value.code == "bad_request"
    assert not here.memory.waited


@pytest.mark.parametrize("name", ["a", "a/b c:d", "ä" * (NAME_BYTES_MAX // 2), "😀"])
def test_any_other_id_is_taken(name: str) -> None:
    assert name_problem(name) == ""


async def test_an_id_with_a_slash_in_its_tenant_is_refused_because_two_would_be_one() -> None:
    with pytest.raises(Refused, match="letters, digits, _ and -"):
        await Here().ask("show", ADMIN_CALLER, tenant="a/b", id="c")


def test_what_no_transport_offers_is_no_operation() -> None:
    inner = changed(COUNTER, scope="", tool="", queries=[], commands=[changed(INCREMENT, in_transports=False)])
    assert entity_operations(inner) == ()
    of_agents = entity_operations(changed(inner, tool="Counter"))
    assert [(operation.name, operation.http) for operation in of_agents] == [
        ("counter.increment", ()),
        ("counter.ls", ()),
        ("counter.show", ()),
    ]
