import asyncio
from typing import Any

import orjson
import pytest

from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.errors import Transient
from loomlog.connectors.storage.run_credentials import RunCredentials
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.generated.run_events import RunRefused
from loomlog.schemas.generated.values import ContentBlock, Segment
from loomlog.schemas.ids import partition_key
from loomlog.schemas.records import replace
from loomlog.services.application import limits
from loomlog.services.application.queries.read_your_writes import PositionBarrier
from loomlog.services.application.runs.forks import ForkRequest
from loomlog.services.application.runs.requests import RunRequest
from loomlog.services.application.runs.run_ids import handle_token, new_run_names
from loomlog.services.application.runs.start import StartedRun
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused
from loomlog.services.core.run.state import Ended
from loomlog.services.families.definition.services import DefinitionOptions
from loomlog.services.families.definition.table import AGENT, FileDefinition
from loomlog.services.stream.entities.absence import AbsenceCheck
from tests.connectors.storage.memory import MemoryCredentialRows
from tests.services.application.tables import TwinProjection
from tests.services.application.world import (
    ACME,
    ADMIN_CALLER,
    GLOBEX,
    IVY,
    World,
    declined,
    pieces_of,
    types_of,
    until,
    world,
)


def request(agent: str = "soaker", prompt: str = "go", **fields: Any) -> RunRequest:
    return RunRequest(agent=agent, prompt=prompt, **fields)


async def start(made: World, agent: str = "soaker", *, caller: Caller = ADMIN_CALLER, **fields: Any) -> StartedRun:
    return await made.layer.runs.start(caller, request(agent, **fields))


async def finished(made: World, agent: str = "soaker", *, caller: Caller = ADMIN_CALLER, **fields: Any) -> StartedRun:
    accepted = await start(made, agent, caller=caller, **fields)
    await pieces_of(accepted.stream)
    return accepted


# --- a new run -------------------------------------------------------------------------------------------------------


async def test_a_run_streams_its_ids_then_its_events_to_the_end() -> None:
    async with world() as made:
        accepted = await start(made, parent_context={"function_key": "f"})
        pieces = await pieces_of(accepted.stream)
    assert types_of(pieces) == ["session", "agent", "started", "text", "usage", "done"]
    assert orjson.loads(pieces[0].data) == {"type": "session", "text": accepted.session_id}
    assert orjson.loads(pieces[1].data) == {
        "agent_id": accepted.agent_id,
        "run_id": accepted.run_id,
        "session_id": accepted.session_id,
        "parent_agent_id": None,
        "parent_context": {"function_key": "f"},
    }
    assert accepted.stream.end_reason == "ended"


async def test_the_command_says_everything_the_owner_needs() -> None:
    async with world() as made:
        accepted = await finished(
            made,
            user_id="zoe",
            user_tier="gold",
            tools=("Read",),
            allowed_hosts=(),
            metadata={"a": [1]},
            interactive=False,
            on_complete=({"kind": "channel.publish", "channel": "done", "on": "completed"},),
        )
    (command,) = made.commands()
    assert isinstance(command, StartRun)
    assert command.run_id == accepted.run_id
    assert command.session_id == "", "only a session to go on with is named"
    assert (command.envelope.tenant, command.envelope.subject, command.user_id) == ("default", "default", "zoe")
    assert command.envelope.issued_at_ms > 0
    assert (command.options.user_tier, command.tools, command.options.allowed_hosts) == ("gold", ("Read",), ())
    assert command.options.metadata == {"a": "[1]"}
    assert command.options.on_complete == ('{"channel":"done","kind":"channel.publish"}',)
    assert command.options.trigger == ""


@pytest.mark.parametrize(
    ("hook", "scope"),
    [
        ({"kind": "channel.publish", "channel": "done"}, "channel:publish"),
        ({"kind": "memory.set", "scope": "tenant", "key": "k"}, "memory:write"),
    ],
)
async def test_a_caller_needs_the_scopes_of_its_hooks(hook: dict[str, str], scope: str) -> None:
    caller = Caller(name="app", tenant="default", subject="app", scopes=frozenset({"runs:create"}))
    async with world() as made:
        with pytest.raises(Refused) as refused:
            await start(made, "soaker", caller=caller, on_complete=(hook,))
        assert made.commands() == []
        assert (refused.value.code, refused.value.details) == ("insufficient_scope", {"scope": scope})
        allowed = {"kind": "memory.set", "scope": "user", "key": "k"}
        await finished(made, caller=caller, on_complete=(allowed,))


