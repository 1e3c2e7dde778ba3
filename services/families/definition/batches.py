"""Several definitions that become active together, or not at all: the operation behind /v1/_definitions/apply.

Each overlay is composed as create and fork do it: over its parent, over what is active, or over the file; a name that
nothing defines begins with the overlay alone. The answer is given once this process has read the whole batch.

Before: handlers.py. After: apply.py decides; operations.py has the checks.
"""

from hashlib import sha256

from msgspec import UNSET, structs

from loomlog.connectors.configuration.findings import did_you_mean
from loomlog.connectors.definitions import KINDS, DefinitionProblem, Kind, canonical_json
from loomlog.connectors.definitions.schedule import SCHEDULE
from loomlog.schemas.generated.definition_commands import ApplyDefinitions
from loomlog.schemas.generated.values import DefinitionChange
from loomlog.schemas.ids import command_identity
from loomlog.services.core.operations import Answer
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.definition import limits
from loomlog.services.families.definition.apply import CHANGES_MAX, KIND, REFUSED, RUNNING, Batch
from loomlog.services.families.definition.author import Author
from loomlog.services.families.definition.composition import Composition
from loomlog.services.families.definition.kind_api import (
    AppliedDefinition,
    AppliedDefinitions,
    DefinitionBatch,
    DefinitionBatchChange,
)
from loomlog.services.families.definition.operations import DefinitionOperations, command_envelope, required
from loomlog.services.families.definition.table import newest_positions

COPIES = 4
"""A change has at most a content and a file, and half of the command is for these."""


class DefinitionBatches:
    """The operation. Raises Refused, Unavailable, and what `refusing` of operations.py turns into these."""

    def __init__(self, operations: DefinitionOperations) -> None:
        self._operations = operations
        self._table = operations.table

    async def apply(self, asked: DefinitionBatch, author: Author) -> Answer[AppliedDefinitions]:
        """Make versions of definitions active at once."""
        rows = _rows(asked)
        inline_bytes_max = min(limits.INLINE_BYTES_MAX, limits.BATCH_BYTES_MAX // (COPIES * len(rows)))
        made = [(kind, row, await self._compose(kind, row, author, inline_bytes_max)) for kind, row in rows]
        self._check_room(asked, author)
        schedules = {row.name: one.content for kind, row, one in made if kind is SCHEDULE}
        self._operations.check_shares(SCHEDULE, author, schedules)
        command = ApplyDefinitions(
            envelope=command_envelope(author),
            kind=KIND,
            name=batch_id(author),
            changes=tuple(_change(kind, row, one) for kind, row, one in made),
            description=asked.description or "",
            created_by_agent_id=author.agent_id,
            created_by_agent=author.agent,
            created_by_run_id=author.run_id,
        )
        _check_size(command)
        await self._operations.ask(command)
        return await self._answer(await self._decided(command.name, author.tenant), author.tenant)

    async def _compose(
        self, kind: Kind, row: DefinitionBatchChange, author: Author, inline_bytes_max: int
    ) -> Composition:
        name = row.name
        try:
            _, origin = self._operations.origin(kind, name, row.parent_def_id or "", author, activates=True)
            return await self._operations.composer.compose(
                kind, name, row.overlay or {}, origin, author, inline_bytes_max=inline_bytes_max
            )
        except DefinitionProblem as problem:
            raise Refused(problem.reason, f"{kind.name} {name}: {problem}") from problem
        except Refused as refused:
            raise Refused(refused.code, f"{kind.name} {name}: {refused.message}") from refused

    def _check_room(self, asked: DefinitionBatch, author: Author) -> None:
        rows = [(row.kind, row.name) for row in asked.definitions]
        new = [place for place in rows if self._table.line(place[0], author.tenant, place[1]) is None]
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

    async def _answer(self, batch: Batch, tenant: str) -> Answer[AppliedDefinitions]:
        rows, positions = [], [self._table.batch_position(tenant, batch.id)]
        for change in batch.changes:
            line = self._table.line(change.kind, tenant, change.name)
            assert line is not None, "the batch was read"
            positions.append(self._table.position(line))
            version = line.version(line.number_of(change.def_id))
            assert version is not None, "the batch was read"
            fields = structs.asdict(await self._operations.describe(line, version))
            deduplicated = UNSET if line.batch == batch.id else True
            rows.append(AppliedDefinition(**fields | {"kind": change.kind, "deduplicated": deduplicated}))
        applied = AppliedDefinitions(batch=batch.id, status="applied", definitions=rows)
        return Answer(value=applied, positions=tuple(newest_positions(positions)))


def batch_id(author: Author) -> str:
    """Return the id of a batch: it follows from the command, so that a repetition is the same batch, and another body
    under its key is refused by it.
    """
    return "batch_" + sha256(command_identity(author.command_id).encode(errors="surrogatepass")).hexdigest()[:16]


def _rows(asked: DefinitionBatch) -> list[tuple[Kind, DefinitionBatchChange]]:
    """Return the changes with their kinds. Raises Refused."""
    if len(asked.definitions) > CHANGES_MAX:
        raise Refused("too_many", f"definitions: {len(asked.definitions)} of at most {CHANGES_MAX}")
    rows: dict[tuple[str, str], tuple[Kind, DefinitionBatchChange]] = {}
    for number, row in enumerate(asked.definitions):
        place = required("kind", row.kind), required("name", row.name)
        kind = KINDS.get(row.kind)
        if kind is None:
            hint = did_you_mean(row.kind, KINDS)
            text = f"definitions[{number}].kind is {row.kind[:60]!r}{hint}: expected {', '.join(sorted(KINDS))}"
            raise Refused("invalid_definition", text)
        if place in rows:
            raise Refused("invalid_definition", f"{row.kind} {row.name[:80]} is named twice")
        rows[place] = kind, row
    return [*rows.values()]


def _change(kind: Kind, row: DefinitionBatchChange, made: Composition) -> DefinitionChange:
    origin = made.origin
    return DefinitionChange(
        kind=kind.name,
        name=row.name,
        content=made.stored.text,
        content_blob=made.stored.blob,
        content_sha256=kind.hash(row.name, made.content),
        tools=kind.tools(made.content),
        root_tools=origin.root_tools(kind),
        parent_def_id=origin.parent_id,
        base_content=made.base.text,
        base_blob=made.base.blob,
        base_sha256=origin.file.content_sha256 if origin.file is not None else "",
        expect_active=row.expect_active,
    )


def _check_size(command: ApplyDefinitions) -> None:
    size = len(canonical_json(command.to_avro()).encode())
    if size > limits.BATCH_BYTES_MAX:
        text = f"the definitions have {size} bytes together: at most {limits.BATCH_BYTES_MAX}; apply fewer at once"
        raise Refused("too_large", text)
