"""Judgements of runs: one handler for the bodies of HTTP requests and the inputs of the Evaluation tool.

    submit                              a score of a run, by a person, a service or another run
    get, list_for_run, list_for_def     judgements, newest first
    aggregate                           their sums for a version, with those of its ancestors if asked

A judgement is an event of the line of the run's agent in the tenant of the run, so what a tenant thinks of a shared
definition stays with the tenant. The judge's role is derived from the two runs, never taken from the caller. An answer
is given once its row can be read.

Before: services/application/evaluations.py, services/runtime/tools/evaluation_tool.py. After: decide.py; items.py.
"""

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Protocol

import orjson

from loomlog.connectors.definitions import DefinitionProblem, canonical_json
from loomlog.connectors.errors import ConnectorError
from loomlog.projections.entity_items import ItemRow, ItemSums
from loomlog.projections.runs import RunRow
from loomlog.projections.tables import InvalidPageToken
from loomlog.schemas.generated.definition_commands import SubmitJudgement
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.ids import ALPHABET
from loomlog.schemas.records import Value
from loomlog.services.core.families import name_problem
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.definition import limits
from loomlog.services.families.definition.answers import format_time
from loomlog.services.families.definition.author import Author
from loomlog.services.families.definition.items import DIMENSION_ITEM, JUDGEMENT_ITEM, ROLE_ITEM, dimension_problem
from loomlog.services.families.definition.lineage import DEPTH_MAX, ancestors
from loomlog.services.families.definition.operations import (
    MISSING,
    NOT_FOUND,
    WAIT_S,
    Reply,
    ask_owner,
    parse_operation,
)
from loomlog.services.families.definition.state import def_id, static_def_id
from loomlog.services.families.definition.table import NAME, SHARED, DefinitionTable
from loomlog.services.stream.entities.answers import EntityCommands
from loomlog.services.stream.entities.reads import EntityReads, PositionNotRead

AGENT = "agent"
TOOL = "Evaluation"
FIELDS: Mapping[str, frozenset[str]] = {
    "submit": frozenset({"run_id", "score", "dimensions", "judgement", "rationale"}),
    "get": frozenset({"eval_id"}),
    "list_for_run": frozenset({"run_id", "limit", "cursor"}),
    "list_for_def": frozenset({"def_id", "limit", "cursor"}),
    "aggregate": frozenset({"def_id", "include_lineage"}),
}
SUBMIT = "submit"
FIELD_SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "run_id": {"type": "string", "description": "Run that is judged."},
    "score": {"type": "number", "description": "For op submit: how good the run is, on a scale of your own."},
    "dimensions": {
        "type": "object",
        "additionalProperties": {"type": "number"},
        "description": "For op submit: further scores by name.",
    },
    "judgement": {"description": "For op submit: the judgement itself, any JSON."},
    "rationale": {"type": "string", "description": "For op submit: why, for people."},
    "eval_id": {"type": "string", "description": "For op get: id of a judgement."},
    "def_id": {"type": "string", "description": "For op list_for_def and aggregate: version of a definition."},
    "include_lineage": {"type": "boolean", "description": "For op aggregate: with those of the version's ancestors."},
    "limit": {"type": "integer", "description": "For lists: most judgements of one answer, 1 to 100."},
    "cursor": {"type": "string", "description": "For lists: `next` of an earlier answer."},
}
INPUT_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"op": {"type": "string", "enum": list(FIELDS), "description": "What to do."}, **FIELD_SCHEMAS},
    "required": ["op"],
}
"""JSON schema of the operations, for the tool and for HTTP."""
EXTERNAL, SELF, PARENT, SIBLING, UNRELATED = "external", "self", "parent", "sibling", "unrelated"
SCOPE_OF_ROLE: Mapping[str, str] = {
    SELF: "submit_self",
    PARENT: "submit_descendants",
    SIBLING: "submit_siblings",
    UNRELATED: "submit_any",
}
"""What an agent's evaluation_scopes must have to judge in a role; submit_any covers all."""
SUBMIT_ANY, READ_ANY = "submit_any", "read_any"
LIST_MAX = 100
"""Judgements of one answer: each may have 40 KB, and a model reads them all."""
RUN_WAIT_S = 10.0
"""How long a judgement waits for a run that the read model does not know yet."""
POLL_S, POLL_MAX_S = 0.02, 0.5
RUN_ID = re.compile(rf"r_[{ALPHABET}]{{26}}(-.*)?\Z")
"""Form of the ids of runs; nothing else is ever known, so it is not waited for."""