async def test_the_position_is_that_of_the_first_event() -> None:
    async with world() as made:
        accepted = await finished(made)
        partition = made.layer.publisher.partition_of(partition_key(accepted.run_id))
    assert accepted.position == f"loom.run.events/{partition}:1"


async def test_runs_that_begin_together_are_put_side_by_side() -> None:
    async with world() as made:
        runs = [await finished(made) for _ in range(8)]
        assert len({made.layer.publisher.partition_of(partition_key(run.run_id)) for run in runs}) == 1


async def test_a_run_needs_no_read_model() -> None:
    async with world(projecting=False) as made:
        made.postgres_is_away = True
        assert types_of(await pieces_of((await start(made)).stream))[-1] == "done"


# --- credentials -----------------------------------------------------------------------------------------------------

SECRETS: dict[str, Any] = {
    "user_bearer": "hunter2-hunter2-hunter2",
    "user_credentials": {"git": "hunter2-git", "mail": "hunter2-mail"},
}
KEY = SecretKey(keys=(bytes(32),))


def keeping(rows: MemoryCredentialRows) -> dict[str, Any]:
    return {"credentials": RunCredentials(rows, KEY)}


async def test_credentials_are_sealed_before_the_run_starts_and_the_log_has_their_names_only() -> None:
    rows = MemoryCredentialRows()
    async with world(**keeping(rows)) as made:
        accepted = await finished(made, caller=ACME, **SECRETS)
        (command,) = made.commands()
        assert command.options.credentials == ("default", "git", "mail", "run.user_bearer")
        for records in made.log.records.values():
            assert not any(b"hunter2" in (record.value or b"") for record in records)
        assert not any(b"hunter2" in sealed for sealed, _ in rows.rows.values())
        assert await RunCredentials(rows, KEY).get("acme", accepted.run_id) == {
            "default": "hunter2-hunter2-hunter2",
            "git": "hunter2-git",
            "mail": "hunter2-mail",
            "run.user_bearer": "hunter2-hunter2-hunter2",
        }


async def test_the_bearer_does_not_replace_a_default_that_was_named() -> None:
    rows = MemoryCredentialRows()
    async with world(**keeping(rows)) as made:
        inputs = {"user_bearer": "hunter2-hunter2-hunter2", "user_credentials": {"default": "named"}}
        accepted = await finished(made, caller=ACME, **inputs)
        kept = await RunCredentials(rows, KEY).get("acme", accepted.run_id)
        assert kept == {"default": "named", "run.user_bearer": "hunter2-hunter2-hunter2"}


async def test_a_further_run_of_a_session_brings_its_own() -> None:
    rows = MemoryCredentialRows()
    async with world(**keeping(rows)) as made:
        first = await finished(made, caller=ACME, user_credentials={"git": "one"})
        made.project()
        request = RunRequest(prompt="more", user_credentials={"git": "two"})
        second = await made.layer.runs.continue_session(ACME, first.session_id, request)
        second.stream.close()
        store = RunCredentials(rows, KEY)
        assert (await store.get("acme", first.run_id), await store.get("acme", second.run_id)) == (
            {"git": "one"},
            {"git": "two"},
        )


async def test_a_fork_brings_its_own() -> None:
    rows = MemoryCredentialRows()
    async with world(**keeping(rows)) as made:
        origin = await finished(made, caller=ACME, user_credentials={"git": "one"})
        made.project()
        request = ForkRequest(at_seq=2, prompt="else", user_bearer="hunter2-hunter2-hunter2")
        fork = await made.layer.forks.fork(ACME, origin.run_id, request)
        fork.stream.close()
        assert made.commands()[-1].credentials == ("default", "run.user_bearer")
        assert (await RunCredentials(rows, KEY).get("acme", fork.run_id))["default"] == "hunter2-hunter2-hunter2"


