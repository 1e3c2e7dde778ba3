"""Records of the namespace loom.act.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import ClassVar

from loomlog.schemas.records import Record


class ActBegun(Record, frozen=True, kw_only=True):
    """An act is about to be carried out."""

    SCHEMA: ClassVar[str] = "loom.act.events.ActBegun"
    CONTENT: ClassVar[Mapping[str, str]] = {"request": "text"}

    act_id: str
    """Id of the act; the same for every attempt of a request with a key."""
    operation: str
    """Operation, such as hook.register, or the id of a route."""
    who: str
    """Subject of the caller."""
    token: str
    """Name of the caller's token; empty: no token is needed here."""
    token_id: str
    """Id of the caller's token where it was minted; empty: it is one of a file, or the shared one."""
    transport: str
    """Where it was asked: http, web, cli, mcp or grpc."""
    request_id: str
    """Id of the request."""
    target: str
    """What it is about, such as a name; empty: the operation says it."""
    at_ms: int
    """When it was asked, UTC milliseconds, by the clock of the process that was asked."""
    request: str
    """Fields of the request, JSON, without secrets and bounded."""


class ActEnded(Record, frozen=True, kw_only=True):
    """An act has ended, or nothing was heard of its end."""

    SCHEMA: ClassVar[str] = "loom.act.events.ActEnded"
    CONTENT: ClassVar[Mapping[str, str]] = {"before": "text", "after": "text"}

    act_id: str
    """Id of the act; the same for every attempt of a request with a key."""
    outcome: str
    """done, refused, or unknown."""
    code: str = ''
    """Code of the refusal; empty: there is none."""
    before: str = ''
    """What there was, JSON, without secrets and bounded; empty: the operation says nothing of it."""
    after: str = ''
    """What there is now, or the answer, JSON, without secrets and bounded; empty: nothing."""


class ActRefused(Record, frozen=True, kw_only=True):
    """Acts of one kind were refused before they began."""

    SCHEMA: ClassVar[str] = "loom.act.events.ActRefused"

    act_id: str
    """Id of the act; the same for every attempt of a request with a key."""
    operation: str
    """Operation, such as hook.register, or the id of a route."""
    who: str
    """Subject of the caller."""
    token: str
    """Name of the caller's token; empty: no token is needed here."""
    token_id: str
    """Id of the caller's token where it was minted; empty: it is one of a file, or the shared one."""
    transport: str
    """Where it was asked: http, web, cli, mcp or grpc."""
    request_id: str
    """Id of the request."""
    target: str
    """What it is about, such as a name; empty: the operation says it."""
    at_ms: int
    """When it was asked, UTC milliseconds, by the clock of the process that was asked."""
    code: str
    """Code of the refusal."""
    count: int
    """Refusals of this kind that it stands for."""


RECORDS = (
    ActBegun,
    ActEnded,
    ActRefused,
)
Event = ActBegun | ActEnded | ActRefused
