"""Judgements of runs, by requests and by agents.

    submit                              a score of a run, by a person, a service or another run
    get, list_for_run, list_for_def     judgements, newest first
    aggregate                           their sums for a version, with those of its ancestors if asked

A judgement is an event of the line of the run's agent in the tenant of the run, so what a tenant thinks of a shared
definition stays with the tenant. The judge's role is derived from the two runs, never taken from the caller. An answer
is given once its row can be read.

Before: handlers.py. After: decide.py; items.py.
"""

import asyncio
import math
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import orjson
from msgspec import UNSET

from loomlog.connectors.definitions import canonical_json
from loomlog.projections.entity_items import ItemRow
from loomlog.projections.runs import RunRow
from loomlog.projections.tables import InvalidPageToken
from loomlog.schemas.generated.definition_commands import SubmitJudgement
from loomlog.schemas.ids import ALPHABET
from loomlog.schemas.records import copy_as
from loomlog.services.core.definitions import def_id, static_def_id
from loomlog.services.core.families import name_problem
from loomlog.services.core.operations import Answer as Answered
from loomlog.services.core.refusals import Refused
from loomlog.services.families.definition import limits
from loomlog.services.families.definition.answers import format_time
from loomlog.services.families.definition.api_fields import INVALID, NOT_FOUND
from loomlog.services.families.definition.author import Author
from loomlog.services.families.definition.evaluation_api import (
    LIST_MAX,
    Evaluation,
    EvaluationAggregate,
    EvaluationAggregated,
    EvaluationGet,
    EvaluationListForDefinition,
    EvaluationListForRun,
    EvaluationsOfDefinition,
    EvaluationsOfRun,
    EvaluationSubmit,
    EvaluationSubmitted,
    EvaluationSums,
)
from loomlog.services.families.definition.items import DIMENSION_ITEM, JUDGEMENT_ITEM, ROLE_ITEM, dimension_problem
from loomlog.services.families.definition.lineage import ancestors
from loomlog.services.families.definition.operations import WAIT_S, ask_owner, command_envelope, required
from loomlog.services.families.definition.query_api import DEPTH_MAX
from loomlog.services.families.definition.table import NAME, SHARED, DefinitionTable
from loomlog.services.families.operation import Decrypt
from loomlog.services.families.ports.run_sources import FindRun
from loomlog.services.stream.entities.answers import EntityCommands
from loomlog.services.stream.entities.reads import EntityReads

AGENT = "agent"
EXTERNAL, SELF, PARENT, SIBLING, UNRELATED = "external", "self", "parent", "sibling", "unrelated"
SCOPE_OF_ROLE: Mapping[str, str] = {
    SELF: "submit_self",
    PARENT: "submit_descendants",
    SIBLING: "submit_siblings",
    UNRELATED: "submit_any",
}
"""What an agent's evaluation_scopes must have to judge in a role; submit_any covers all."""
SUBMIT_ANY, READ_ANY = "submit_any", "read_any"
RUN_WAIT_S = 10.0
"""How long a judgement waits for a run that the read model does not know yet."""
POLL_S, POLL_MAX_S = 0.02, 0.5
RUN_ID = re.compile(rf"r_[{ALPHABET}]{{26}}(-.*)?\Z")
"""Form of the ids of runs; nothing else is ever known, so it is not waited for."""


def definition_of_run(table: DefinitionTable, run: RunRow) -> tuple[str, int]:
    """Return the def_id of a run's agent, and its number in the line of the run's tenant.

    The number is 0 for a definition of a file and for a shared one. A file that this process does not have is named by
    the hash that the run started with.
    """
    if run.def_id:
        is_own = def_id(run.tenant, AGENT, run.agent, run.def_version) == run.def_id
        return run.def_id, run.def_version if is_own else 0
    file = table.files.get((AGENT, run.agent))
    if file is not None:
        return file.def_id, 0
    try:
        digest = bytes.fromhex(run.definition_sha256)
    except ValueError:  # an imported run may tell anything
        digest = sha256(run.definition_sha256.encode()).digest()
    return static_def_id(AGENT, run.agent, digest), 0