async def test_runs_of_who_may_not_spend_the_operators_keys_are_stamped() -> None:
    restricted = replace(ACME, operator_key_restricted=True)
    async with world() as made:
        origin = await finished(made, caller=ACME)
        assert not made.commands()[-1].options.operator_key_restricted
        made.project()
        request = RunRequest(prompt="more")
        further = await made.layer.runs.continue_session(restricted, origin.session_id, request)
        further.stream.close()
        assert made.commands()[-1].options.operator_key_restricted
        fork = await made.layer.forks.fork(restricted, origin.run_id, ForkRequest(at_seq=2, prompt="else"))
        fork.stream.close()
        assert made.commands()[-1].operator_key_restricted
        own = await start(made, caller=restricted)
        own.stream.close()
        assert made.commands()[-1].options.operator_key_restricted


async def test_credentials_that_nothing_can_seal_are_refused_before_anything_is_written() -> None:
    async with world() as made:
        actual = await declined(start(made, **SECRETS))
        assert actual.code == "credentials_off"
        assert "LOOMLOG_SECRET_KEY" in actual.message
        assert made.commands() == []


class AwayRows(MemoryCredentialRows):
    async def put(self, run_id: str, sealed: bytes, lifetime_s: float) -> None:
        raise Transient("connection refused", kind="unavailable")


async def test_a_run_does_not_start_without_the_credentials_it_brings() -> None:
    async with world(**keeping(AwayRows())) as made:
        actual = await declined(start(made, **SECRETS))
        assert (actual.code, actual.retry_after_s) == ("credentials_unavailable", 1)
        assert made.commands() == []


async def test_credentials_of_a_run_that_is_refused_are_gone() -> None:
    rows = MemoryCredentialRows()
    async with world(**keeping(rows)) as made:
        assert (await declined(start(made, "ghost", **SECRETS))).code == "unknown_agent"
        assert rows.rows == {}


async def test_a_request_that_is_sent_again_leaves_the_first_ones_credentials() -> None:
    rows = MemoryCredentialRows()
    async with world(**keeping(rows)) as made:
        first = await finished(made, caller=ACME, idempotency_key="k", user_credentials={"git": "one"})
        await finished(made, caller=ACME, idempotency_key="k", user_credentials={"git": "two"})
        assert await RunCredentials(rows, KEY).get("acme", first.run_id) == {"git": "one"}


# --- who may ---------------------------------------------------------------------------------------------------------


async def test_a_principal_works_in_its_own_name_whatever_it_says() -> None:
    async with world() as made:
        accepted = await finished(made, caller=IVY, user_id="somebody-else")
        made.project()
        row = made.twin.tables["runs"][accepted.run_id]
    assert (row[1], row[5], row[6]) == ("acme", "ivy", "ivy")


async def test_a_request_that_makes_no_sense_is_refused_before_anything_is_written() -> None:
    async with world() as made:
        assert (await declined(start(made, prompt=""))).code == "bad_request"
        assert (await declined(start(made, agent=""))).message.startswith("agent is required")
        assert made.commands() == []


async def test_a_start_of_an_agent_that_is_not_known_reads_to_the_end_of_the_log_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[AbsenceCheck] = []

    async def catch_up(absence: AbsenceCheck) -> None:
        read.append(absence)

    monkeypatch.setattr(AbsenceCheck, "catch_up", catch_up)
    soaker = FileDefinition(kind=AGENT, name="soaker", content={}, text="{}", digest=b"", content_sha256="")
    async with world(family_options=[DefinitionOptions(files={(AGENT, "soaker"): soaker})]) as made:
        await finished(made, caller=ACME)
        assert read == []
        assert (await declined(start(made, "ghost"))).code == "unknown_agent"
        assert len(read) == 1


async def test_what_the_owner_refuses_is_refused_with_its_code() -> None:
    async with world() as made:
        actual = await declined(start(made, "ghost"))
    assert (actual.code, actual.message) == ("unknown_agent", "there is no agent ghost")


@pytest.mark.parametrize(
    ("code", "name"), [("per_user_quota_exhausted", "user_id"), ("provider_concurrency_exhausted", "provider")]
)
async def test_whoever_has_all_that_he_may_have_is_named_with_the_bound(code: str, name: str) -> None:
    async with world() as made:
        asked = asyncio.create_task(start(made, "deaf"))
        await until(made.commands)
        await until(lambda: made.layer.runs.pending_starts == 1)
        made.happen(made.commands()[0].run_id, RunRefused(code=code, message="no", about="ada", cap=3))
        actual = await declined(asked)
        assert made.layer.runs.pending_starts == 0
    assert (actual.code, actual.retry_after_s, dict(actual.details)) == (code, 5, {name: "ada", "cap": 3})


