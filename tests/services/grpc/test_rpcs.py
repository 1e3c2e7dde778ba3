"""RPCs over a real connection to a server in this process."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import orjson
import pytest
import pytest_asyncio

from loomlog.connectors.crypto.operator_tokens import Peppers
from loomlog.services.api.open_access import ENDED
from loomlog.services.application.authentication import Authenticator
from loomlog.services.core.access.scopes import RUNS_READ
from loomlog.services.core.operations import Answer
from loomlog.services.families.channel import api as channels
from loomlog.services.families.identity.services import IdentityOptions
from loomlog.services.grpc.front import Front
from loomlog.services.grpc.messages import SERVICE, service_descriptor
from loomlog.services.grpc.rpcs import RPCS, RPCS_WITH_OP, TOOL_RPCS, tool_targets
from loomlog.services.grpc.streams import STREAMS
from tests.connectors.identity_providers.provider import Provider, providers_of
from tests.connectors.storage.memory import MemoryRequestKeys
from tests.services.application.world import ACME, ADMIN_CALLER, GLOBEX, READER, tokens, until
from tests.services.grpc.serving import Served, refusal, served, user_text

MINTING = IdentityOptions(peppers=Peppers(keys=(b"pepper",)), grace_s=60)


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path) as made:
        yield made


def ids_of(events):
    return orjson.loads(events[1].error)


# --- the table -------------------------------------------------------------------------------------------------------


def test_every_rpc_of_the_service_has_a_row():
    rows = [*(row.name for row in RPCS), *RPCS_WITH_OP, *TOOL_RPCS, *(row.name for row in STREAMS)]
    assert len(set(rows)) == len(rows)
    assert set(rows) == {method.name for method in service_descriptor().methods}
    assert len(service_descriptor().methods) == 59 + len({"GetRun", "Evaluation"})


def test_a_row_names_only_fields_that_its_message_has():
    methods = service_descriptor().methods_by_name
    for row in (*RPCS, *(row for rows in RPCS_WITH_OP.values() for row in rows.values())):
        fields = methods[row.name].input_type.fields_by_name
        assert {*row.names, *row.takes} <= set(fields), row.name


def test_tools_have_the_operations_of_their_route_or_of_agents():
    assert {"create", "fork", "get", "list", "promote", "rollback", "retire"} <= set(tool_targets("AgentDef"))
    assert {"get", "set", "list"} <= set(tool_targets("Memory"))
    assert tool_targets("NoSuchTool") == {}


def test_a_tool_that_gets_operations_is_served_without_a_row_of_its_own():
    operation = tool_targets("Memory")["get"].operation
    assert list(tool_targets("Memory", [operation])) == ["get"]


# --- runs ------------------------------------------------------------------------------------------------------------


async def test_a_run_begins_with_the_frames_that_clients_wait_for(here: Served):
    events = await here.run()
    assert [event.type for event in events] == ["session", "agent", "started", "text", "usage", "done"]
    session, agent = events[:2]
    ids = ids_of(events)
    assert ids["session_id"] == session.text
    assert (ids["agent_id"], ids["parent_agent_id"], agent.stop_reason) == (agent.text, "", "")
    assert ids["run_id"].startswith("r_")
    assert session.position.startswith("loom.run.events/")


async def test_events_carry_what_http_has_from_field_100_on(here: Served):
    events = await here.run()
    assert [event.seq > 0 for event in events] == [False, False, True, True, True, True]
    done = events[-1]
    assert orjson.loads(done.payload)["type"] == done.type == "done"
    assert done.usage.input_tokens > 0


async def test_a_run_is_followed_after_an_event_without_the_first_two_frames(here: Served):
    events = await here.run()
    again = [event async for event in here.call("StreamRun", run_id=ids_of(events)["run_id"], from_seq=events[2].seq)]
    assert [event.type for event in again] == ["text", "usage", "done"]
    assert [event.seq for event in again] == [event.seq for event in events[3:]]


async def test_the_same_key_starts_a_run_once(here: Served):
    key = (("idempotency-key", "k1"),)
    first, second = await here.run(metadata=key), await here.run(metadata=key)
    assert ids_of(first) == ids_of(second)
    refused = await refusal(here.call("Run", agent="soaker", segments=user_text("other"), metadata=key))
    assert dict(refused.trailing_metadata())["loomlog-code"] == "idempotency_key_reused"


async def test_a_client_that_leaves_ends_its_stream_and_never_the_run(here: Served):
    call = here.call("Run", agent="silent", segments=user_text("go"))
    assert (await call.read()).type == "session"
    assert here.service.shares.open_streams == 1
    call.cancel()
    await until(lambda: here.service.shares.open_streams == 0)
    assert here.world.hub.subscribers == 0
    assert len(here.world.commands()) == 1


async def test_an_open_stream_takes_no_slot_of_requests(here: Served):
    call = here.call("Run", agent="silent", segments=user_text("go"))
    await call.read()
    assert here.service.shares.requests.shares.in_use == 0
    call.cancel()
    await until(lambda: here.service.shares.open_streams == 0)


async def test_streams_end_with_a_reason_when_the_process_stops(here: Served):
    call = here.call("Run", agent="silent", segments=user_text("go"))
    await call.read()
    here.world.layer.end_streams()
    ended = await refusal(call, is_begun=True)
    assert ended.code() is grpc.StatusCode.UNAVAILABLE
    assert "stopping" in ended.details()


async def test_a_stream_ends_when_the_token_of_a_provider_expires(tmp_path: Path):
    provider, later_s = Provider(), [0]
    gate = Authenticator(tokens(), providers=providers_of(provider), time_s=lambda: time.time() + later_s[0])
    async with served(tmp_path, authenticator=gate) as here:
        metadata = (("authorization", f"Bearer {provider.token()}"),)
        call = here.call("Run", caller=None, metadata=metadata, agent="silent", segments=user_text("go"))
        await call.read()
        later_s[0] = 700
        here.service.open_access.end_revoked()
        ended = await refusal(call, is_begun=True)
    assert ended.code() is grpc.StatusCode.UNAUTHENTICATED
    assert ended.details() == ENDED


async def test_the_states_of_a_users_runs_are_streamed(here: Served):
    states = here.call("StreamUserRunStates", user_id="ada")
    reading = asyncio.ensure_future(states.read())
    await until(lambda: here.service.shares.open_streams == 1)
    run = ids_of(await here.run(user_id="ada"))
    state = await reading
    assert (state.run_id, state.user_id, state.status, state.agent) == (run["run_id"], "ada", "running", "soaker")
    assert state.ts
    states.cancel()


# --- reads and commands ----------------------------------------------------------------------------------------------


async def test_runs_are_read_by_handle_by_id_and_by_user(here: Served):
    ids = ids_of(await here.run(user_id="ada"))
    agent = await here.call("GetAgent", agent_id=ids["agent_id"])
    assert (agent.run_id, agent.status, agent.user_id) == (ids["run_id"], "completed", "ada")
    assert agent.started_at.seconds > 0
    assert agent.HasField("completed_at")
    assert agent.usage.input_tokens > 0
    assert await here.call("GetRun", run_id=ids["run_id"]) == agent
    (listed,) = (await here.call("ListUserAgents", user_id="ada")).agents
    assert listed == agent
    assert not (await here.call("ListUserAgents", user_id="ada", status="running")).agents


async def test_the_pages_of_a_list_are_joined(here: Served, monkeypatch: pytest.MonkeyPatch):
    row, front = next(row for row in RPCS if row.pages), Front(here.service)
    pages = iter([{row.pages: [1], "next": "a"}, {row.pages: [2], "next": "b"}, {row.pages: [3], "next": None}])
    cursors = []

    async def request(operation, caller, fields, tenant):
        cursors.append(fields.get("cursor"))
        return Answer(value=next(pages))

    monkeypatch.setattr(front, "request", request)
    assert (await front.all_pages(row, ADMIN_CALLER, {"x": 1})).value[row.pages] == [1, 2, 3]
    assert cursors == [None, "a", "b"]


async def test_a_deleted_state_file_is_named_and_its_content_was_there(here: Served):
    await here.run()
    made = await here.call("CreateSnapshot", description="before", include_history=True)
    assert (made.description, made.includes_history) == ("before", True)
    assert [file.snapshot_id for file in (await here.call("ListSnapshots")).snapshots] == [made.snapshot_id]
    content = await here.call("GetSnapshot", snapshot_id=made.snapshot_id)
    assert content.size_bytes == len(content.json_content)
    exported = await here.call("ExportSnapshot", snapshot_id=made.snapshot_id)
    assert exported.raw_json == content.json_content
    assert (await here.call("GetRuntimeState")).snapshots_count == 1
    restored = await here.call("RestoreSnapshot", raw_json=exported.raw_json)
    assert restored.synthesized_sessions == 0, "everything is there already"
    deleted = await here.call("DeleteSnapshot", snapshot_id=made.snapshot_id)
    assert (deleted.deleted, deleted.snapshot_id) == (True, made.snapshot_id)


async def test_health_needs_no_token_and_everything_else_does(here: Served):
    assert (await here.call("Health", caller=None)).ok
    for name in ("Config", "GetAgent", "AgentDef", "DirectoryUsers"):
        assert (await refusal(here.call(name, caller=None))).code() is grpc.StatusCode.UNAUTHENTICATED
    assert orjson.loads((await here.call("Config", caller=READER)).config_json)["view"] == "authenticated"


async def test_a_tool_takes_what_http_takes_and_its_refusals_are_answers(here: Served):
    done = await here.call("AgentDef", input_json=orjson.dumps({"op": "list", "name": "nobody"}))
    assert not done.is_error
    assert isinstance(orjson.loads(done.output_json), dict)
    for wrong in ({"op": "dance"}, {"op": "get"}, {}):
        refused = await here.call("AgentDef", input_json=orjson.dumps(wrong))
        assert refused.is_error
        assert orjson.loads(refused.output_json)["error"]
    for not_json in (b"", b"{", b"[]", b'"x"'):
        assert (await refusal(here.call("AgentDef", input_json=not_json))).code() is grpc.StatusCode.INVALID_ARGUMENT
    lacking = await refusal(here.call("AgentDef", caller=READER, input_json=b'{"op": "list", "name": "x"}'))
    assert lacking.code() is grpc.StatusCode.PERMISSION_DENIED


# --- refusals --------------------------------------------------------------------------------------------------------


async def test_what_is_not_found_is_named_by_its_kind_alone(here: Served):
    missing = await refusal(here.call("GetAgent", agent_id="my-session-7"))
    assert (missing.code(), missing.details()) == (grpc.StatusCode.NOT_FOUND, "run or agent not found")
    error = orjson.loads(dict(missing.trailing_metadata())["loomlog-error-bin"])
    assert "my-session-7" in error["error"]
    session = await refusal(here.call("Continue", session_id="s_nothing", segments=user_text("x")))
    assert (session.code(), session.details()) == (grpc.StatusCode.NOT_FOUND, "session not found")
    assert (await refusal(here.call("GetSnapshot", snapshot_id="snap_x"))).details() == "snapshot not found"
    assert (await refusal(here.call("DeleteHook", id="hook_x"))).details() == "hook not found"


async def test_rpcs_of_later_clients_and_of_features_that_are_not_there_say_so(here: Served):
    missing = await refusal(here.call("Document"))
    assert missing.code() is grpc.StatusCode.UNIMPLEMENTED
    assert missing.details() == "Document is not served: this installation does not have it"
    later = here.channel.unary_unary(f"/{SERVICE}/RetuneRun")
    unknown = await refusal(later(b"", metadata=(("authorization", "Bearer admin-token"),)))
    assert unknown.code() in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAUTHENTICATED)


async def test_a_deadline_ends_what_waits(here: Served):
    await here.service.application.dispatch.request(channels.CREATE, ADMIN_CALLER, {"name": "reviews"})
    late = here.call("AwaitChannels", channels=["reviews"], wait_ms=60_000, timeout_s=0.5)
    assert (await refusal(late)).code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await until(lambda: here.service.shares.waiting.shares.in_use == 0)


async def test_channels_carry_json(here: Served):
    await here.service.application.dispatch.request(channels.CREATE, ADMIN_CALLER, {"name": "reviews"})
    made = await here.call("PublishChannel", channel="reviews", payload=b'{"n": 1}')
    assert (made.channel, made.created_at != "") == ("reviews", True)
    (message,) = (await here.call("PeekChannel", channel="reviews")).messages
    assert (message.id, orjson.loads(message.value)) == (made.msg_id, {"n": 1})
    batch = await here.call("SubscribeChannel", channel="reviews")
    assert [one.id for one in batch.messages] == [made.msg_id]
    (row,) = (await here.call("BroadcastChannels", channels=["reviews"], payload=b"2")).results
    assert (row.channel, row.msg_id != "", row.error) == ("reviews", True, "")
    missing = await refusal(here.call("BroadcastChannels", channels=["reviews", "ghost"], payload=b"3"))
    assert missing.details() == "channel not found"
    wrong = await refusal(here.call("PublishChannel", channel="reviews", payload=b"{"))
    assert wrong.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert wrong.details().startswith("payload: expected JSON")


async def test_a_subject_is_reported_in_the_tenant_of_the_caller(here: Served):
    await here.run(user_id="ada")
    report = await here.call("ErasureReport", subject="ada")
    assert (report.tenant, report.subject) == ("default", "ada")
    rehearsal = await here.call("ErasureExecute", subject="ada")
    assert rehearsal.dry_run
    wrong = await refusal(here.call("ErasureExecute", subject="ada", dry_run=False, confirm="eve"))
    assert wrong.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_the_directory_has_the_users_of_the_callers_tenant(here: Served):
    await here.run(caller=ACME)
    await here.run(caller=GLOBEX)
    listed = await here.call("DirectoryUsers", caller=ACME)
    (user,) = listed.users
    assert (listed.tenant, user.subject, user.running_count, user.total_count) == ("acme", ACME.subject, 0, 1)
    assert user.last_started_at
    one = await here.call("DirectoryInspect", caller=ACME, subject=ACME.subject)
    assert (one.tenant, one.subject, one.activity.subject, one.activity.total_count) == (
        "acme",
        ACME.subject,
        ACME.subject,
        1,
    )
    assert (one.chats, one.usage.calls > 0, one.budget.HasField("hard_limit")) == (1, True, False)
    nobody = await here.call("DirectoryInspect", caller=ACME, subject=GLOBEX.subject)
    assert (nobody.subject, nobody.activity.total_count) == (GLOBEX.subject, 0), (
        "a user of another tenant is as one of none"
    )
    assert (await here.call("DirectoryInspect", subject="ada")).tenant == "default", "of an administrator its own"
    tenants = {row.tenant: (row.users, row.runs) for row in (await here.call("DirectoryTenants")).tenants}
    assert tenants == {"acme": (1, 1), "globex": (1, 1)}
    for name, caller in (("DirectoryInspect", READER), ("DirectoryTenants", ACME)):
        denied = await refusal(here.call(name, caller=caller))
        assert denied.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_a_process_that_is_not_ready_says_what_it_waits_for(tmp_path: Path):
    async with served(tmp_path, is_ready=False) as made:
        refused = await refusal(made.call("GetAgent", agent_id="x"))
        assert refused.code() is grpc.StatusCode.UNAVAILABLE
        assert refused.details().startswith("not ready yet")
        assert (await made.call("Health", caller=None)).ok


async def test_an_open_stream_ends_with_the_token(tmp_path: Path):
    async with served(tmp_path, family_options=[MINTING], request_keys=MemoryRequestKeys()) as here:
        create = {"op": "create", "name": "ci", "tenant_id": "acme", "subject": "ada", "scopes": [RUNS_READ]}
        made = orjson.loads((await here.call("OperatorTokenDef", input_json=orjson.dumps(create))).output_json)
        token = (("authorization", f"Bearer {made['token']}"),)
        stream = here.call("StreamUserRunStates", caller=None, metadata=token, user_id="ada")
        await until(lambda: here.service.shares.open_streams == 1)
        here.service.open_access.end_revoked()
        retire = {"op": "retire", "def_id": made["def_id"]}
        assert not (await here.call("OperatorTokenDef", input_json=orjson.dumps(retire))).is_error
        assert here.service.shares.open_streams == 1
        here.service.open_access.end_revoked()
        ended = await refusal(stream)
        assert ended.code() is grpc.StatusCode.UNAUTHENTICATED
        assert "the token gives no access any more" in ended.details()
