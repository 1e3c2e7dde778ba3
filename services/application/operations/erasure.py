"""The operations on the encrypted content of a subject: report, erasure, new installation key. Pure.

The tenant is always named: an administrator belongs to no single tenant. Report and list are one route, which
services/api/erasure_endpoints.py has by hand: the answer has another form with a subject than without.

Before: services/application/operations/__init__.py. After: erasure_handlers.py carries them out.
"""

from functools import partial
from typing import Annotated

from msgspec import Meta

from loomlog.services.application import limits
from loomlog.services.application.answers.erasure import ErasureResult, KeysRewrapped, SubjectList, SubjectReport
from loomlog.services.application.operations.fields import Reason, http
from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import ADMIN, TENANT
from loomlog.services.core.operations import (
    PRINTABLE,
    AnyOperation,
    Effect,
    Input,
    McpTool,
    NoInput,
    Operation,
    Tag,
)

TAG = Tag(name="Erasure", description="Encrypted content of a subject, and its erasure.")
BODY_BYTES_MAX = 64 * 1024
Tenant = Annotated[
    str,
    Meta(
        max_length=limits.NAME_BYTES_MAX,
        pattern=PRINTABLE,
        description="The tenant of the subject; administrators name it.",
    ),
]


class ErasureTenant(Input, frozen=True, kw_only=True):
    tenant: Tenant = ""


class ErasureSubject(ErasureTenant, frozen=True, kw_only=True):
    subject: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=limits.NAME_BYTES_MAX,
            pattern=PRINTABLE,
            description="A user_id, or (tenant) for runs that name no user.",
        ),
    ]


class ErasureErase(Input, frozen=True, kw_only=True):
    subject: Annotated[str, Meta(min_length=1, max_length=limits.NAME_BYTES_MAX, description="A user_id, or (tenant).")]
    tenant: Tenant = ""
    dry_run: Annotated[bool | None, Meta(description="true if absent: only report what would be erased.")] = None
    confirm: Annotated[
        Annotated[str, Meta(max_length=limits.NAME_BYTES_MAX)] | None, Meta(description="The subject, repeated.")
    ] = None
    reason: Annotated[Reason, Meta(description="Kept with the erasure.")] = None


_read = partial(Operation, effect=Effect.READ, tag=TAG, access=requires(TENANT), unavailable_code="log_unavailable")
REPORT = _read(
    name="erasure.report",
    summary="Report what an erasure of a subject covers.",
    input=ErasureSubject,
    output=SubjectReport,
    mcp=(McpTool(tool="erasure", op="report", is_default=True, has_own_tenant=True),),
)
LIST_SUBJECTS = _read(
    name="erasure.list_subjects",
    summary="List the subjects of a tenant that have or had a key.",
    input=ErasureTenant,
    output=SubjectList,
)
ERASE = Operation(
    name="erasure.erase",
    summary="Erase a subject, with dry_run false and confirm; otherwise only report what that would do.",
    input=ErasureErase,
    output=ErasureResult,
    access=requires(TENANT),
    effect=Effect.WAIT,
    tag=TAG,
    unavailable_code="log_unavailable",
    http=(
        http(
            route="POST /v1/_erasure",
            id="erase_subject",
            query=("tenant",),
            body_bytes_max=BODY_BYTES_MAX,
            body_name="ErasureBody",
            example={"subject": "ada", "dry_run": True},
        ),
    ),
    mcp=(McpTool(tool="erasure", op="execute", has_own_tenant=True),),
)
REWRAP = Operation(
    name="erasure.rewrap_keys",
    summary="Encrypt the keys of subjects with the current installation key.",
    input=NoInput,
    output=KeysRewrapped,
    access=requires(ADMIN),
    effect=Effect.WRITE,
    tag=TAG,
    unavailable_code="log_unavailable",
    http=(http(route="POST /v1/_erasure/rewrap", id="rewrap_keys"),),
)
ERASURE_OPERATIONS: tuple[AnyOperation, ...] = (REPORT, LIST_SUBJECTS, ERASE, REWRAP)