@pytest.mark.parametrize(
    ("code", "retry_after_s"),
    [
        ("backpressure", 5),
        ("per_user_quota_exhausted", 5),
        ("tier_unavailable", None),
        ("pin_unavailable", None),
        ("tier_agent_not_available", None),
    ],
)
async def test_a_bound_that_was_met_says_when_to_come_again(code: str, retry_after_s: int | None) -> None:
    async with world() as made:
        asked = asyncio.create_task(start(made, "deaf"))
        await until(made.commands)
        made.happen(made.commands()[0].run_id, RunRefused(code=code, message="no"))
        actual = await declined(asked)
    assert (actual.code, actual.retry_after_s) == (code, retry_after_s)


async def test_without_a_runtime_the_run_is_accepted_and_said_to_be_pending() -> None:
    async with world(waits={"decision_s": 0.02}) as made:
        actual = await declined(start(made, "deaf"))
        (command,) = made.commands()
    assert actual.code == "run_pending"
    assert actual.details["run_id"] == command.run_id
    assert actual.details["session_id"] == f"s_{command.run_id[2:]}"
    assert "position" not in actual.details, "no event of the run is in the log"


async def test_a_refused_or_pending_start_leaves_no_subscription_behind() -> None:
    async with world(waits={"decision_s": 0.02}) as made:
        await declined(start(made, "deaf"))
        await declined(start(made, "ghost"))
        assert made.hub.subscribers == 0


async def test_a_client_that_leaves_ends_its_stream_and_not_the_run() -> None:
    async with world() as made:
        accepted = await start(made, "silent")
        accepted.stream.close()
        assert await accepted.stream.next() is not None, "what it was owed: the ids"
        assert await accepted.stream.next() is None
        made.reply(accepted.run_id)
        assert isinstance(made.states[accepted.run_id], Ended)
        assert len(made.commands()) == 1, "nothing was asked of the run"


async def test_large_payloads_travel_beside_the_command() -> None:
    async with world() as made:
        await finished(made, prompt="x" * 1_000_000)
        (command,) = made.commands()
    (block,) = command.segments[0].content
    assert block.text == ""
    assert await made.blobs.get(block.blob) == b"x" * 1_000_000


async def test_a_command_that_is_too_large_with_everything_else_is_refused() -> None:
    async with world() as made:
        hosts = tuple("h" * limits.NAME_BYTES_MAX for _ in range(limits.NAMES_MAX))
        large = {"segments": (), "tools": hosts, "allowed_hosts": hosts, "metadata": {"m": "x" * 60_000}}
        blocks = tuple(_user_text("y" * 60_000) for _ in range(7))
        actual = await declined(made.layer.runs.start(ADMIN_CALLER, request(**{**large, "segments": blocks})))
    assert actual.code == "payload_too_large"


def _user_text(text: str) -> Segment:
    return Segment(role="user", content=(ContentBlock(type="trusted-text", text=text),))


# --- handles ---------------------------------------------------------------------------------------------------------


async def test_a_handle_in_use_is_refused_by_the_owner() -> None:
    async with world() as made:
        first = await start(made, "silent", agent_id="mine")
        actual = await declined(start(made, agent_id="mine"))
        first.stream.close()
    assert (actual.code, first.run_id in actual.message) == ("agent_id_in_use", True)
    assert first.agent_id == "mine"


@pytest.mark.parametrize("is_away", [False, True])
async def test_a_handle_in_use_in_another_partition_is_remembered_without_the_read_models(is_away: bool) -> None:
    async with world() as made:
        session = await finished(made)
        handle = _handle_of_another_partition(made, session)
        held = await made.layer.runs.continue_session(
            ADMIN_CALLER, session.session_id, request("silent", agent_id=handle)
        )
        made.postgres_is_away = is_away
        actual = await declined(start(made, agent_id=handle))
        held.stream.close()
    assert actual.code == "agent_id_in_use"
    assert len(made.commands()) == 2, "it was refused before it was published"


async def test_the_handle_that_a_live_run_was_given_is_in_use_for_its_tenant_alone() -> None:
    async with world() as made:
        held = await start(made, "silent")
        while _is_led_to(made, held):
            held.stream.close()
            held = await start(made, "silent")
        published = len(made.commands())
        refused = await declined(start(made, agent_id=held.agent_id))
        assert (refused.code, held.run_id in refused.message) == ("agent_id_in_use", True)
        assert len(made.commands()) == published, "its owner does not see the other run"
        other = await made.layer.runs.start(GLOBEX, request(agent_id=held.agent_id))
        other.stream.close()
        held.stream.close()


