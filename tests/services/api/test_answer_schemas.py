"""The contract of the document: bodies and answers have fields, and real answers fit them."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from loomlog.services.api.openapi import build_document
from loomlog.services.api.route import Route
from loomlog.services.api.routes import ROUTES
from loomlog.services.api.schema_examples import REFERENCE
from tests.services.api.answer_schemas import JSON, check_answer

WITHOUT_JSON = {
    "start_run": "stream",
    "stream_run": "stream",
    "watch_runs": "stream",
    "watch_user_runs": "stream",
    "continue_session": "stream",
    "fork_run": "stream",
    "verify_log": "stream",
    "watch_memory_changes": "stream",
    "watch_document_changes": "stream",
    "export_run": "file",
    "get_metrics": "text",
    "get_env_template": "text",
    "get_openapi": "the document itself",
    "get_openapi_yaml": "the document itself",
    "get_docs": "page",
    "get_mcp_consent": "page",
    "start_mcp_access": "page",
    "connect_client": "WebSocket",
    "follow_channel": "stream",
    "delete_channel": "nothing",
    "delete_memory_key": "nothing",
    "remove_user": "nothing",
    "delete_mcp_session": "nothing",
    "remove_limit": "nothing",
    "remove_snapshot": "nothing",
    "sign_in": "nothing",
    "sign_out": "nothing",
}
"""Operations that answer with something else than an object with known fields."""
WITHOUT_BODY = {
    "resume_run",
    "backfill_embeddings",
    "delete_memory_key",
    "drop_memory_scope",
    "probe_mcp_server",
    "purge_stale_embeddings",
    "reembed_memory",
    "remove_user",
    "revoke_user_token",
    "rewrap_credentials",
    "probe_providers",
    "rewrap_keys",
    "remove_hook",
    "purge_channel",
    "delete_channel",
    "delete_mcp_session",
    "pause_schedule",
    "resume_schedule",
    "run_schedule_now",
    "remove_limit",
    "remove_snapshot",
    "sign_in",
    "sign_out",
}
"""Operations that change something and take no body."""
FREE_BODIES = {
    "receive_webhook": "of a sender",
    "receive_tenant_webhook": "of a sender",
    "test_webhook": "of a sender",
    "test_tenant_webhook": "of a sender",
}
"""Operations whose body has any form, with whose it is."""
FILES = {"import_run", "restore_snapshot_file"}
"""Operations whose body is a file."""
OPEN_FIELDS = {
    "MessageBody.metadata": "of a user",
    "RunBody.metadata": "of a user",
    "Run.metadata": "of a user",
    "EndHookBody.payload": "of a user",
    "EndHookBody.args": "of a user",
    "AgentDefinitionView.definition": "of a user",
    "EventRecord.payload": "a record of any type",
    "LoggedRecord.payload": "a record of any type",
    "TimelineEvent.payload": "a record of any type",
    "DeadLetterOriginal.payload": "a record of any type",
    "StateSchema.schema": "an Avro schema",
    "TranscriptFrame.event": "a frame of any type",
    "TranscriptFrame.payload": "segments of a user",
    "TranscriptEvent.payload": "a frame of any type",
    "TranscriptEvent.segments": "segments of a user",
    "Aggregate.state": "the state of any family",
    "FoldedAggregate.state": "the state, as its family has it",
    "RepairBody.state": "the state of any family",
    "ValueDifference.a": "the value of any field",
    "ValueDifference.b": "the value of any field",
    "RestoreBody.json": "a state file, of any version",
    "CloudEvent.data": "of a user",
    "WebhookAnswer.result": "a record of the schema of the run",
    "WebhookRunPreview.run_metadata": "of a user",
    "ChannelPublish.payload": "of a user",
    "ChannelBroadcast.payload": "of a user",
    "UserChannelPublish.payload": "of a user",
    "ChannelMessage.value": "of a user",
    "ScheduleEntry.static_definition": "a definition of any kind",
    "WebhookDelivery.run_metadata": "of a user",
    "McpMessage.params": "of any method",
    "McpAnswer.result": "of any method",
    "McpAnswer.error": "of any method",
    "A2AAgentDefOperation.overlay": "a definition of any kind",
    "A2AServerCardDefOperation.overlay": "a definition of any kind",
    "ActShown.after": "the request or the target of any operation",
    "ActShown.before": "the request or the target of any operation",
    "ActShown.request": "the request or the target of any operation",
    "AgentDefOperation.overlay": "a definition of any kind",
    "AppliedDefinition.definition": "a definition of any kind",
    "Definition.definition": "a definition of any kind",
    "DefinitionBatch.definitions": "a definition of any kind",
    "DefinitionVersion.definition": "a definition of any kind",
    "DocumentSourceDefOperation.overlay": "a definition of any kind",
    "Evaluation.judgement": "of a user",
    "EvaluationOperation.judgement": "of a user",
    "FieldChange.after": "the value of any field",
    "FieldChange.before": "the value of any field",
    "LibraryEntry.static_definition": "a definition of any kind",
    "MCPServerDefOperation.overlay": "a definition of any kind",
    "McpListedTool.input_schema": "a JSON Schema",
    "MemoryAt.value": "of a user",
    "MemoryBackendDefOperation.overlay": "a definition of any kind",
    "MemoryFactOrigin.spans": "as another installation tells it",
    "MemoryHit.chunk_id": "as another installation tells it",
    "MemoryHit.document": "as another installation tells it",
    "MemoryHit.embedded_with": "as another installation tells it",
    "MemoryHit.expires_at": "as another installation tells it",
    "MemoryHit.kind": "as another installation tells it",
    "MemoryHit.rank_score": "as another installation tells it",
    "MemoryHit.ranks": "as another installation tells it",
    "MemoryHit.score": "as another installation tells it",
    "MemoryHit.title": "as another installation tells it",
    "MemoryHit.value": "of a user",
    "MemoryHits.dedup_dropped": "as another installation tells it",
    "MemoryHits.query_embedding_dim": "as another installation tells it",
    "MemoryHits.rank_note": "as another installation tells it",
    "MemoryHits.truncated": "as another installation tells it",
    "MemoryPut.value": "of a user",
    "MemoryRow.source": "origin, run, turn, call, as far as known",
    "MemoryRow.value": "of a user",
    "MemorySqlQuery.args": "values of SQL",
    "MemorySqlRows.rows": "values of SQL",
    "MemorySupersededRow.provenance": "origin, run, turn, call, as far as known",
    "MemorySupersededRow.source": "origin, run, turn, call, as far as known",
    "MemorySupersededRow.value": "of a user",
    "MemoryVersion.provenance": "origin, run, turn, call, as far as known",
    "MemoryVersion.source": "origin, run, turn, call, as far as known",
    "MemoryVersion.value": "of a user",
    "MemoryWritten.value": "of a user",
    "MessageBody.output_schema": "a JSON Schema",
    "PolicySetInput.rules": "rules of approvals",
    "PolicyTest.rules": "rules of approvals",
    "PolicyVersion.rules": "rules of approvals",
    "Run.result": "a record of the schema of the run",
    "RunBody.output_schema": "a JSON Schema",
    "ScheduleDefOperation.hook": "a hook of any kind",
    "ScheduleDefOperation.overlay": "a definition of any kind",
    "SkillDefOperation.overlay": "a definition of any kind",
    "SpawnResult.result": "a record of the schema of the run",
    "TeamDefOperation.overlay": "a definition of any kind",
    "WebhookDefOperation.overlay": "a definition of any kind",
}
"""Fields without a shape of their own, with what they hold."""
DOCUMENT = build_document("1")
HEALTH = b'{"ok":true,"version":"1","commit":"","built":"","uptime_seconds":1.5,"metrics_enabled":true,'
HEALTH += b'"replica_id":"a","replicas":[]%s}'


def has_fields(schema: Mapping[str, Any]) -> bool:
    """Whether a schema, or each of its alternatives, is an object with known fields."""
    if "$ref" in schema:
        return has_fields(DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    if "anyOf" in schema:
        return all(map(has_fields, schema["anyOf"]))
    return bool(schema.get("properties"))


def operation_of(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = DOCUMENT["paths"][route.template][route.method.lower()]
    return operation


def answers_of(route: Route) -> Iterator[Mapping[str, Any]]:
    """Yield the contents by media type of the answers with which a route succeeds."""
    for status, response in operation_of(route)["responses"].items():
        if status.startswith(("1", "2")):
            yield response.get("content", {})


def has_typed_answers(route: Route) -> bool:
    return all(JSON in content and has_fields(content[JSON]["schema"]) for content in answers_of(route))


def reachable_schemas() -> set[str]:
    """The names of the schemas that the operations use."""
    names: set[str] = set()

    def collect(part: Any) -> None:
        if isinstance(part, dict):
            name = str(part.get("$ref", "")).removeprefix(REFERENCE)
            if name in DOCUMENT["components"]["schemas"] and name not in names:
                names.add(name)
                collect(DOCUMENT["components"]["schemas"][name])
            collect(list(part.values()))
        elif isinstance(part, list):
            for item in part:
                collect(item)

    collect([operation_of(route) for route in ROUTES])
    return names


def is_open(schema: Mapping[str, Any]) -> bool:
    """Whether a schema, or a part of it, accepts any value or any object."""
    parts = [*schema.get("anyOf", ()), *schema.get("properties", {}).values()]
    if schema.get("maxItems") != 0 and schema.get("type") == "array":
        parts.append(schema.get("items", {}))
    if schema.get("type") == "object" and "properties" not in schema:
        more = schema.get("additionalProperties", True)
        parts.append({} if more is True else more)
    shapes = {"$ref", "type", "anyOf", "oneOf", "allOf", "enum", "const"}
    return not shapes & schema.keys() or any(map(is_open, parts))


def test_every_answer_has_fields() -> None:
    without = {route.operation_id for route in ROUTES if not has_typed_answers(route)}
    assert without == WITHOUT_JSON.keys()


def test_every_body_has_fields() -> None:
    without, files, free = set(), set(), set()
    for route in ROUTES:
        content = operation_of(route).get("requestBody", {}).get("content", {})
        if route.takes_file:
            files.add(route.operation_id)
        elif content:
            free |= set() if has_fields(content[JSON]["schema"]) else {route.operation_id}
        elif route.is_mutating:
            without.add(route.operation_id)
    assert (without, files, free) == (WITHOUT_BODY, FILES, FREE_BODIES.keys())


def test_only_fields_for_anything_are_open() -> None:
    open_fields = {
        f"{name}.{field}"
        for name in reachable_schemas()
        for field, schema in DOCUMENT["components"]["schemas"][name].get("properties", {}).items()
        if is_open(schema)
    }
    assert open_fields == OPEN_FIELDS.keys()


def test_an_answer_of_the_document_is_accepted() -> None:
    check_answer("GET", "/healthz", 200, JSON, HEALTH % b"")


def test_paths_without_a_route_are_not_checked() -> None:
    check_answer("GET", "/v1/nowhere", 404, JSON, b"{}")


@pytest.mark.parametrize(
    ("path", "status", "body", "message"),
    [
        ("/healthz", 200, b'{"ok":true}', "is a required property"),
        ("/healthz", 200, HEALTH % b',"more":1', "Additional properties are not allowed"),
        ("/healthz", 404, b'{"code":"not_found","error":"no"}', "status 404 is not described"),
        ("/v1/runs/r_1", 404, b'{"code":"bad_request","error":"no"}', "is not one of"),
        ("/metrics", 200, b"{}", "the JSON of 200 is not described"),
    ],
)
def test_another_answer_is_not(path: str, status: int, body: bytes, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_answer("GET", path, status, JSON, body)
