"""The routes of definitions of all kinds: reads, batches, and blame.

Before: routes.py. After: definition_query_endpoints.py.
"""

from loomlog.connectors.definitions import KINDS
from loomlog.services.api import definition_query_endpoints as endpoints
from loomlog.services.api.definition_routes import TAG, TENANT, with_nulls
from loomlog.services.api.route import (
    CURSOR_PARAMETER,
    LIMIT_PARAMETER,
    POSITIVE_INTEGER,
    RUN_PATH,
    STATUS_PARAMETER,
    NamedSchema,
    QueryParameter,
    Route,
)
from loomlog.services.application.definition_queries import PAGE_MAX
from loomlog.services.core.access.rules import own_data, requires
from loomlog.services.core.access.scopes import RUNS_READ
from loomlog.services.core.access.scopes import TENANT as TENANT_SCOPE
from loomlog.services.families.definition.apply import CHANGES_MAX
from loomlog.services.families.definition.operation_schema import FIELD_SCHEMAS, OBJECT, TEXT

PATH = "/v1/_definitions"
VERSION_PATH = PATH + "/{def_id}"
FLAG = {"type": "string", "enum": ["true", "false"]}
KIND = QueryParameter(name="kind", description=f"One of {', '.join(KINDS)}.", schema={**TEXT, "enum": list(KINDS)})
NAME = QueryParameter(name="name", description="Only this name.")
CHANGE_SCHEMA = with_nulls(
    {
        "type": "object",
        "properties": {
            "kind": {**TEXT, "enum": list(KINDS), "description": "Kind of definition."},
            **{name: FIELD_SCHEMAS[name] for name in ("name", "overlay", "parent_def_id", "expect_active")},
        },
        "required": ["kind", "name"],
        "additionalProperties": False,
    }
)
APPLY_SCHEMA = {
    "type": "object",
    "properties": {
        "definitions": {
            "type": "array",
            "minItems": 1,
            "maxItems": CHANGES_MAX,
            "items": CHANGE_SCHEMA,
        },
        "description": FIELD_SCHEMAS["description"],
    },
    "required": ["definitions"],
    "additionalProperties": False,
}

DEFINITION_QUERY_ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path=PATH,
        access=requires(TENANT_SCOPE),
        handler=endpoints.list_definitions,
        tag=TAG,
        summary="List what names of all kinds mean: versions made at run time, and files.",
        query=(
            KIND,
            NAME,
            QueryParameter(name="prefix", description="Only names that begin with this text."),
            QueryParameter(name="active", description="Only those with, or without, an active version.", schema=FLAG),
            QueryParameter(name="retired", description="Only those with, or without, a retired version.", schema=FLAG),
            QueryParameter(name="created_by", description="Only those that this subject or agent has made."),
            TENANT,
            QueryParameter(
                name="limit",
                description="Most entries of one answer.",
                schema={**POSITIVE_INTEGER, "maximum": PAGE_MAX},
            ),
            CURSOR_PARAMETER,
        ),
    ),
    Route(
        method="GET",
        path=f"{PATH}/at",
        access=requires(TENANT_SCOPE),
        handler=endpoints.list_definitions_at,
        tag=TAG,
        summary="List what was active at a time, or at the one position that the query names.",
        query=(
            QueryParameter(name="time", description="RFC 3339; absent: the time of `position`."),
            KIND,
            NAME,
            TENANT,
        ),
    ),
    Route(
        method="POST",
        path=f"{PATH}/apply",
        access=requires(TENANT_SCOPE),
        handler=endpoints.apply_definitions,
        tag=TAG,
        summary="Make versions of several definitions active at once, or none of them.",
        body=NamedSchema(
            name="DefinitionBatch",
            schema=with_nulls(APPLY_SCHEMA),
            example={
                "definitions": [
                    {"kind": "skill", "name": "cite", "overlay": {"body": "Name your sources."}},
                    {"kind": "agent", "name": "researcher", "overlay": {"skills": ["cite"]}},
                ],
                "description": "answers name their sources",
            },
        ),
        query=(TENANT,),
        refusal_statuses=(409, 422, 503),
    ),
    Route(
        method="GET",
        path=VERSION_PATH,
        access=requires(TENANT_SCOPE),
        handler=endpoints.get_definition,
        tag=TAG,
        summary="Get a version, or the definition of a file: content, author, judgements.",
        response=NamedSchema(name="Definition", schema=OBJECT),
        query=(TENANT,),
    ),
    Route(
        method="GET",
        path=f"{VERSION_PATH}/diff",
        access=requires(TENANT_SCOPE),
        handler=endpoints.compare_definitions,
        tag=TAG,
        summary="Compare a version field by field.",
        query=(
            QueryParameter(
                name="to",
                description="Compared with: a def_id, `active` or `file`. Absent: what it changed in its parent.",
            ),
            TENANT,
        ),
    ),
    Route(
        method="GET",
        path=f"{VERSION_PATH}/lineage",
        access=requires(TENANT_SCOPE),
        handler=endpoints.get_lineage,
        tag=TAG,
        summary="Get the versions that a version was made from, and those made from it.",
        response=NamedSchema(name="DefinitionLineage", schema=OBJECT),
        query=(
            QueryParameter(name="depth", description="Steps up and down; 10 if absent.", schema=POSITIVE_INTEGER),
            TENANT,
        ),
    ),
    Route(
        method="GET",
        path=f"{VERSION_PATH}/runs",
        access=requires(TENANT_SCOPE),
        handler=endpoints.list_definition_runs,
        tag=TAG,
        summary="List the runs that are pinned to a version of an agent, newest first.",
        query=(STATUS_PARAMETER, LIMIT_PARAMETER, CURSOR_PARAMETER, TENANT),
    ),
    Route(
        method="GET",
        path=f"{RUN_PATH}/blame",
        access=own_data(RUNS_READ),
        handler=endpoints.get_blame,
        tag=TAG,
        summary="Say which definition a run was pinned to, who made it and why, and who made it active and why.",
    ),
)