class Evaluations:
    """The operations. All methods raise Refused, Unavailable, and what `refusing` of operations.py turns into these."""

    def __init__(
        self,
        commands: EntityCommands,
        table: DefinitionTable,
        reads: EntityReads,
        find_run: FindRun,
        *,
        decrypt: Decrypt,
        run_wait_s: float,
    ) -> None:
        self._commands = commands
        self._table = table
        self._reads = reads
        self._find_run = find_run
        self._decrypt = decrypt
        self._run_wait_s = run_wait_s

    # --- submitting --------------------------------------------------------------------------------------------------

    async def submit(self, asked: EvaluationSubmit, author: Author) -> Answered[EvaluationSubmitted]:
        """Judge a run."""
        run_id = _key("run_id", asked.run_id)
        score, dimensions = _finite(asked.score, "score"), _dimensions(asked.dimensions or {})
        judgement = "" if asked.judgement is None else canonical_json(asked.judgement)
        _check_size("judgement", judgement, limits.JUDGEMENT_BYTES_MAX)
        _check_size("rationale", asked.rationale or "", limits.RATIONALE_BYTES_MAX)
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
            envelope=command_envelope(author),
            kind=AGENT,
            name=run.agent,
            eval_id=eval_id(author.tenant, author.command_id),
            run_id=run.run_id,
            def_id=judged,
            version=version,
            score=score,
            dimensions=dimensions,
            judgement=judgement,
            rationale=asked.rationale or "",
            emitter_role=role,
            emitter_agent_id="" if role == EXTERNAL else author.agent_id,
            emitter_run_id=author.run_id,
            user_id=run.user_id,
        )
        answer = await ask_owner(self._commands, command, wait_s=WAIT_S)
        row = await self._load(author.tenant, answer.events[-1].eval_id, [answer.position])
        made = _row(row, orjson.loads(row.document))
        submitted = EvaluationSubmitted(**{name: getattr(made, name) for name in EvaluationSubmitted.__struct_fields__})
        return Answered(value=submitted, positions=(answer.position,))

    async def _known_run(self, tenant: str, run_id: str) -> RunRow | None:
        """Return a run; waits for one that may have started a moment ago, in another partition."""
        loop = asyncio.get_running_loop()
        deadline, pause_s = loop.time() + self._run_wait_s, POLL_S
        while True:
            run = await self._find_run(tenant, run_id)
            if run is not None or not RUN_ID.match(run_id) or loop.time() >= deadline:
                return run
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, POLL_MAX_S)

    async def _role(self, run: RunRow, author: Author) -> str:
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

    async def get(self, asked: EvaluationGet, author: Author, positions: Sequence[str]) -> Answered[Evaluation]:
        """Return a judgement. Reads include `positions`."""
        _require_reader(author)
        row = await self._load(author.tenant, _key("eval_id", asked.eval_id), positions)
        return Answered(value=(await self._rows([row], author.tenant))[0])

    async def list_for_run(
        self, asked: EvaluationListForRun, author: Author, positions: Sequence[str]
    ) -> Answered[EvaluationsOfRun]:
        """Return a page of the judgements of a run, newest first."""
        run_id = _key("run_id", asked.run_id)
        rows, following = await self._list(asked, author, positions, key_a=run_id)
        return Answered(value=EvaluationsOfRun(run_id=run_id, evaluations=rows, next=following or UNSET))

    async def list_for_definition(
        self, asked: EvaluationListForDefinition, author: Author, positions: Sequence[str]
    ) -> Answered[EvaluationsOfDefinition]:
        """Return a page of the judgements of a version, newest first."""
        judged = _key("def_id", asked.def_id)
        rows, following = await self._list(asked, author, positions, key_b=judged)
        return Answered(value=EvaluationsOfDefinition(def_id=judged, evaluations=rows, next=following or UNSET))

    async def sum_up(
        self, asked: EvaluationAggregate, author: Author, positions: Sequence[str]
    ) -> Answered[EvaluationAggregated]:
        """Return the sums of the judgements of a version."""
        _require_reader(author)
        sums = await self.aggregate(
            author.tenant,
            _key("def_id", asked.def_id),
            include_lineage=bool(asked.include_lineage),
            positions=positions,
        )
        return Answered(value=sums)

    async def _load(self, tenant: str, judgement_id: str, positions: Sequence[str]) -> ItemRow:
        rows = await self._reads.load_items(NAME, tenant, JUDGEMENT_ITEM, [judgement_id], positions=positions)
        if not rows:
            raise Refused(NOT_FOUND, f"judgement {judgement_id[:80]} not found")
        return rows[0]

    async def _list(
        self,
        asked: EvaluationListForRun | EvaluationListForDefinition,
        author: Author,
        positions: Sequence[str],
        *,
        key_a: str = "",
        key_b: str = "",
    ) -> tuple[list[Evaluation], str]:
        """Return a page of judgements, and the cursor of the following one."""
        _require_reader(author)
        try:
            page = await self._reads.list_items(
                NAME,
                author.tenant,
                JUDGEMENT_ITEM,
                key_a=key_a,
                key_b=key_b,
                limit=asked.limit or LIST_MAX,
                after=asked.cursor or "",
                positions=positions,
            )
        except InvalidPageToken as error:
            raise Refused(INVALID, "cursor: expected `next` of an earlier answer") from error
        return await self._rows(page.rows, author.tenant), page.next or ""

    async def _rows(self, rows: Sequence[ItemRow], tenant: str) -> list[Evaluation]:
        documents = [orjson.loads(row.document) for row in rows]
        texts = [{name: document[name] for name in ("judgement", "rationale")} for document in documents]
        plain = await self._decrypt(texts, tenant)
        return [_row(row, document | text) for row, document, text in zip(rows, documents, plain, strict=True)]

    async def aggregate(
        self, tenant: str, judged: str, *, include_lineage: bool = False, positions: Sequence[str] = ()
    ) -> EvaluationAggregated:
        """Return the sums of a tenant's judgements of a version; all zero without any."""
        ids = [judged, *self._ancestors(tenant, judged)] if include_lineage else [judged]
        sums = await self._reads.sum_items(NAME, tenant, JUDGEMENT_ITEM, keys_b=ids, positions=positions)
        groups = {
            kind: await self._reads.sum_items_by_key(NAME, tenant, kind, "key_a", keys_b=ids, positions=positions)
            for kind in (DIMENSION_ITEM, ROLE_ITEM)
        }
        by_key = {
            kind: {key: copy_as(EvaluationSums, one) for key, one in group.items()} for kind, group in groups.items()
        }
        return EvaluationAggregated(
            def_id=judged,
            count=sums.count,
            score=copy_as(EvaluationSums, sums),
            dimensions=by_key[DIMENSION_ITEM] or UNSET,
            by_emitter_role=by_key[ROLE_ITEM] or UNSET,
            lineage_included=include_lineage,
        )

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


