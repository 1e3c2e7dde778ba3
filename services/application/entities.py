"""Commands and reads of all families: who may do what in which tenant, and what becomes of the outcome.

No family is named here: which commands there are, the scope each needs and the answers are in the declarations
(services/core/families.py). Content is decrypted here, for the tenant the aggregate belongs to.

A request with an Idempotency-Key is one command however often it is sent (request_context.py).

A caller that is confined to its own subject is refused unless the declared scope is `substrate:user`: aggregates belong
to a tenant, and the kit does not know whose subject they are about.

Before: services/api/entity_endpoints.py. After: the owner of the aggregate; services/stream/entities/reads.py.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from loomlog.connectors.errors import ConnectorError, Transient
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.schemas.generated.entity_events import CommandHadNoEffect, CommandRefused
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.application import limits
from loomlog.services.application.authentication import require_member, require_scope
from loomlog.services.application.content import ContentAccess
from loomlog.services.application.errors import RETRY_SOON_S, bad_request, family_refusal, unavailable
from loomlog.services.application.queries.read_your_writes import not_yet_error
from loomlog.services.application.request_context import command_id as make_command_id
from loomlog.services.application.request_context import current_request
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.scopes import ADMIN, USER
from loomlog.services.core.command_fields import InvalidFields, parse_fields, to_json
from loomlog.services.core.families import Command, Family, Query, name_problem
from loomlog.services.core.refusals import Refused
from loomlog.services.stream.entities.answers import CommandInvalid, CommandUnanswered, EntityCommands
from loomlog.services.stream.entities.reads import EntityReads, EntityRow, PositionNotRead

AnyFamily = Family[Any, Any, Any]

PAGE_DEFAULT, PAGE_MAX = 50, 200
"""Aggregates of one page: each has its whole state, at most 600 KB."""
TENANT = re.compile(r"[A-Za-z0-9_-]{1,64}\Z", re.ASCII)
"""As in the configuration. A slash in it would make the ids of two aggregates equal."""


class Entities:
    """The use cases. All methods raise Refused; `tenant` empty is the caller's."""

    def __init__(
        self,
        commands: EntityCommands,
        reads: EntityReads,
        content: ContentAccess,
        *,
        clock_ms: Callable[[], int],
        new_token: Callable[[], str],
        wait_s: float = limits.DECISION_WAIT_S,
    ) -> None:
        """`new_token` draws the tokens of the current request (request_context.py). `wait_s` bounds a command."""
        self._commands = commands
        self._reads = reads
        self._content = content
        self._clock_ms = clock_ms
        self._new_token = new_token
        self._wait_s = wait_s

    async def command(
        self, caller: Caller, family: AnyFamily, row: Command[Any], fields: Mapping[str, Any], *, tenant: str = ""
    ) -> tuple[dict[str, Any], str]:
        """Give a command; return its reply, which is empty when it changed nothing, and the position of its events."""
        _require_access(caller, row.scope)
        tenant = resolve_tenant(caller, tenant)
        envelope = CommandEnvelope(
            # The tenant is in the query, which is no part of what a token is drawn from.
            command_id=make_command_id("entity", family.name, tenant, self._new_token()),
            tenant=tenant,
            subject=caller.subject,
            # A repetition was issued at a time that only its first sender knows: 0 makes the owner look it up.
            issued_at_ms=0 if current_request.get().idempotency_key else self._clock_ms(),
        )
        try:
            command = parse_fields(row.record, fields, envelope)
        except InvalidFields as error:
            raise bad_request(str(error)) from error
        _check_name(row.aggregate(command))
        try:
            answer = await self._commands.ask(command, wait_s=self._wait_s)
        except CommandInvalid as error:
            raise bad_request(str(error)) from error
        except CommandUnanswered as error:
            raise self._pending() from error
        except Transient as error:
            raise unavailable("log", error) from error
        last = answer.events[-1]
        if isinstance(last, CommandRefused):
            raise family_refusal(last.code, await self._content.decrypt(last.message, tenant))
        reply = {} if isinstance(last, CommandHadNoEffect) else row.reply(answer.events)
        return await self._content.decrypt(to_json(reply), tenant), answer.position

    async def show(
        self, caller: Caller, family: AnyFamily, name: str, *, tenant: str = "", positions: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Return an aggregate with its state, after all `positions`."""
        _require_access(caller, family.scope)
        tenant = resolve_tenant(caller, tenant)
        row = await self._find(family, tenant, name, positions)
        return await self._content.decrypt(row_json(family, tenant, row), tenant)

    async def list(
        self,
        caller: Caller,
        family: AnyFamily,
        *,
        tenant: str = "",
        prefix: str = "",
        cursor: str = "",
        limit: int = PAGE_DEFAULT,
        positions: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Return a page of aggregates by name; `next` is the cursor of the following one, None at the end."""
        _require_access(caller, family.scope)
        tenant = resolve_tenant(caller, tenant)
        rows = await self._read(
            self._reads.list(
                family.name, tenant, prefix=prefix, after=_decode_cursor(cursor), limit=limit + 1, positions=positions
            )
        )
        page = rows[:limit]
        items = [row_json(family, tenant, row) for row in page]
        following = encode_cursor(page[-1].name) if len(rows) > limit else None
        return {"items": await self._content.decrypt(items, tenant), "next": following}

    async def query(
        self,
        caller: Caller,
        family: AnyFamily,
        query: Query[Any],
        name: str,
        parameters: Mapping[str, str],
        *,
        tenant: str = "",
        positions: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Return the answer to a question about an aggregate."""
        _require_access(caller, query.scope)
        tenant = resolve_tenant(caller, tenant)
        row = await self._find(family, tenant, name, positions)
        answer = query.answer(row.entity.state, parameters)
        return await self._content.decrypt(to_json(answer), tenant)

    async def _find(self, family: AnyFamily, tenant: str, name: str, positions: Sequence[str]) -> EntityRow:
        _check_name(name)
        row: EntityRow | None = await self._read(self._reads.show(family.name, tenant, name, positions=positions))
        if row is None:
            raise Refused("not_found", f"there is no {family.name} {name[:80]!r}")
        return row

    async def _read(self, reading: Any) -> Any:
        try:
            return await reading
        except PositionNotRead as error:
            raise not_yet_error(str(error), error.lag) from error
        except ConnectorError as error:
            raise unavailable("projection", error) from error

    def _pending(self) -> Refused:
        if current_request.get().idempotency_key:
            advice = "repeating the request with the same Idempotency-Key does no harm"
        else:
            advice = "the request had no Idempotency-Key, so repeating it may do it twice: look first"
        return Refused(
            "command_pending",
            f"no owner has answered within {self._wait_s:g} s, and the command may still be carried out; {advice}",
            retry_after_s=RETRY_SOON_S,
        )


def row_json(family: AnyFamily, tenant: str, row: EntityRow) -> dict[str, Any]:
    """Return an aggregate as reads show it; texts are as they are stored."""
    entity = row.entity
    return {
        "id": row.name,
        "tenant_id": tenant,
        "state": to_json(family.view(entity.state)),
        "quarantine": entity.quarantine or None,
        "created_at": format_rfc3339(entity.created_at_ms),
        "updated_at": format_rfc3339(entity.updated_at_ms),
    }


def encode_cursor(name: str) -> str:
    """Return the cursor of the page after that name."""
    return base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


def _decode_cursor(cursor: str) -> str:
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError, ValueError):
        raise bad_request("cursor is not a place this list gave out: use `next` of an earlier answer") from None


def _require_access(caller: Caller, scope: str) -> None:
    require_scope(caller, scope)
    if scope != USER:
        require_member(caller)


def resolve_tenant(caller: Caller, named: str) -> str:
    """Return the tenant of a request; administrators may name another one. Raises Refused."""
    if not named or named == caller.tenant:
        return caller.tenant
    if not caller.is_admin:
        text = f"the tenant {named[:80]} is not yours"
        raise Refused("insufficient_scope", text, details={"scope": ADMIN})
    if not TENANT.match(named):
        raise bad_request("tenant: expected at most 64 letters, digits, _ and -")
    return named


def _check_name(name: str) -> None:
    if problem := name_problem(name):
        raise bad_request(f"the id {problem}")
