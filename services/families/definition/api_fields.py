"""What the declarations of definitions have in common: fields, and how requests see refusals.

Before: operations.py raises refusals. After: kind_api.py, query_api.py, evaluation_api.py, volume_api.py.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

from msgspec import Meta

from loomlog.services.core.definitions import TAG
from loomlog.services.core.error_codes import STATUS_BY_CODE
from loomlog.services.core.operations import Operation
from loomlog.services.core.refusals import Refused
from loomlog.services.families.definition.decide import CONFLICT

BODY_BYTES_MAX = 2 * 1024 * 1024
"""Longest operation: a skill with its files."""
INVALID, MISSING, UNKNOWN_FIELD, UNKNOWN_OP = "invalid_definition", "missing_field", "unknown_field", "unknown_op"
NOT_FOUND = "not_found"

_NAME = Meta(description="Name of the definition; a fork without one has that of its parent.")
Name = Annotated[str, _NAME]
OptionalName = Annotated[str | None, _NAME]
Overlay = Annotated[
    dict[str, Any] | None, Meta(description="Keys of the definition; a fork keeps those that are absent.")
]
Description = Annotated[str | None, Meta(description="Why this version is made.")]
Promote = Annotated[bool | None, Meta(description="Whether the version becomes the active one.")]
ExpectActive = Annotated[str | None, Meta(description="Refuse unless this version is active; empty: unless none is.")]
ExpiresAt = Annotated[str | None, Meta(description="When the version is retired by itself, RFC 3339.")]
ParentId = Annotated[str | None, Meta(description="Version to fork; absent: the active one, or the file's.")]
Why = Annotated[str | None, Meta(description="Reason, for people.")]
Time = Annotated[str, Meta(description="RFC 3339, with nanoseconds.")]
Source = Literal["tenant", "file", "shared"]

operation = partial(Operation, tag=TAG, unavailable_code="definitions_unavailable", pending_code="definition_pending")
"""An operation of definitions."""


def refusing_operation(tool: str) -> Callable[..., Operation[Any, Any]]:
    """Return what declares an operation whose refusals requests see as those of a tool."""
    return partial(
        operation, invalid_code=INVALID, missing_code=MISSING, unknown_code=UNKNOWN_FIELD, refused=_refused_by(tool)
    )


def _refused_by(tool: str) -> Callable[[Refused], Refused]:
    """Return what shows a refusal with the code tool_refused and its own as the reason."""

    def show(refused: Refused) -> Refused:
        if STATUS_BY_CODE.get(refused.code) == 503:  # the keys of content do not answer: nothing is wrong with the call
            return refused
        code = CONFLICT if refused.code == CONFLICT else "tool_refused"
        return Refused(code, refused.message, details={"tool": tool, "reason": refused.code})

    return show