Decrypt = Callable[[Any, str], Awaitable[Any]]
"""Returns JSON of a tenant in plaintext. Raises ConnectorError."""


class JudgedRun(Value, frozen=True, kw_only=True):
    """What a judgement needs to know of a run. Empty text: none."""

    run_id: str
    tenant: str
    agent: str
    agent_id: str
    parent_run_id: str = ""
    parent_agent_id: str = ""
    user_id: str = ""
    def_id: str = ""
    """Version that the run is pinned to; empty for an agent from a file."""
    version: int = 0
    definition_sha256: str = ""
    """Hash of the resolved definition, in hex."""


class JudgedRuns(Protocol):
    """Finds runs."""

    async def find(self, tenant: str, run_id: str) -> JudgedRun | None:
        """Return a run of the tenant; None while it is not known. Raises ConnectorError."""
        ...


def judged_run(row: RunRow) -> JudgedRun:
    """Return a row of the read model as a run to be judged."""
    return JudgedRun(
        run_id=row.run_id,
        tenant=row.tenant,
        agent=row.agent,
        agent_id=row.agent_id,
        parent_run_id=row.parent_run_id,
        parent_agent_id=row.parent_agent_id,
        user_id=row.user_id,
        def_id=row.def_id,
        version=row.def_version,
        definition_sha256=row.definition_sha256,
    )


def definition_of_run(table: DefinitionTable, run: JudgedRun) -> tuple[str, int]:
    """Return the def_id of a run's agent, and its number in the line of the run's tenant.

    The number is 0 for a definition of a file and for a shared one. A file that this process does not have is named by
    the hash that the run started with.
    """
    if run.def_id:
        is_own = def_id(run.tenant, AGENT, run.agent, run.version) == run.def_id
        return run.def_id, run.version if is_own else 0
    file = table.files.get((AGENT, run.agent))
    if file is not None:
        return file.def_id, 0
    try:
        digest = bytes.fromhex(run.definition_sha256)
    except ValueError:  # an imported run may tell anything
        digest = sha256(run.definition_sha256.encode()).digest()
    return static_def_id(AGENT, run.agent, digest), 0


async def plaintext(value: Any, tenant: str) -> Any:
    """Return the value as it is: content is not encrypted."""
    return value