async def test_a_handle_of_another_partition_is_free_when_its_run_is_over() -> None:
    async with world() as made:
        session = await finished(made)
        handle = _handle_of_another_partition(made, session)
        over = await made.layer.runs.continue_session(ADMIN_CALLER, session.session_id, request(agent_id=handle))
        await pieces_of(over.stream)
        assert (await finished(made, agent_id=handle)).agent_id == handle
        assert not len(made.hub.stray_handles)


async def test_a_fresh_run_with_a_handle_waits_for_no_read_model(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def wait(self: PositionBarrier, partition: int | None, **options: Any) -> int:
        asked.append("wait")
        return 0

    async with world() as made:
        monkeypatch.setattr(PositionBarrier, "wait_for_own_writes", wait)
        monkeypatch.setattr(
            TwinProjection, "_tables", property(lambda self: asked.append("query") or self._world.twin.tables)
        )
        await finished(made, agent_id="mine", user_id="u")
        assert not asked
        await finished(made, idempotency_key="once", agent_id="mine")
        assert {"wait", "query"} <= set(asked), "the counting works"


async def test_a_session_does_not_get_the_handle_of_a_live_run_of_another_partition() -> None:
    async with world() as made:
        session = await finished(made)
        handle = _handle_of_another_partition(made, session)
        held = await start(made, "silent", agent_id=handle)
        again = request(agent_id=handle)
        actual = await declined(made.layer.runs.continue_session(ADMIN_CALLER, session.session_id, again))
        held.stream.close()
    assert (actual.code, held.run_id in actual.message) == ("agent_id_in_use", True)


def _is_led_to(made: World, run: StartedRun) -> bool:
    """Whether the hash of a run's handle leads to its partition."""
    partition_of = made.layer.publisher.partition_of
    return partition_of(handle_token("default", run.agent_id)) == partition_of(partition_key(run.run_id))


def _handle_of_another_partition(made: World, run: StartedRun) -> str:
    partition_of = made.layer.publisher.partition_of
    tenant = made.tenants[run.run_id]
    for handle in (f"mine{n}" for n in range(100)):
        names = new_run_names(fresh_token="x", tenant=tenant, subject="", agent_id=handle, idempotency_key="")
        if partition_of(names.key) != partition_of(partition_key(run.run_id)):
            return handle
    raise AssertionError("all handles lie in one partition")


@pytest.mark.parametrize("is_elsewhere", [False, True])
async def test_a_handle_in_use_names_its_run_only_to_those_who_see_it(is_elsewhere: bool) -> None:
    async with world() as made:
        handle = "mine"
        if is_elsewhere:
            session = await finished(made, caller=ACME)
            handle = _handle_of_another_partition(made, session)
            asked = request("silent", agent_id=handle)
            held = await made.layer.runs.continue_session(ACME, session.session_id, asked)
        else:
            held = await start(made, "silent", caller=ACME, agent_id=handle)
        hidden = await declined(start(made, caller=IVY, agent_id=handle))
        options = await declined(start(made, caller=ACME, agent_id=handle))
        held.stream.close()
    assert hidden.code == options.code == "agent_id_in_use"
    assert held.run_id not in hidden.message
    assert held.run_id in options.message


async def test_a_handle_can_be_used_again_when_its_run_is_over() -> None:
    async with world() as made:
        await finished(made, agent_id="mine")
        assert (await finished(made, agent_id="mine")).agent_id == "mine"


async def test_a_chosen_handle_works_while_the_read_models_are_away() -> None:
    async with world() as made:
        made.postgres_is_away = True
        assert (await finished(made, agent_id="mine")).agent_id == "mine"


# --- sessions --------------------------------------------------------------------------------------------------------


async def test_a_further_run_is_in_the_same_session_by_the_same_agent() -> None:
    async with world() as made:
        first = await finished(made, user_id="zoe")
        second = await made.layer.runs.continue_session(ADMIN_CALLER, first.session_id, RunRequest(prompt="more"))
        assert types_of(await pieces_of(second.stream))[-1] == "done"
        command = made.commands()[-1]
    assert second.session_id == first.session_id
    assert second.run_id != first.run_id
    assert (command.agent, command.session_id, command.user_id) == ("soaker", first.session_id, "zoe")
    assert command.continues.run_id == first.run_id


@pytest.mark.parametrize("hosts", [None, (), ("docs.example",)])
async def test_a_further_run_is_bound_to_the_hosts_its_own_request_names(hosts: tuple[str, ...] | None) -> None:
    async with world() as made:
        first = await finished(made, allowed_hosts=("other.example",))
        request = RunRequest(prompt="more", allowed_hosts=hosts)
        second = await made.layer.runs.continue_session(ADMIN_CALLER, first.session_id, request)
        assert types_of(await pieces_of(second.stream))[-1] == "done"
        assert made.commands()[-1].options.allowed_hosts == hosts


async def test_a_start_with_a_session_continues_it_by_the_agent_of_the_request() -> None:
    async with world() as made:
        first = await finished(made)
        second = await finished(made, "parker", session_id=first.session_id)
        assert second.session_id == first.session_id
        assert made.commands()[-1].agent == "parker"
        assert (await declined(start(made, "", session_id=first.session_id))).code == "bad_request"


@pytest.mark.parametrize("session_id", ["s_nothing", "has space", "ä", "x" * 200])
async def test_an_unknown_session_is_not_found(session_id: str) -> None:
    async with world() as made:
        actual = await declined(made.layer.runs.continue_session(ADMIN_CALLER, session_id, RunRequest(prompt="x")))
    assert actual.code in ("not_found", "bad_request")
    assert (actual.code == "not_found") == (session_id == "s_nothing")


async def test_the_session_of_another_tenant_or_user_is_not_found() -> None:
    async with world() as made:
        first = await finished(made, caller=ACME)
        for stranger in (GLOBEX, IVY):
            asked = made.layer.runs.continue_session(stranger, first.session_id, RunRequest(prompt="x"))
            assert (await declined(asked)).code == "not_found"
        assert len(made.commands()) == 1


async def test_an_administrator_continues_a_session_in_the_name_of_its_owner() -> None:
    async with world() as made:
        first = await finished(made, caller=IVY)
        second = await made.layer.runs.continue_session(ADMIN_CALLER, first.session_id, RunRequest(prompt="x"))
        await pieces_of(second.stream)
        command = made.commands()[-1]
    assert (command.envelope.tenant, command.user_id, command.envelope.subject) == ("acme", "ivy", "default")


async def test_a_busy_session_is_refused() -> None:
    async with world() as made:
        first = await start(made, "silent")
        asked = made.layer.runs.continue_session(ADMIN_CALLER, first.session_id, RunRequest(prompt="x"))
        actual = await declined(asked)
        first.stream.close()
    assert actual.code == "session_busy"


async def test_a_session_only_the_hub_knows_yet_can_be_continued() -> None:
    async with world(projecting=False) as made:
        first = await finished(made)
        second = await made.layer.runs.continue_session(ADMIN_CALLER, first.session_id, RunRequest(prompt="x"))
        assert types_of(await pieces_of(second.stream))[-1] == "done"


async def test_a_session_that_may_be_in_what_the_read_models_miss_is_not_called_unknown() -> None:
    async with world(projecting=False) as made:
        await finished(made)
        partition = next(p for p in range(4) if made.hub.position(p) > 1)
        session = next(f"s_other{n}" for n in range(100) if made.layer.publisher.partition_of(f"other{n}") == partition)
        actual = await declined(made.layer.runs.continue_session(ADMIN_CALLER, session, RunRequest(prompt="x")))
    assert actual.code == "not_yet"


# --- idempotency -----------------------------------------------------------------------------------------------------


async def test_the_same_key_gives_the_same_run() -> None:
    async with world() as made:
        first = await finished(made, idempotency_key="k")
        again = await start(made, idempotency_key="k")
        pieces = await pieces_of(again.stream)
    assert (again.run_id, again.session_id, again.agent_id) == (first.run_id, first.session_id, first.agent_id)
    assert again.is_repeated
    assert not first.is_repeated
    assert types_of(pieces) == ["session", "agent", "steer", "started", "text", "usage", "done"]
    assert len(made.commands()) == 1, "it was not even asked again"


async def test_the_same_key_gives_the_same_run_while_it_runs() -> None:
    async with world() as made:
        first = await start(made, "silent", idempotency_key="k")
        again = await start(made, "silent", idempotency_key="k")
        assert again.run_id == first.run_id
        made.reply(first.run_id, "hello")
        assert types_of(await pieces_of(again.stream))[-1] == "done"
        assert types_of(await pieces_of(first.stream))[-1] == "done"
        assert len(made.states) == 1


async def test_many_at_once_with_one_key_are_one_run() -> None:
    async with world() as made:
        actual = await asyncio.gather(*(start(made, idempotency_key="k") for _ in range(10)))
        streams = [types_of(await pieces_of(accepted.stream)) for accepted in actual]
    assert len({accepted.run_id for accepted in actual}) == 1
    assert len(made.states) == 1
    assert all(types[-1] == "done" for types in streams)


async def test_a_repetition_after_a_crash_finds_the_run_that_was_started_before() -> None:
    """The first process died after the command was in the log; its caller asks another one."""
    async with world(projecting=False) as made:
        first = await finished(made, idempotency_key="k")
        made.project()
        # A process that has just begun: its hub starts where the read models stand, its ring is empty.
        made.hub._recent_events.drop_expired(1e18)
        again = await start(made, idempotency_key="k")
        assert again.run_id == first.run_id
        assert types_of(await pieces_of(again.stream))[-1] == "done"
        assert len(made.states) == 1


async def test_a_repetition_is_found_while_waiting_when_the_read_models_come_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "DECISION_POLL_S", 0.01)
    async with world(projecting=False) as made:
        first = await finished(made, idempotency_key="k")
        made.hub._recent_events.drop_expired(1e18)
        asked = asyncio.create_task(start(made, idempotency_key="k"))
        await until(lambda: len(made.commands()) == 2)
        made.project()
        again = await asked
        again.stream.close()
    assert again.run_id == first.run_id


