"""Several definitions that become active together, or not at all: the operation behind /v1/_definitions/apply.

Each overlay is composed as create and fork do it: over its parent, over what is active, or over the file; a name that
nothing defines begins with the overlay alone. The answer is given once this process has read the whole batch.

Before: services/application/definitions.py. After: apply.py decides; operations.py has the checks.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from loomlog.connectors.configuration.findings import did_you_mean
from loomlog.connectors.definitions import KINDS, DefinitionProblem, Kind, canonical_json
from loomlog.connectors.definitions.schedule import SCHEDULE
from loomlog.connectors.errors import ConnectorError
from loomlog.schemas.generated.definition_commands import ApplyDefinitions
from loomlog.schemas.generated.values import DefinitionChange
from loomlog.schemas.ids import command_identity
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.definition import limits
from loomlog.services.families.definition.apply import APPLIED, CHANGES_MAX, KIND, REFUSED, RUNNING, Batch
from loomlog.services.families.definition.author import Author
from loomlog.services.families.definition.composition import Composition
from loomlog.services.families.definition.operations import (
    MISSING,
    UNKNOWN_FIELD,
    DefinitionOperations,
    Reply,
    command_envelope,
    optional_text,
    overlay_field,
    required_field,
    text_field,
)
from loomlog.services.families.definition.table import newest_positions
from loomlog.services.stream.entities.reads import PositionNotRead

DEFINITIONS = "definitions"
FIELDS = frozenset({DEFINITIONS, "description"})
CHANGE_FIELDS = frozenset({"kind", "name", "overlay", "parent_def_id", "expect_active"})
COPIES = 4
"""A change has at most a content and a file, and half of the command is for these."""


class DefinitionBatches:
    """The operation. Raises Refused and Unavailable."""

    def __init__(self, operations: DefinitionOperations) -> None:
        self._operations = operations
        self._table = operations.table

    async def apply(self, body: Any, author: Author) -> Reply:
        """Make versions of definitions active at once; `body`: definitions, and perhaps a description."""
        fields = _checked(body, FIELDS, "the body")
        rows = _rows(fields)
        description = text_field(fields, "description")
        inline_bytes_max = min(limits.INLINE_BYTES_MAX, limits.BATCH_BYTES_MAX // (COPIES * len(rows)))
        try:
            made = [
                (kind, name, await self._compose(kind, name, row, author, inline_bytes_max)) for kind, name, row in rows
            ]
            self._check_room(rows, author)
            schedules = {name: one.content for kind, name, one in made if kind is SCHEDULE}
            self._operations.check_shares(SCHEDULE, author, schedules)
            command = ApplyDefinitions(
                envelope=command_envelope(author),
                kind=KIND,
                name=batch_id(author),
                changes=tuple(
                    _change(kind, name, one, optional_text(row, "expect_active"))
                    for (kind, name, one), (_, _, row) in zip(made, rows, strict=True)
                ),
                description=description,
                created_by_agent_id=author.agent_id,
                created_by_agent=author.agent,
                created_by_run_id=author.run_id,
            )
            _check_size(command)
            await self._operations.ask(command)
            batch = await self._decided(command.name, author.tenant)
            return await self._reply(batch, author.tenant)
        except DefinitionProblem as problem:
            raise Refused(problem.reason, str(problem)) from problem
        except (PositionNotRead, ConnectorError) as error:
            raise Unavailable(str(error)) from error

    async def _compose(
        self, kind: Kind, name: str, row: Mapping[str, Any], author: Author, inline_bytes_max: int
    ) -> Composition:
        try:
            parent_id = text_field(row, "parent_def_id")
            _, origin = self._operations.origin(kind, name, parent_id, author, activates=True)
            return await self._operations.composer.compose(
                kind,
                name,
                overlay_field(row),
                origin,
                author,
                inline_bytes_max=inline_bytes_max,
            )
        except DefinitionProblem as problem:
            raise Refused(problem.reason, f"{kind.name} {name}: {problem}") from problem
        except Refused as refused:
            raise Refused(refused.code, f"{kind.name} {name}: {refused.message}") from refused

    def _check_room(self, rows: list[tuple[Kind, str, Mapping[str, Any]]], author: Author) -> None:
        new = [(kind.name, name) for kind, name, _ in rows if self._table.line(kind.name, author.tenant, name) is None]
        for count, (kind, name) in enumerate(new, 1):
            self._operations.check_room(kind, name, author.tenant, count=count)

    async def _decided(self, name: str, tenant: str) -> Batch:
        """Return the batch once it is decided and this process has read all of it. Raises as `apply`."""
        table = self._table

        def is_decided() -> bool:
            batch = table.batch(tenant, name)
            return batch is not None and batch.status != RUNNING

        await table.until(is_decided, timeout_s=self._operations.wait_s)
        batch = table.batch(tenant, name)
        if batch is None or batch.status == RUNNING:
            text = f"the batch {name} is not decided yet; the same request with the same Idempotency-Key waits for it"
            raise Unavailable(text, is_unknown=True)

        def is_settled() -> bool:
            places = [table.find(change.def_id) for change in batch.changes if change.def_id]
            return all(place is not None and place[0].staged_by != name for place in places)

        # The next write of the caller must not meet a line that still waits.
        await table.until(is_settled, timeout_s=self._operations.wait_s)
        if batch.status == REFUSED:
            raise Refused(batch.reason, batch.message)
        if not table.is_applied(tenant, name):
            text = f"the batch {name} is applied, and this process has not read all of it yet"
            raise Unavailable(text, is_unknown=True)
        return batch

    async def _reply(self, batch: Batch, tenant: str) -> Reply:
        rows, positions = [], [self._table.batch_position(tenant, batch.id)]
        for change in batch.changes:
            line = self._table.line(change.kind, tenant, change.name)
            assert line is not None, "the batch was read"
            positions.append(self._table.position(line))
            version = line.version(line.number_of(change.def_id))
            assert version is not None, "the batch was read"
            row = {"kind": change.kind} | await self._operations.describe(line, version)
            rows.append(row if line.batch == batch.id else row | {"deduplicated": True})
        fields = {"batch": batch.id, "status": APPLIED, DEFINITIONS: rows}
        return Reply(fields=fields, position=",".join(newest_positions(positions)))


def batch_id(author: Author) -> str:
    """Return the id of a batch: it follows from the command, so that a repetition is the same batch, and another body
    under its key is refused by it.
    """
    return "batch_" + sha256(command_identity(author.command_id).encode(errors="surrogatepass")).hexdigest()[:16]


def _rows(fields: Mapping[str, Any]) -> list[tuple[Kind, str, Mapping[str, Any]]]:
    definitions = fields.get(DEFINITIONS)
    if definitions is None:
        raise Refused(MISSING, f"missing required field: {DEFINITIONS}")
    if not isinstance(definitions, list) or not definitions:
        raise Refused("invalid_definition", f"{DEFINITIONS}: expected a list with at least one definition")
    if len(definitions) > CHANGES_MAX:
        raise Refused("too_many", f"{DEFINITIONS}: {len(definitions)} of at most {CHANGES_MAX}")
    rows: dict[tuple[str, str], tuple[Kind, str, Mapping[str, Any]]] = {}
    for number, value in enumerate(definitions):
        row = _checked(value, CHANGE_FIELDS, f"{DEFINITIONS}[{number}]")
        kind_name, name = required_field(row, "kind"), required_field(row, "name")
        kind = KINDS.get(kind_name)
        if kind is None:
            hint = did_you_mean(kind_name, KINDS)
            text = f"{DEFINITIONS}[{number}].kind is {kind_name[:60]!r}{hint}: expected {', '.join(sorted(KINDS))}"
            raise Refused("invalid_definition", text)
        if (kind_name, name) in rows:
            raise Refused("invalid_definition", f"{kind_name} {name[:80]} is named twice")
        rows[kind_name, name] = kind, name, row
    return list(rows.values())


def _checked(value: Any, known: frozenset[str], what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise Refused("invalid_definition", f"{what}: expected a JSON object")
    for name in value:
        if name not in known:
            hint = did_you_mean(name, known)
            text = f"unknown field {name[:60]!r} in {what}{hint}: expected {', '.join(sorted(known))}"
            raise Refused(UNKNOWN_FIELD, text)
    return {name: field for name, field in value.items() if field is not None}


def _change(kind: Kind, name: str, made: Composition, expect_active: str | None) -> DefinitionChange:
    origin = made.origin
    return DefinitionChange(
        kind=kind.name,
        name=name,
        content=made.stored.text,
        content_blob=made.stored.blob,
        content_sha256=kind.hash(name, made.content),
        tools=kind.tools(made.content),
        root_tools=origin.root_tools(kind),
        parent_def_id=origin.parent_id,
        base_content=made.base.text,
        base_blob=made.base.blob,
        base_sha256=origin.file.content_sha256 if origin.file is not None else "",
        expect_active=expect_active,
    )


def _check_size(command: ApplyDefinitions) -> None:
    size = len(canonical_json(command.to_avro()).encode())
    if size > limits.BATCH_BYTES_MAX:
        text = f"the definitions have {size} bytes together: at most {limits.BATCH_BYTES_MAX}; apply fewer at once"
        raise Refused("too_large", text)