class Evaluations:
    """The handler. `run` and `aggregate` raise Refused and Unavailable."""

    def __init__(
        self,
        commands: EntityCommands,
        table: DefinitionTable,
        reads: EntityReads,
        runs: JudgedRuns,
        *,
        decrypt: Decrypt = plaintext,
        wait_s: float = WAIT_S,
        run_wait_s: float = RUN_WAIT_S,
    ) -> None:
        self._commands = commands
        self._table = table
        self._reads = reads
        self._runs = runs
        self._decrypt = decrypt
        self._wait_s = wait_s
        self._run_wait_s = run_wait_s

    async def run(self, body: Any, author: Author, positions: Sequence[str] = ()) -> Reply:
        """Carry out an operation; `body` is the JSON of the request or the call. Reads include `positions`."""
        op, fields = parse_operation(body, tuple(FIELDS), FIELDS)
        try:
            if op == SUBMIT:
                return await self._submit(fields, author)
            if author.grants is not None and READ_ANY not in _scopes(author):
                raise _scope_denied(f"read judgements: that takes {READ_ANY}", author)
            return Reply(fields=await self._read(op, fields, author.tenant, positions))
        except DefinitionProblem as problem:
            raise Refused(problem.reason, str(problem)) from problem
        except InvalidPageToken as error:
            raise Refused("invalid_definition", "cursor: expected `next` of an earlier answer") from error
        except (PositionNotRead, ConnectorError) as error:
            raise Unavailable(str(error)) from error

    # --- submitting --------------------------------------------------------------------------------------------------

    async def _submit(self, fields: Mapping[str, Any], author: Author) -> Reply:
        run_id = _required(fields, "run_id")
        score, dimensions = _score(fields), _dimensions(fields)
        judgement, rationale = _judgement(fields), _rationale(fields)
        if author.grants is not None and not _scopes(author) & set(SCOPE_OF_ROLE.values()):
            raise _scope_denied("judge runs", author)
        run = await self._known_run(author.tenant, run_id)
        if run is None:
            raise Refused("unknown_run", f"run {run_id[:80]} not found")
        role = await self._role(run, author)
        if role != EXTERNAL and not _scopes(author) & {SCOPE_OF_ROLE[role], SUBMIT_ANY}:
            raise _scope_denied(f"judge {run_id} as {role}: that takes {SCOPE_OF_ROLE[role]}", author)
        judged, version = definition_of_run(self._table, run)
        command = SubmitJudgement(
            envelope=CommandEnvelope(
                command_id=author.command_id,
                tenant=author.tenant,
                subject=author.subject,
                issued_at_ms=author.issued_at_ms,
            ),
            kind=AGENT,
            name=run.agent,
            eval_id=eval_id(author.tenant, author.command_id),
            run_id=run.run_id,
            def_id=judged,
            version=version,
            score=score,
            dimensions=dimensions,
            judgement=judgement,
            rationale=rationale,
            emitter_role=role,
            emitter_agent_id="" if role == EXTERNAL else author.agent_id,
            emitter_run_id=author.run_id,
            user_id=run.user_id,
        )
        answer = await ask_owner(self._commands, command, wait_s=self._wait_s)
        row = await self._load(author.tenant, answer.events[-1].eval_id, [answer.position])
        shown = {"eval_id", "run_id", "def_id", "score", "emitter_role", "created_at"}
        reply = {name: value for name, value in _row(row, {}).items() if name in shown}
        return Reply(fields=reply, position=answer.position)

    async def _known_run(self, tenant: str, run_id: str) -> JudgedRun | None:
        """Return a run; waits for one that may have started a moment ago, in another partition."""
        loop = asyncio.get_running_loop()
        deadline, pause_s = loop.time() + self._run_wait_s, POLL_S
        while True:
            run = await self._runs.find(tenant, run_id)
            if run is not None or not RUN_ID.match(run_id) or loop.time() >= deadline:
                return run
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, POLL_MAX_S)

    async def _role(self, run: JudgedRun, author: Author) -> str:
        if author.grants is None:
            return EXTERNAL
        if author.agent_id == run.agent_id:
            return SELF
        if author.run_id == run.parent_run_id or author.agent_id == run.parent_agent_id:
            return PARENT
        if run.parent_run_id or run.parent_agent_id:
            judge = await self._known_run(author.tenant, author.run_id)
            if judge is not None and _have_same_parent(judge, run):
                return SIBLING
        return UNRELATED

    # --- reading -----------------------------------------------------------------------------------------------------

    async def _read(
        self, op: str, fields: Mapping[str, Any], tenant: str, positions: Sequence[str]
    ) -> Mapping[str, Any]:
        match op:
            case "get":
                row = await self._load(tenant, _required(fields, "eval_id"), positions)
                return (await self._rows([row], tenant))[0]
            case "list_for_run":
                run_id = _required(fields, "run_id")
                return {"run_id": run_id} | await self._list(fields, tenant, positions, key_a=run_id)
            case "list_for_def":
                judged = _required(fields, "def_id")
                return {"def_id": judged} | await self._list(fields, tenant, positions, key_b=judged)
            case _:
                with_lineage = fields.get("include_lineage", False)
                if not isinstance(with_lineage, bool):
                    raise Refused("invalid_definition", "include_lineage: expected true or false")
                judged = _required(fields, "def_id")
                return await self.aggregate(tenant, judged, include_lineage=with_lineage, positions=positions)

    async def _load(self, tenant: str, judgement_id: str, positions: Sequence[str]) -> ItemRow:
        rows = await self._reads.load_items(NAME, tenant, JUDGEMENT_ITEM, [judgement_id], positions=positions)
        if not rows:
            raise Refused(NOT_FOUND, f"judgement {judgement_id[:80]} not found")
        return rows[0]

    async def _list(
        self,
        fields: Mapping[str, Any],
        tenant: str,
        positions: Sequence[str],
        *,
        key_a: str = "",
        key_b: str = "",
    ) -> dict[str, Any]:
        limit = fields.get("limit", LIST_MAX)
        if isinstance(limit, bool) or not isinstance(limit, int) or not 0 < limit <= LIST_MAX:
            raise Refused("invalid_definition", f"limit: expected a whole number from 1 to {LIST_MAX}")
        page = await self._reads.list_items(
            NAME,
            tenant,
            JUDGEMENT_ITEM,
            key_a=key_a,
            key_b=key_b,
            limit=limit,
            after=_text(fields, "cursor"),
            positions=positions,
        )
        answer = {"evaluations": await self._rows(page.rows, tenant)}
        return answer | ({"next": page.next} if page.next else {})

    async def _rows(self, rows: Sequence[ItemRow], tenant: str) -> list[dict[str, Any]]:
        documents = [orjson.loads(row.document) for row in rows]
        texts = [{name: document[name] for name in ("judgement", "rationale")} for document in documents]
        plain = await self._decrypt(texts, tenant)
        return [_row(row, document | text) for row, document, text in zip(rows, documents, plain, strict=True)]

    async def aggregate(
        self, tenant: str, judged: str, *, include_lineage: bool = False, positions: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Return the sums of a tenant's judgements of a version; all zero without any. Raises PositionNotRead and
        ConnectorError too.
        """
        ids = [judged, *self._ancestors(tenant, judged)] if include_lineage else [judged]
        sums = await self._reads.sum_items(NAME, tenant, JUDGEMENT_ITEM, keys_b=ids, positions=positions)
        answer: dict[str, Any] = {"def_id": judged, "count": sums.count, "score": _sums_json(sums)}
        for name, kind in (("dimensions", DIMENSION_ITEM), ("by_emitter_role", ROLE_ITEM)):
            groups = await self._reads.sum_items_by_key(NAME, tenant, kind, "key_a", keys_b=ids, positions=positions)
            if groups:
                answer[name] = {key: _sums_json(group) for key, group in groups.items()}
        return answer | {"lineage_included": include_lineage}

    def _ancestors(self, tenant: str, judged: str) -> list[str]:
        """Return the ids of the ancestors of a version, with that of the file where its lineage begins with one."""
        place = self._table.find(judged)
        if place is None or place[0].tenant not in (tenant, SHARED):
            return []
        above = ancestors(self._table, *place, DEPTH_MAX)
        ids = [line.id_of(version.number) for line, version in above]
        origin_line, origin = above[-1] if above else place
        if origin.is_bootstrapped:
            ids.append(static_def_id(origin_line.kind, origin_line.name, origin.digest))
        return ids


def eval_id(tenant: str, command_id: str) -> str:
    """Return the id of a judgement: it follows from the command, so that a repetition gives the same."""
    return "eval_" + sha256(f"{tenant}\0{command_id}".encode(errors="surrogatepass")).hexdigest()[:16]


def _have_same_parent(one: JudgedRun, other: JudgedRun) -> bool:
    pairs = ((one.parent_run_id, other.parent_run_id), (one.parent_agent_id, other.parent_agent_id))
    return any(first and first == second for first, second in pairs)


def _scopes(author: Author) -> set[str]:
    return set((author.grants or {}).get("evaluation_scopes") or ())


def _scope_denied(what: str, author: Author) -> Refused:
    shown = ", ".join(sorted(_scopes(author))) or "none"
    return Refused("scope_denied", f"the agent may not {what}; its evaluation_scopes are {shown}")


def _row(row: ItemRow, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a judgement as answers show it; `document` is that of the row, in plaintext."""
    stored = document or orjson.loads(row.document)
    return {
        "eval_id": row.id,
        "run_id": row.key_a,
        "def_id": row.key_b,
        "score": row.number,
        "dimensions": stored["dimensions"],
        "judgement": _parsed(stored["judgement"]),
        "rationale": stored["rationale"],
        "emitter_role": stored["emitter_role"],
        "emitter_agent_id": stored["emitter_agent_id"],
        "emitter_run_id": stored["emitter_run_id"],
        "created_at": format_time(row.at_ms),
    }


def _parsed(judgement: str) -> Any:
    """Return the JSON value of a judgement; the text itself when it is none, as after an erasure."""
    if not judgement:
        return None
    try:
        return orjson.loads(judgement)
    except orjson.JSONDecodeError:
        return judgement


def _sums_json(sums: ItemSums) -> dict[str, Any]:
    return {
        "mean": sums.mean,
        "median": sums.median,
        "min": sums.min,
        "max": sums.max,
        "latest": sums.latest,
        "count": sums.count,
    }


# --- fields ----------------------------------------------------------------------------------------------------------


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str):
        raise Refused("invalid_definition", f"{name}: expected text")
    try:
        canonical_json(value)
    except DefinitionProblem as problem:
        raise Refused(problem.reason, f"{name}: has characters that no store takes") from problem
    return value