async def test_the_same_key_with_another_request_is_refused() -> None:
    async with world() as made:
        first = await finished(made, idempotency_key="k")
        actual = await declined(start(made, idempotency_key="k", prompt="something else"))
    assert actual.code == "idempotency_key_reused"
    assert actual.details["run_id"] == first.run_id


async def test_the_same_key_with_another_request_is_refused_while_only_the_hub_knows_the_run() -> None:
    async with world(projecting=False) as made:
        await finished(made, idempotency_key="k")
        actual = await declined(start(made, idempotency_key="k", prompt="something else"))
    assert actual.code == "idempotency_key_reused"


async def test_a_refusal_is_repeated_under_its_key() -> None:
    async with world() as made:
        assert (await declined(start(made, "ghost", idempotency_key="k"))).code == "unknown_agent"
        made.hub._recent_events.drop_expired(1e18)
        actual = await declined(start(made, "ghost", idempotency_key="k"))
    assert actual.code == "unknown_agent"
    assert "new key" in actual.message


async def test_a_key_works_while_the_read_models_are_away() -> None:
    async with world() as made:
        made.postgres_is_away = True
        assert types_of(await pieces_of((await start(made, idempotency_key="k")).stream))[-1] == "done"


async def test_a_key_of_another_caller_is_another_key() -> None:
    async with world() as made:
        one = await finished(made, caller=ACME, idempotency_key="k")
        two = await finished(made, caller=IVY, idempotency_key="k")
    assert one.run_id != two.run_id


async def test_the_same_key_continues_a_session_once() -> None:
    async with world() as made:
        first = await finished(made)
        asked = RunRequest(prompt="more", idempotency_key="k")
        one = await made.layer.runs.continue_session(ADMIN_CALLER, first.session_id, asked)
        await pieces_of(one.stream)
        two = await made.layer.runs.continue_session(ADMIN_CALLER, first.session_id, asked)
        await pieces_of(two.stream)
    assert one.run_id == two.run_id
    assert two.is_repeated
    assert len(made.commands()) == 2


async def test_a_lost_acknowledgement_still_starts_one_run() -> None:
    async with world(waits={"publish_s": 2.0}) as made:
        first = await finished(made)  # nothing else is appended from here on
        made.log.lose_acks = 1
        accepted = await start(made)
        assert types_of(await pieces_of(accepted.stream))[-1] == "done"
        assert len(made.commands()) == 3
        assert list(made.states) == [first.run_id, accepted.run_id]
