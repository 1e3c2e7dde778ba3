"""Tools of agents made from the declarations of families: `op` names a command or a read, the rest are its fields.

A command carries the call's idempotency key as its id, which is the same for every attempt of the call: however often
the call is made, the command is carried out once and its answer is the same. So its effect class is idempotent. The
positions of what it wrote go into the run's facts, and reads of later calls wait for them.

Providers refuse alternatives at the top of a schema (connectors/models/tool_schema.py), so the fields of all operations
are properties of one object, each with the names of its operations, and the call itself is checked strictly. A null
that no field requires is no mistake: several providers send every argument.

Commands are given in the name of the run's user, whose key encrypts their content.

Before: services/runtime/effects.py. After: the owner of the aggregate.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import orjson

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.protocols import EffectClass, Tool, ToolContext, ToolResult
from loomlog.connectors.tools.results import ToolCallRefused, error_result
from loomlog.schemas.generated.entity_events import CommandHadNoEffect, CommandRefused
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.core.command_fields import InvalidFields, fields_schema, parse_fields, to_json
from loomlog.services.core.families import Command, Family, Query, name_problem
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.operation import ask_owner
from loomlog.services.runtime.content.encryption import ContentEncryption
from loomlog.services.runtime.tools.operation_calls import TIMEOUT_S, Ask, call_operation
from loomlog.services.stream.entities.answers import EntityCommands
from loomlog.services.stream.entities.reads import EntityReads, EntityRow, PositionNotRead

AnyFamily = Family[Any, Any, Any]

OPERATION = "op"
LIST, SHOW = "ls", "show"
COMMAND_WAIT_S = 50.0
"""Seconds to wait for the answer to a command; within ANSWER_S, so that the outcome is reported as unknown."""
PAGE_DEFAULT, PAGE_MAX = 20, 100
"""Aggregates of one `ls`: a model reads all of it."""
LIST_FIELDS: Mapping[str, Mapping[str, Any]] = {
    "prefix": {"type": "string", "description": "Only ids that begin with this text."},
    "after": {"type": "string", "description": "Only ids after this one: the last of an earlier answer."},
    "limit": {"type": "integer", "minimum": 1, "maximum": PAGE_MAX, "description": "Most entries of the answer."},
}
ID_FIELD: Mapping[str, Any] = {"type": "string", "description": "Id of the aggregate."}
PARAMETER: Mapping[str, Any] = {"type": "string", "description": "A parameter of the question."}

Decrypt = Callable[[Any, str], Awaitable[Any]]


class EntityTool:
    """The tool of one family."""

    side_effect_class = "idempotent"
    timeout_s: float = TIMEOUT_S

    def __init__(
        self,
        family: AnyFamily,
        commands: EntityCommands,
        reads: EntityReads,
        *,
        decrypt: Decrypt,
        clock_ms: Callable[[], int],
    ) -> None:
        """`decrypt` returns JSON of a tenant in plaintext, and raises ConnectorError."""
        self.name = family.tool
        self._family = family
        self._entities = commands
        self._reads = reads
        self._decrypt = decrypt
        self._clock_ms = clock_ms
        self._commands: Mapping[str, Command[Any]] = {row.verb: row for row in family.commands if row.in_tool}
        self._queries: Mapping[str, Query[Any]] = {query.verb: query for query in family.queries if query.in_tool}
        self.operations: Mapping[str, str] = {
            **{verb: row.summary for verb, row in self._commands.items()},
            LIST: f"List what there is of {family.name}, by id.",
            SHOW: f"Show one {family.name}.",
            **{verb: query.summary for verb, query in self._queries.items()},
        }
        """What each operation does."""
        self._fields: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
            **{verb: fields_schema(row.record)["properties"] for verb, row in self._commands.items()},
            LIST: LIST_FIELDS,
            SHOW: {"id": ID_FIELD},
            **{
                verb: {"id": ID_FIELD, **dict.fromkeys(query.parameters, PARAMETER)}
                for verb, query in self._queries.items()
            },
        }
        self._required: Mapping[str, Sequence[str]] = {
            verb: fields_schema(row.record).get("required", ()) for verb, row in self._commands.items()
        }
        self.description = f"{family.summary} " + " ".join(
            f"op {verb} ({', '.join(self._fields[verb]) or 'no fields'}): {text}"
            for verb, text in self.operations.items()
        )
        self.input_schema: Mapping[str, Any] = {
            "type": "object",
            "properties": {
                OPERATION: {"type": "string", "enum": list(self.operations), "description": "What to do."},
                **self._properties(),
            },
            "required": [OPERATION],
            "additionalProperties": False,
        }

    def _properties(self) -> dict[str, Any]:
        """Return the fields of all operations; one that differs between operations may have any of its forms."""
        forms: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
        for verb, fields in self._fields.items():
            for name, schema in fields.items():
                forms.setdefault(name, []).append((verb, schema))
        return {name: _merge_forms(variants) for name, variants in forms.items()}

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        operation = arguments.get(OPERATION)
        if not isinstance(operation, str):
            return EffectClass.PURE  # refused
        if operation in self._commands:
            return EffectClass.IDEMPOTENT
        return EffectClass.READ if operation in self.operations else EffectClass.PURE

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        try:
            operation, fields = self._parse_operation(arguments)
            row = self._commands.get(operation)
            if row is None:
                checked = self._check_read(operation, fields)
                ask: Ask = partial(self._read, operation, checked, context)
            else:
                ask = partial(self._give, operation, self._command(row, fields, context), row, context)
            return await call_operation(self.name, ask, is_read=row is None, attempt=context.attempt)
        except ToolCallRefused as refusal:
            return error_result(refusal)

    def _parse_operation(self, arguments: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """Return the operation and its fields; a null that no field requires is an absent field."""
        operation = arguments.get(OPERATION)
        if not isinstance(operation, str) or operation not in self.operations:
            raise ToolCallRefused(f'{self.name} was not called: "op" must be one of {", ".join(self.operations)}.')
        required = self._required.get(operation, ())
        return operation, {
            name: value
            for name, value in arguments.items()
            if name != OPERATION and (value is not None or name in required)
        }

    async def _give(self, operation: str, command: Any, row: Command[Any], context: ToolContext) -> ToolResult:
        try:
            answer = await ask_owner(self._entities, command, wait_s=COMMAND_WAIT_S)
        except Refused as error:
            raise ToolCallRefused(f"{operation} was not carried out: {error}.") from error
        last = answer.events[-1]
        if isinstance(last, CommandRefused):
            message = await self._decrypt(last.message, context.tenant)
            raise ToolCallRefused(f"{operation} was refused ({last.code}): {message}")
        reply = {"changed": False} if isinstance(last, CommandHadNoEffect) else to_json(row.reply(answer.events))
        return await self._result(reply, context, positions=(answer.position,))

    def _command(self, row: Command[Any], fields: Mapping[str, Any], context: ToolContext) -> Any:
        """Return the command of a call, the same however often it is asked. Raises ToolCallRefused."""
        envelope = CommandEnvelope(
            command_id=context.idempotency_key,
            tenant=context.tenant,
            subject=context.user_id or context.subject,
            # An earlier attempt issued it at a time that is lost: 0 makes the owner look it up.
            issued_at_ms=self._clock_ms() if context.attempt == 1 else 0,
        )
        try:
            command = parse_fields(row.record, fields, envelope)
        except InvalidFields as error:
            raise ToolCallRefused(f"{row.verb} was not called: {error}.") from error
        _check_name(row.verb, row.aggregate(command))
        return command

    async def _read(self, operation: str, checked: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Answer a read. Raises ToolCallRefused, Unavailable."""
        tenant, positions = context.tenant, context.positions
        try:
            if operation == LIST:
                limit = checked.get("limit", PAGE_DEFAULT)
                rows = await self._reads.list(
                    self._family.name,
                    tenant,
                    prefix=checked.get("prefix", ""),
                    after=checked.get("after", ""),
                    limit=limit + 1,
                    positions=positions,
                )
                shown = [self._row_json(row) for row in rows[:limit]]
                return await self._result({"items": shown, "more": len(rows) > limit}, context)
            name = checked["id"]
            row = await self._reads.show(self._family.name, tenant, name, positions=positions)
        except (PositionNotRead, ConnectorError) as error:
            raise Unavailable(f"{operation} would miss what this run wrote: {error}") from error
        if row is None:
            raise ToolCallRefused(f"there is no {self._family.name} {name[:80]!r}; op ls lists those there are.")
        query = self._queries.get(operation)
        if query is None:
            return await self._result(self._row_json(row), context)
        parameters = {name: value for name, value in checked.items() if name != "id"}
        return await self._result(to_json(query.answer(row.entity.state, parameters)), context)

    def _check_read(self, operation: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a read that are not null. Raises ToolCallRefused."""
        known = self._fields[operation]
        problems: list[str] = []
        checked: dict[str, Any] = {}
        for name, value in fields.items():
            if name not in known:
                problems.append(f'"{name[:60]}" is unknown, expected are {", ".join(known)}')
            elif known[name]["type"] == "integer":
                if isinstance(value, bool) or value not in range(1, PAGE_MAX + 1):
                    problems.append(f'"{name}" must be a whole number from 1 to {PAGE_MAX}')
                else:
                    checked[name] = int(value)
            elif isinstance(value, str):
                checked[name] = value
            else:
                problems.append(f'"{name}" must be text')
        if "id" in known and "id" not in checked and not problems:
            problems.append('"id" is missing, expected is text')
        if problems:
            raise ToolCallRefused(f"{operation} was not called: {'; '.join(problems)}.")
        if "id" in checked:
            _check_name(operation, checked["id"])
        return checked

    def _row_json(self, row: EntityRow) -> dict[str, Any]:
        shown = {"id": row.name, "state": to_json(self._family.view(row.entity.state))}
        return shown | ({"quarantine": row.entity.quarantine} if row.entity.quarantine else {})

    async def _result(self, value: Any, context: ToolContext, *, positions: tuple[str, ...] = ()) -> ToolResult:
        plain = await self._decrypt(value, context.tenant)
        return ToolResult(text=orjson.dumps(plain).decode(), positions=positions)


def build_entity_tools(
    families: Iterable[AnyFamily],
    commands: EntityCommands,
    reads: EntityReads,
    *,
    encryption: ContentEncryption,
    clock_ms: Callable[[], int],
) -> dict[str, Tool]:
    """Return the tools of the families that have one, by name."""
    tools: dict[str, Tool] = {}
    for family in families:
        if family.tool:
            assert family.tool not in tools, f"two families have the tool {family.tool}"
            tools[family.tool] = EntityTool(family, commands, reads, decrypt=encryption.decrypt_json, clock_ms=clock_ms)
    return tools


def _merge_forms(variants: list[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the schema of a field of these operations, described with the operation that takes each form."""
    verbs = [verb for verb, _ in variants]
    bare = [_without_description(schema) for _, schema in variants]
    texts = [schema.get("description", "") for _, schema in variants]
    text = (
        texts[0] if len(set(texts)) == 1 else " ".join(f"{verb}: {one}" for verb, one in zip(verbs, texts, strict=True))
    )
    distinct = [schema for number, schema in enumerate(bare) if schema not in bare[:number]]
    form = dict(distinct[0]) if len(distinct) == 1 else {"anyOf": distinct}
    return {**form, "description": f"{text} For op {', '.join(verbs)}.".strip()}


def _without_description(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {word: value for word, value in schema.items() if word not in ("description", "default")}


def _check_name(operation: str, name: str) -> None:
    if problem := name_problem(name):
        raise ToolCallRefused(f"{operation} was not called: the id {problem}.")
