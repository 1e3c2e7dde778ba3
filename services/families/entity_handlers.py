"""Carries out the operations that follow from the commands and queries of families, for requests and agents alike.

No family is named here: its declaration has its commands, and its functions make the answers. Content is decrypted
here, for the tenant that the aggregate belongs to.

Before: opening.py. After: the owner of the aggregate; services/stream/entities/reads.py.
"""

import base64
import binascii
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec import UNSET

from loomlog.connectors.errors import ConnectorError, describe_unreachable
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.schemas.generated.entity_events import CommandHadNoEffect
from loomlog.schemas.records import replace
from loomlog.services.core.command_fields import to_json
from loomlog.services.core.entity_operations import (
    Aggregate,
    AggregateList,
    AggregateNamed,
    AggregatePage,
    QueryAnswer,
    Reply,
    command_operation,
    list_operation,
    query_operation,
    show_operation,
)
from loomlog.services.core.families import Command, Family, Query, name_problem
from loomlog.services.core.operations import Answer, AnyOperation, Call, Handler, Handlers, OperationCaller, Origin
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.operation import Decrypt, command_owner
from loomlog.services.stream.entities.answers import EntityCommands
from loomlog.services.stream.entities.reads import EntityReads, EntityRow, PositionNotRead

AnyFamily = Family[Any, Any, Any]
ValueT = TypeVar("ValueT")

PAGE, PAGE_OF_AGENTS, PAGE_OF_AGENTS_MAX = 50, 20, 100
"""Aggregates of one answer; a model reads all of it."""
WAIT_S = {Origin.REQUEST: 10.0, Origin.AGENT: 50.0}
"""Seconds to wait for the answer to a command: as for the start of a run; within ANSWER_S of
services/runtime/tools/operation_calls.py, so that the outcome is reported as unknown.
"""


class EntityHandlers:
    """One method for each kind of operation. All raise Refused and Unavailable."""

    def __init__(self, commands: EntityCommands, reads: EntityReads, *, decrypt: Decrypt) -> None:
        self._commands = commands
        self._reads = reads
        self._decrypt = decrypt

    def by_operation(self, families: Sequence[AnyFamily]) -> Handlers:
        """Return the handlers by their operations, of inner commands too, but not of what a family declares itself."""
        handlers: dict[AnyOperation, Handler] = {}
        declared = {operation for family in families for operation in family.operations}
        for family in families:
            handlers |= {command_operation(family, row): partial(self._give, row) for row in family.commands}
            handlers[list_operation(family)] = partial(self._list, family)
            handlers[show_operation(family)] = partial(self._show, family)
            for query in family.queries:
                handlers[query_operation(family, query)] = partial(self._query, family, query)
        return {operation: handler for operation, handler in handlers.items() if operation not in declared}

    async def _give(self, row: Command[Any], call: Call[Any]) -> Answer[Reply]:
        """Give a command; its reply is empty when it changed nothing."""
        tenant = call.caller.tenant
        command = replace(call.input, envelope=call.envelope())
        _check_name(row.aggregate(command))
        answer = await command_owner(
            self._commands, command, call, wait_s=WAIT_S[call.caller.origin], decrypt=self._decrypt
        )
        last = answer.events[-1]
        is_changed = not isinstance(last, CommandHadNoEffect)
        fields = await self._decrypt(to_json(row.reply(answer.events)), tenant) if is_changed else {}
        return Answer(value=Reply(fields=fields, is_changed=is_changed), positions=(answer.position,))

    async def _show(self, family: AnyFamily, call: Call[AggregateNamed]) -> Answer[Aggregate]:
        """Return an aggregate with its state."""
        row = await self._find(family, call.input.id, call.caller)
        return Answer(value=await self._decrypted(family, row, call.caller.tenant))

    async def _list(self, family: AnyFamily, call: Call[AggregateList]) -> Answer[AggregatePage]:
        """Return a page of aggregates by name."""
        asked, caller = call.input, call.caller
        is_agent = caller.origin is Origin.AGENT
        limit = asked.limit if asked.limit is not UNSET else PAGE_OF_AGENTS if is_agent else PAGE
        limit = min(limit, PAGE_OF_AGENTS_MAX) if is_agent else limit
        after = _decode_cursor(asked.cursor) if asked.cursor else asked.after
        reading = self._reads.list(
            family.name, caller.tenant, prefix=asked.prefix, after=after, limit=limit + 1, positions=caller.positions
        )
        rows = await _read(reading)
        items = [await self._decrypted(family, row, caller.tenant) for row in rows[:limit]]
        following = encode_cursor(items[-1].id) if len(rows) > limit else None
        return Answer(value=AggregatePage(items=items, next=following))

    async def _query(self, family: AnyFamily, query: Query[Any], call: Call[Any]) -> Answer[QueryAnswer]:
        """Return the answer to a question about an aggregate."""
        row = await self._find(family, call.input.id, call.caller)
        values = {name: getattr(call.input, name) for name in query.parameters}
        parameters = {name: value for name, value in values.items() if value is not UNSET}
        fields = await self._decrypt(to_json(query.answer(row.entity.state, parameters)), call.caller.tenant)
        return Answer(value=QueryAnswer(fields=fields))

    async def _find(self, family: AnyFamily, name: str, caller: OperationCaller) -> EntityRow:
        _check_name(name)
        row = await _read(self._reads.show(family.name, caller.tenant, name, positions=caller.positions))
        if row is None:
            raise Refused("not_found", f"there is no {family.name} {name[:80]!r}")
        return row

    async def _decrypted(self, family: AnyFamily, row: EntityRow, tenant: str) -> Aggregate:
        entity = row.entity
        return Aggregate(
            id=row.name,
            tenant_id=tenant,
            state=await self._decrypt(to_json(family.view(entity.state)), tenant),
            quarantine=await self._decrypt(entity.quarantine or None, tenant),
            created_at=format_rfc3339(entity.created_at_ms),
            updated_at=format_rfc3339(entity.updated_at_ms),
        )


def encode_cursor(name: str) -> str:
    """Return the cursor of the page after that name."""
    return base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


def _decode_cursor(cursor: str) -> str:
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError, ValueError):
        message = "cursor is not a place this list gave out: use `next` of an earlier answer"
        raise Refused("bad_request", message) from None


async def _read(reading: Awaitable[ValueT]) -> ValueT:
    try:
        return await reading
    except PositionNotRead as error:
        raise Unavailable(f"the answer would miss what was written before: {error}") from error
    except ConnectorError as error:
        raise Unavailable(describe_unreachable("the read models", error)) from error


def _check_name(name: str) -> None:
    if problem := name_problem(name):
        raise Refused("bad_request", f"the id {problem}")
