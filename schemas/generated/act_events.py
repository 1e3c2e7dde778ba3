"""Records of the namespace loom.act.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import Any, ClassVar, Self

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

    def to_avro(self) -> dict[str, Any]:
        return {
            "act_id": self.act_id,
            "operation": self.operation,
            "who": self.who,
            "token": self.token,
            "token_id": self.token_id,
            "transport": self.transport,
            "request_id": self.request_id,
            "target": self.target,
            "at_ms": self.at_ms,
            "request": self.request,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            act_id=value["act_id"],
            operation=value["operation"],
            who=value["who"],
            token=value["token"],
            token_id=value["token_id"],
            transport=value["transport"],
            request_id=value["request_id"],
            target=value["target"],
            at_ms=value["at_ms"],
            request=value["request"],
        )


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

    def to_avro(self) -> dict[str, Any]:
        return {
            "act_id": self.act_id,
            "outcome": self.outcome,
            "code": self.code,
            "before": self.before,
            "after": self.after,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            act_id=value["act_id"],
            outcome=value["outcome"],
            code=value["code"],
            before=value["before"],
            after=value["after"],
        )


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

    def to_avro(self) -> dict[str, Any]:
        return {
            "act_id": self.act_id,
            "operation": self.operation,
            "who": self.who,
            "token": self.token,
            "token_id": self.token_id,
            "transport": self.transport,
            "request_id": self.request_id,
            "target": self.target,
            "at_ms": self.at_ms,
            "code": self.code,
            "count": self.count,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            act_id=value["act_id"],
            operation=value["operation"],
            who=value["who"],
            token=value["token"],
            token_id=value["token_id"],
            transport=value["transport"],
            request_id=value["request_id"],
            target=value["target"],
            at_ms=value["at_ms"],
            code=value["code"],
            count=value["count"],
        )


RECORDS = (
    ActBegun,
    ActEnded,
    ActRefused,
)
Event = ActBegun | ActEnded | ActRefused
