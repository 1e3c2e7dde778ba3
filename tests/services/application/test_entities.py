"""The use cases of families, beside their transport: content, refusals and ids."""

from dataclasses import replace as changed
from typing import Any

import pytest

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.records import replace
from loomlog.services.application.content import PLAINTEXT, ContentAccess
from loomlog.services.application.entities import Entities
from loomlog.services.application.errors import FAMILY_CODES, family_refusal
from loomlog.services.core.access.scopes import USER
from loomlog.services.core.error_codes import STATUS_BY_CODE
from loomlog.services.core.families import NAME_BYTES_MAX, name_problem
from loomlog.services.core.refusals import Refused
from tests.services.application.world import ACME, ADMIN_CALLER, IVY, READER
from tests.services.entities import COUNTER, NOW_MS, Counter, MemoryEntities
from tests.services.stream.encryption.test_subject_keys import TOPIC, erased, keys_over

NO_SCOPE = replace(READER, scopes=frozenset())
(INCREMENT,), (REMAINING,) = COUNTER.commands, COUNTER.queries


def entities_over(memory: MemoryEntities, content: ContentAccess = PLAINTEXT) -> Entities:
    tokens = iter(range(1_000))
    return Entities(memory, memory, content, clock_ms=lambda: NOW_MS, new_token=lambda: f"t{next(tokens)}", wait_s=1.0)


async def test_content_is_decrypted_in_replies_states_answers_and_refusals_until_it_is_erased() -> None:
    keys = keys_over(MemoryLog({TOPIC: 1}))
    token = (await keys.cipher_for("acme", "ivy")).text("a secret")
    family: Any = changed(
        COUNTER,
        commands=[changed(INCREMENT, reply=lambda events: {"notes": [f"said: {token}"]})],
        queries=[changed(REMAINING, answer=lambda state, parameters: {"note": token})],
        view=lambda state: {"value": state.value, "note": {"text": token}},
    )
    memory = MemoryEntities(family)
    use = entities_over(memory, ContentAccess(keys))
    row, query = family.commands[0], family.queries[0]

    async def seen(caller: Any, tenant: str = "") -> list[str]:
        reply, _ = await use.command(caller, family, row, {"name": "a", "by": 1}, tenant=tenant)
        shown = await use.show(caller, family, "a", tenant=tenant)
        page = await use.list(caller, family, tenant=tenant)
        answer = await use.query(caller, family, query, "a", {}, tenant=tenant)
        assert page["items"] == [shown]
        return [reply["notes"][0], shown["state"]["note"]["text"], answer["note"]]

    assert await seen(ACME) == ["said: a secret", "a secret", "a secret"]
    assert await seen(ADMIN_CALLER, "acme") == ["said: a secret", "a secret", "a secret"]
    # A key opens only what belongs to its tenant.
    assert "a secret" not in "".join(await seen(ADMIN_CALLER))
    await erased(keys)
    assert await seen(ACME) == ["said: [erased]", "[erased]", "[erased]"]


async def test_a_refusal_may_repeat_content() -> None:
    keys = keys_over(MemoryLog({TOPIC: 1}))
    token = (await keys.cipher_for("acme", "ivy")).text("a secret")
    memory = MemoryEntities(
        changed(
            COUNTER,
            rules=changed(COUNTER.rules, decide=lambda state, command, at: [CommandRefused(code="no", message=token)]),
        )
    )
    with pytest.raises(Refused, match="a secret"):
        await entities_over(memory, ContentAccess(keys)).command(ACME, COUNTER, INCREMENT, {"name": "a", "by": 1})


async def test_a_confined_caller_needs_a_family_that_is_meant_for_it() -> None:
    use = entities_over(MemoryEntities())
    with pytest.raises(Refused) as caught:
        await use.command(IVY, COUNTER, INCREMENT, {"name": "a", "by": 1})
    assert caught.value.code == "insufficient_scope"
    own = changed(COUNTER, scope=USER, commands=[changed(INCREMENT, scope=USER)])
    reply, _ = await use.command(IVY, own, own.commands[0], {"name": "a", "by": 1})
    assert reply["value"] == 1
    assert (await use.show(IVY, own, "a"))["state"]["value"] == 1


async def test_every_operation_needs_its_scope_whatever_the_transport_checked() -> None:
    use = entities_over(MemoryEntities())
    for asked in (
        use.command(READER, COUNTER, INCREMENT, {"name": "a", "by": 1}),
        use.query(READER, COUNTER, REMAINING, "a", {}),
        use.show(NO_SCOPE, COUNTER, "a"),
        use.list(NO_SCOPE, COUNTER),
    ):
        with pytest.raises(Refused) as caught:
            await asked
        assert caught.value.code == "insufficient_scope"


async def test_a_state_with_large_numbers_and_bytes_is_json() -> None:
    memory = MemoryEntities()
    use = entities_over(memory)
    await use.command(ACME, COUNTER, INCREMENT, {"name": "a", "by": 1})
    entity = memory.entities["acme", "a"]
    memory.entities["acme", "a"] = replace(entity, state=Counter(value=2**70, stamp=b"\x01"))
    assert (await use.show(ACME, COUNTER, "a"))["state"] == {"value": str(2**70), "stamp": "AQ=="}


@pytest.mark.parametrize(
    ("code", "known"),
    [
        ("quarantined", "aggregate_quarantined"),
        ("not_found", "not_found"),
        ("queue_full", "queue_full"),
        ("too_large", "command_invalid"),
        ("state_too_large", "command_invalid"),
        ("bad_name", "command_invalid"),
        ("stock_empty", "command_refused"),
        ("insufficient_scope", "command_refused"),
        ("internal", "command_refused"),
        ("log_unavailable", "command_refused"),
        ("", "command_refused"),
    ],
)
def test_a_code_of_a_family_becomes_one_that_clients_know(code: str, known: str) -> None:
    refusal = family_refusal(code, "why")
    assert (refusal.code, refusal.message) == (known, "why")
    assert (refusal.details.get("refusal") == code) == known.startswith("command_")


def test_codes_of_families_are_codes_of_the_api() -> None:
    assert set(FAMILY_CODES.values()) <= set(STATUS_BY_CODE)


@pytest.mark.parametrize("name", ["", "ä" * (NAME_BYTES_MAX // 2) + "x", "a\nb", "\0", "a\u2028b", "\ud800", "\x7f"])
def test_an_id_that_no_store_takes_is_refused(name: str) -> None:
    assert name_problem(name)


@pytest.mark.parametrize("name", ["a", "a/b c:d", "ä" * (NAME_BYTES_MAX // 2), "😀"])
def test_any_other_id_is_taken(name: str) -> None:
    assert name_problem(name) == ""


async def test_an_id_with_a_slash_in_its_tenant_is_refused_because_two_would_be_one() -> None:
    use = entities_over(MemoryEntities())
    with pytest.raises(Refused, match="letters, digits, _ and -"):
        await use.show(ADMIN_CALLER, COUNTER, "c", tenant="a/b")