def _have_same_parent(one: RunRow, other: RunRow) -> bool:
    pairs = ((one.parent_run_id, other.parent_run_id), (one.parent_agent_id, other.parent_agent_id))
    return any(first and first == second for first, second in pairs)


def _scopes(author: Author) -> set[str]:
    return set((author.grants or {}).get("evaluation_scopes") or ())


def _scope_denied(what: str, author: Author) -> Refused:
    shown = ", ".join(sorted(_scopes(author))) or "none"
    return Refused("scope_denied", f"the agent may not {what}; its evaluation_scopes are {shown}")


def _require_reader(author: Author) -> None:
    if author.grants is not None and READ_ANY not in _scopes(author):
        raise _scope_denied(f"read judgements: that takes {READ_ANY}", author)


def _row(row: ItemRow, document: Mapping[str, Any]) -> Evaluation:
    """Return a judgement as answers show it; `document` is that of the row, in plaintext."""
    return Evaluation(
        eval_id=row.id,
        run_id=row.key_a,
        def_id=row.key_b,
        score=row.number or 0.0,
        dimensions=document["dimensions"],
        judgement=_parsed(document["judgement"]),
        rationale=document["rationale"],
        emitter_role=document["emitter_role"],
        emitter_agent_id=document["emitter_agent_id"],
        emitter_run_id=document["emitter_run_id"],
        created_at=format_time(row.at_ms),
    )


def _parsed(judgement: str) -> Any:
    """Return the JSON value of a judgement; the text itself when it is none, as after an erasure."""
    if not judgement:
        return None
    try:
        return orjson.loads(judgement)
    except orjson.JSONDecodeError:
        return judgement


# --- fields ----------------------------------------------------------------------------------------------------------


def _key(field: str, value: str) -> str:
    """Return the id in a field, which rows are looked up by."""
    if problem := name_problem(required(field, value)):
        raise Refused(INVALID, f"{field}: {problem}")
    return value


def _finite(number: float, name: str) -> float:
    if not math.isfinite(number):
        raise Refused(INVALID, f"{name}: expected a finite number")
    return number


def _dimensions(dimensions: Mapping[str, float]) -> dict[str, float]:
    if len(dimensions) > limits.DIMENSIONS_MAX:
        raise Refused("too_many", f"dimensions: {len(dimensions)}, at most {limits.DIMENSIONS_MAX}")
    for name in dimensions:
        if problem := dimension_problem(name):
            raise Refused("bad_name", f"dimensions: the name {name[:80]!r} {problem}")
    return {name: _finite(value, f"dimensions.{name}") for name, value in dimensions.items()}


def _check_size(name: str, text: str, bytes_max: int) -> None:
    size = len(text.encode())
    if size > bytes_max:
        raise Refused("too_large", f"{name}: {size} bytes, at most {bytes_max}")
