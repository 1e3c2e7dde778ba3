"""The routes of definitions: one for the operations of each kind, and what is asked of all kinds.

Before: routes.py. After: definition_endpoints.py.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from loomlog.connectors.definitions import KINDS, Kind
from loomlog.services.api import definition_endpoints
from loomlog.services.api.answer_examples import DEFINITION_ANSWER, DEFINITION_NAMES
from loomlog.services.api.route import NamedSchema, QueryParameter, Route, Tag
from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import TENANT as TENANT_SCOPE
from loomlog.services.core.access.scopes import TENANT_READ
from loomlog.services.families.definition.evaluations import INPUT_SCHEMA
from loomlog.services.families.definition.operation_schema import OBJECT, operation_schema
from loomlog.services.families.definition.volumes import INPUT_SCHEMA as VOLUME_SCHEMA

TAG = Tag(name="Definitions", description="Agents, skills and other definitions, as versions in the log.")
TENANT = QueryParameter(
    name="tenant", description="Administrators: the tenant, or _shared for the definitions of all tenants."
)


def with_nulls(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an object whose optional fields may also be null, which means absent."""
    required = schema.get("required", ())
    properties = {
        name: {**one, "type": [one["type"], "null"]} if name not in required and "type" in one else one
        for name, one in schema["properties"].items()
    }
    return {**schema, "properties": properties}


def _kind_routes(kind: Kind) -> Iterator[Route]:
    yield Route(
        method="POST",
        path=f"/v1/_{kind.name}def",
        access=requires(TENANT_SCOPE),
        handler=definition_endpoints.operation_handler(kind),
        operation=f"change_{kind.name}_definition",
        tag=TAG,
        summary=f"Create, fork, promote, retire or read a definition of the kind {kind.name}.",
        body=NamedSchema(
            name=f"{kind.tool}Operation",
            schema=with_nulls(operation_schema(kind)),
            example={"op": "list", "name": "researcher"},
        ),
        response=NamedSchema(name=f"{kind.tool}Answer", schema=OBJECT, example=DEFINITION_ANSWER),
        query=(TENANT,),
        refusal_statuses=(409, 422, 503),
    )
    yield Route(
        method="GET",
        path=f"/v1/_{kind.name}def/names",
        access=requires(TENANT_READ),
        handler=definition_endpoints.names_handler(kind),
        operation=f"list_{kind.name}_definition_names",
        tag=TAG,
        summary=f"List the names of the kind {kind.name}, with the number of their versions.",
        response=NamedSchema(name=f"{kind.tool}Names", schema=OBJECT, example=DEFINITION_NAMES),
        query=(TENANT,),
    )


DEFINITION_ROUTES: tuple[Route, ...] = (
    *(route for kind in KINDS.values() for route in _kind_routes(kind)),
    Route(
        method="POST",
        path="/v1/_evaluation",
        access=requires(TENANT_SCOPE),
        handler=definition_endpoints.evaluation,
        operation="judge_run",
        tag=TAG,
        summary="Judge a run, or read judgements.",
        body=NamedSchema(
            name="EvaluationOperation",
            schema=with_nulls(INPUT_SCHEMA),
            example={"op": "aggregate", "def_id": "def_00112233aabbccdd"},
        ),
        response=NamedSchema(name="EvaluationAnswer", schema=OBJECT),
        query=(TENANT,),
        refusal_statuses=(422, 503),
    ),
    Route(
        method="POST",
        path="/v1/_volumedef",
        access=requires(TENANT_SCOPE),
        handler=definition_endpoints.volume_operation,
        operation="change_volume_definition",
        tag=TAG,
        summary="Make, remove or read volumes that are made at run time.",
        body=NamedSchema(
            name="VolumeDefOperation",
            schema=with_nulls(VOLUME_SCHEMA),
            example={"op": "create", "name": "notes", "mode": "rw"},
        ),
        response=NamedSchema(name="VolumeDefAnswer", schema=OBJECT),
        query=(TENANT,),
        refusal_statuses=(409, 422, 503),
    ),
    Route(
        method="GET",
        path="/v1/_volumes",
        access=requires(TENANT_READ),
        handler=definition_endpoints.list_volumes,
        tag=TAG,
        summary="List the volumes of the files and those made at run time; paths are for administrators.",
        response=NamedSchema(name="Volumes", schema=OBJECT),
        query=(TENANT,),
    ),
    Route(
        method="GET",
        path="/v1/_volumes/ephemeral",
        access=requires(TENANT_READ),
        handler=definition_endpoints.list_ephemeral_volumes,
        tag=TAG,
        summary="List the volumes that end with their runs; paths are for administrators.",
        response=NamedSchema(name="EphemeralVolumes", schema=OBJECT),
        query=(TENANT,),
    ),
    Route(
        method="GET",
        path="/v1/_library/{shelf}",
        access=requires(TENANT_READ),
        handler=definition_endpoints.list_library,
        tag=TAG,
        summary="List agents, skills or mcp-servers, from files and made at run time.",
        query=(TENANT,),
        refusal_statuses=(404,),
    ),
)