def _required(fields: Mapping[str, Any], name: str) -> str:
    if not (value := _text(fields, name)):
        raise Refused(MISSING, f"missing required field: {name}")
    if problem := name_problem(value):
        raise Refused("invalid_definition", f"{name}: {problem}")
    return value


def _finite(value: Any, name: str) -> float:
    try:
        number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:
        number = math.nan
    if not math.isfinite(number):
        raise Refused("invalid_definition", f"{name}: expected a finite number")
    return number


def _score(fields: Mapping[str, Any]) -> float:
    if "score" not in fields:
        raise Refused(MISSING, "missing required field: score")
    return _finite(fields["score"], "score")


def _dimensions(fields: Mapping[str, Any]) -> dict[str, float]:
    dimensions = fields.get("dimensions", {})
    if not isinstance(dimensions, Mapping):
        raise Refused("invalid_definition", "dimensions: expected an object of numbers")
    if len(dimensions) > limits.DIMENSIONS_MAX:
        raise Refused("too_many", f"dimensions: {len(dimensions)}, at most {limits.DIMENSIONS_MAX}")
    for name in dimensions:
        if problem := dimension_problem(name):
            raise Refused("bad_name", f"dimensions: the name {name[:80]!r} {problem}")
    return {name: _finite(value, f"dimensions.{name}") for name, value in dimensions.items()}


def _judgement(fields: Mapping[str, Any]) -> str:
    """Return the JSON text of the judgement; empty without one."""
    if "judgement" not in fields:
        return ""
    return _bounded("judgement", canonical_json(fields["judgement"]), limits.JUDGEMENT_BYTES_MAX)


def _rationale(fields: Mapping[str, Any]) -> str:
    return _bounded("rationale", _text(fields, "rationale"), limits.RATIONALE_BYTES_MAX)


def _bounded(name: str, text: str, bytes_max: int) -> str:
    size = len(text.encode())
    if size > bytes_max:
        raise Refused("too_large", f"{name}: {size} bytes, at most {bytes_max}")
    return text
