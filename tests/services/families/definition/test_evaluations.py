"""Judgements of runs over the rules in memory: who may judge as what, what is refused, and what the sums say."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from loomlog.connectors.definitions import KINDS, canonical_json
from loomlog.connectors.protocols import DefinitionsView
from loomlog.projections.runs import RunRow
from loomlog.schemas.generated.definition_commands import DefineVersion, ForkVersion, SubmitJudgement
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.core.definitions import def_id, static_def_id
from loomlog.services.core.families import aggregate_id
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.definition import FAMILY
from loomlog.services.families.definition.author import Author
from loomlog.services.families.definition.state import line_id
from loomlog.services.families.definition.table import DefinitionTable, file_definition
from tests.services.entities import NOW_MS, TOPIC, UNANSWERED, MemoryEntities
from tests.services.families.definition.opened import Opened, fields_of

TOKEN = "0" * 26
RUN = RunRow(*[""] * len(RunRow._fields))._replace(
    run_id=f"r_{TOKEN}", tenant="acme", agent="helper", agent_id="a_judged", user_id="ada", parent_run_id="r_up",
    parent_agent_id="a_up",
)  # fmt: skip
OPERATOR = Author(tenant="acme", subject="op", command_id="c1", issued_at_ms=NOW_MS, agent_id="a_http-op")
JUDGE = replace(
    OPERATOR,
    agent_id="a_judge",
    agent="judge",
    run_id="r_judge",
    grants={"evaluation_scopes": ("submit_any", "read_any")},
)
FILED = file_definition("agent", "filed", {"model": "m"})


class Replicas:
    """The lines of MemoryEntities, as replicas of a process show them."""

    def __init__(self, entities: MemoryEntities) -> None:
        self.entities = entities
        self.listeners: list[Any] = []

    def on_fold(self, family: str, folded: Any) -> None:
        self.listeners.append(folded)

    def folded(self, aggregate: str) -> None:
        for listener in self.listeners:
            listener(aggregate)

    def state(self, aggregate: str) -> Any:
        tenant, _, name = aggregate.partition(":")[2].partition("/")
        return self.entities.entities[tenant, name].state

    def position(self, aggregate: str) -> str:
        return f"{TOPIC}/1:1"


class Here:
    """A process: `runs` are those that the read model knows."""

    def __init__(self) -> None:
        self.entities = MemoryEntities(FAMILY)
        self.replicas = cast(Any, Replicas(self.entities))
        self.runs = {RUN.run_id: RUN}
        self.looked_up = 0
        self.number = 0
        self.open()

    def open(self, **options: Any) -> None:
        self.opened = Opened(
            self.replicas,
            self.entities,
            self.entities,
            find_run=self.find,
            files={("agent", "filed"): FILED},
            run_wait_s=0.1,
            **options,
        )
        self.table: DefinitionTable = self.opened.get(DefinitionTable)

    async def find(self, tenant: str, run_id: str) -> RunRow | None:
        self.looked_up += 1
        run = self.runs.get(run_id)
        return run if run is not None and run.tenant == tenant else None

    def run(self, number: int, **fields: Any) -> RunRow:
        run = RUN._replace(run_id=f"r_{TOKEN}-{number}", **fields)
        self.runs[run.run_id] = run
        return run

    async def do(self, op: str, author: Author = OPERATOR, **fields: Any) -> Mapping[str, Any]:
        self.number += 1
        author = replace(author, command_id=f"{author.command_id}.{self.number}")
        return fields_of(await self.opened.ask("Evaluation", op, author, **fields))

    async def submit(self, score: float = 0.5, author: Author = OPERATOR, **fields: Any) -> Mapping[str, Any]:
        return await self.do("submit", author, **{"run_id": RUN.run_id, "score": score} | fields)

    async def refused(self, op: str, author: Author = OPERATOR, **fields: Any) -> tuple[str, str]:
        with pytest.raises(Refused) as caught:
            await self.do(op, author, **fields)
        return caught.value.code, caught.value.message

    async def refused_submit(self, author: Author = OPERATOR, **fields: Any) -> tuple[str, str]:
        return await self.refused("submit", author, **{"run_id": RUN.run_id, "score": 1} | fields)

    async def define(self, prompt: str, tenant: str = "acme", parent: str = "") -> str:
        """Make a version of the agent helper; return its def_id."""
        self.number += 1
        kind = KINDS["agent"]
        content = kind.compose("helper", {"model": "m", "system_prompt": prompt})
        record: Any = ForkVersion if parent else DefineVersion
        command = record(
            envelope=CommandEnvelope(command_id=f"d{self.number}", tenant=tenant, subject="op"),
            kind="agent",
            name="helper",
            content=canonical_json(content),
            content_sha256=kind.hash("helper", content),
            **({"parent_def_id": parent} if parent else {}),
        )
        event = (await self.entities.ask(command, wait_s=1)).events[0]
        self.replicas.folded(aggregate_id("definition", tenant, line_id("agent", "helper")))
        return str(event.def_id)


@pytest.fixture
def here() -> Here:
    return Here()


def granted(*scopes: str, **fields: Any) -> Author:
    return replace(JUDGE, grants={"evaluation_scopes": scopes}, **fields)


# --- submitting ------------------------------------------------------------------------------------------------------


async def test_the_answer_names_what_was_judged_and_the_row_has_everything(here: Here) -> None:
    answer = await here.submit(0.75, dimensions={"style": 0.5}, judgement={"points": [1, 2]}, rationale="fine")
    assert set(answer) == {"eval_id", "run_id", "def_id", "score", "emitter_role", "created_at"}
    row = await here.do("get", eval_id=answer["eval_id"])
    assert row == {
        **answer,
        "dimensions": {"style": 0.5},
        "judgement": {"points": [1, 2]},
        "rationale": "fine",
        "emitter_agent_id": "",
        "emitter_run_id": "",
    }
    assert (row["run_id"], row["score"], row["emitter_role"]) == (RUN.run_id, 0.75, "external")
    assert row["created_at"] == "2027-01-15T08:00:00.000000000Z"


async def test_a_repetition_is_one_judgement_with_the_same_id(here: Here) -> None:
    fields = {"run_id": RUN.run_id, "score": 1}
    first, again = [await here.opened.ask("Evaluation", "submit", OPERATOR, **fields) for _ in range(2)]
    assert first == again
    assert first.positions == (f"{TOPIC}/1:1",)
    other = await here.opened.ask("Evaluation", "submit", replace(OPERATOR, command_id="c2"), **fields)
    assert other.value.eval_id != first.value.eval_id
    assert len((await here.do("list_for_run", run_id=RUN.run_id))["evaluations"]) == 2


async def test_content_is_encrypted_for_the_user_of_the_judged_run(here: Here) -> None:
    await here.submit(judgement="private", rationale="words")
    (command,) = here.entities.asked
    assert FAMILY.content_subject(command) == "ada"
    assert set(type(command).CONTENT) == {"judgement", "rationale"}


async def test_texts_are_decrypted_and_an_erased_judgement_is_shown_as_it_reads(here: Here) -> None:
    answer = await here.submit(judgement={"a": 1}, rationale="words")

    async def decrypt(value: Any, tenant: str) -> Any:
        assert tenant == "acme"
        return [{"judgement": "[erased]", "rationale": text["rationale"].upper()} for text in value]

    here.open(decrypt=decrypt)
    row = await here.do("get", eval_id=answer["eval_id"])
    assert (row["judgement"], row["rationale"]) == ("[erased]", "WORDS")


# --- what a run was --------------------------------------------------------------------------------------------------


async def test_a_run_of_a_version_is_judged_in_its_line(here: Here) -> None:
    made = await here.define("one")
    run = here.run(1, def_id=made, def_version=1)
    assert (await here.submit(0.25, run_id=run.run_id))["def_id"] == made
    line = here.replicas.state(aggregate_id("definition", "acme", "agent/helper"))
    assert (line.versions[0].sums.count, line.versions[0].sums.total, line.static_sums.count) == (1, 0.25, 0)


async def test_a_run_of_a_file_has_the_id_of_the_file_or_one_from_its_own_hash(here: Here) -> None:
    filed, unknown = here.run(1, agent="filed"), here.run(2, agent="gone", definition_sha256="ab" * 32)
    foreign = here.run(3, agent="gone", definition_sha256="no hash")
    assert (await here.submit(run_id=filed.run_id))["def_id"] == FILED.def_id
    judged = (await here.submit(run_id=unknown.run_id))["def_id"]
    assert judged == static_def_id("agent", "gone", bytes.fromhex("ab" * 32))
    assert (await here.submit(run_id=foreign.run_id))["def_id"] not in ("", judged)
    assert here.replicas.state(aggregate_id("definition", "acme", "agent/filed")).static_sums.count == 1


async def test_a_judgement_of_a_shared_definition_stays_with_the_tenant(here: Here) -> None:
    shared = await here.define("shared", tenant="")
    run = here.run(1, def_id=shared, def_version=1)
    assert (await here.submit(run_id=run.run_id))["def_id"] == shared
    assert here.replicas.state(aggregate_id("definition", "", "agent/helper")).versions[0].sums.count == 0
    assert (await here.do("aggregate", def_id=shared))["count"] == 1
    assert (await here.do("aggregate", replace(OPERATOR, tenant="globex"), def_id=shared))["count"] == 0


async def test_a_version_that_is_not_of_this_installation_can_be_judged(here: Here) -> None:
    elsewhere = def_id("acme", "agent", "helper", 9)
    run = here.run(1, def_id=elsewhere, def_version=9)
    assert (await here.submit(run_id=run.run_id))["def_id"] == elsewhere
    assert here.replicas.state(aggregate_id("definition", "acme", "agent/helper")).static_sums.count == 1


async def test_a_run_of_another_tenant_is_unknown(here: Here) -> None:
    assert (await here.refused_submit(replace(OPERATOR, tenant="globex")))[0] == "unknown_run"


async def test_a_run_that_becomes_known_is_waited_for_and_other_texts_are_not(here: Here) -> None:
    late = RUN._replace(run_id="r_" + "1" * 26)
    asyncio.get_running_loop().call_later(0.03, here.runs.__setitem__, late.run_id, late)
    assert (await here.submit(run_id=late.run_id))["run_id"] == late.run_id
    assert here.looked_up > 1
    assert (await here.refused_submit(run_id="r_" + "2" * 26))[0] == "unknown_run"
    here.looked_up = 0
    assert await here.refused_submit(run_id="none-1") == ("unknown_run", "run none-1 not found")
    assert here.looked_up == 1


# --- roles and scopes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "role", "judge", "own"),
    [
        ("submit_self", "self", {"agent_id": "a_judged"}, {}),
        ("submit_descendants", "parent", {"run_id": "r_up"}, {}),
        ("submit_descendants", "parent", {"agent_id": "a_up"}, {}),
        ("submit_siblings", "sibling", {}, {"parent_run_id": "r_up"}),
        ("submit_siblings", "sibling", {}, {"parent_agent_id": "a_up"}),
        ("submit_any", "unrelated", {}, {"parent_run_id": "r_other"}),
    ],
)
async def test_each_role_is_derived_and_needs_its_scope(
    here: Here, scope: str, role: str, judge: dict[str, Any], own: dict[str, Any]
) -> None:
    place: dict[str, Any] = {"parent_run_id": "", "parent_agent_id": ""} | own
    here.runs["r_judge"] = RUN._replace(run_id="r_judge", agent_id="a_judge", **place)
    assert (await here.submit(author=granted(scope, **judge)))["emitter_role"] == role
    assert (await here.submit(author=granted("submit_any", **judge)))["emitter_role"] == role
    others = {"submit_self", "submit_descendants", "submit_siblings", "read_any"} - {scope}
    reason, message = await here.refused_submit(granted(*others, **judge))
    assert reason == "scope_denied"
    assert f"as {role}: that takes {scope}" in message


async def test_two_roots_are_no_siblings(here: Here) -> None:
    root = here.run(1, parent_run_id="", parent_agent_id="")
    here.runs["r_judge"] = root._replace(run_id="r_judge", agent_id="a_judge")
    assert (await here.submit(author=granted("submit_any"), run_id=root.run_id))["emitter_role"] == "unrelated"


async def test_a_run_is_named_as_the_judge(here: Here) -> None:
    answer = await here.submit(author=JUDGE)
    row = await here.do("get", eval_id=answer["eval_id"])
    assert (row["emitter_agent_id"], row["emitter_run_id"]) == ("a_judge", "r_judge")


async def test_an_agent_without_scopes_may_neither_judge_nor_read_and_nothing_is_looked_up(here: Here) -> None:
    nothing = replace(JUDGE, grants={})
    assert (await here.refused_submit(nothing))[0] == "scope_denied"
    for op, fields in (
        ("get", {"eval_id": "e"}),
        ("list_for_run", {"run_id": "r"}),
        ("list_for_def", {"def_id": "d"}),
        ("aggregate", {"def_id": "d"}),
    ):
        assert (await here.refused(op, granted("submit_any"), **fields))[0] == "scope_denied"
    assert (here.looked_up, here.entities.asked) == (0, [])


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "reason", "words"),
    [
        ({"score": None}, "missing_field", "score is missing"),
        ({"run_id": ""}, "missing_field", "missing required field: run_id"),
        ({"score": True}, "invalid_definition", "score: expected a number"),
        ({"score": float("nan")}, "invalid_definition", "score"),
        ({"score": float("inf")}, "invalid_definition", "score"),
        ({"score": 10**400}, "invalid_definition", "score"),
        ({"score": "1"}, "invalid_definition", "score"),
        ({"dimensions": [1]}, "invalid_definition", "dimensions: expected an object"),
        ({"dimensions": {"a": False}}, "invalid_definition", "dimensions[...]: expected a number"),
        ({"dimensions": {"": 1}}, "bad_name", "dimensions"),
        ({"dimensions": {"a\nb": 1}}, "bad_name", "cannot be printed"),
        ({"dimensions": {"\ud800": 1}}, "bad_name", "dimensions"),
        ({"dimensions": {"x" * 129: 1}}, "bad_name", "128"),
        ({"dimensions": {str(n): 1 for n in range(65)}}, "too_many", "64"),
        ({"judgement": "x" * 32_767}, "too_large", "judgement"),
        ({"judgement": float("nan")}, "invalid_definition", "finite"),
        ({"judgement": ["\ud800"]}, "invalid_definition", "surrogate"),
        ({"rationale": "x" * 8_193}, "too_large", "rationale: 8193 bytes, at most 8192"),
        ({"rationale": 1}, "invalid_definition", "rationale: expected text"),
        ({"rationale": "a\0"}, "invalid_definition", "rationale"),
        ({"scores": 1}, "unknown_field", "score"),
        ({"run_id": "r\n"}, "invalid_definition", "run_id"),
    ],
)
async def test_bad_fields_are_refused_with_a_reason_and_nothing_is_sent(
    here: Here, fields: dict[str, Any], reason: str, words: str
) -> None:
    actual, message = await here.refused_submit(**fields)
    assert actual == reason
    assert words in message
    assert here.entities.asked == []


async def test_a_judgement_of_a_hundred_levels_is_refused(here: Here) -> None:
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    assert (await here.refused_submit(judgement=deep))[0] == "invalid_definition"


async def test_the_largest_judgement_is_taken(here: Here) -> None:
    answer = await here.submit(
        judgement="x" * 32_766, rationale="x" * 8_192, dimensions={f"{n:0128}": n for n in range(64)}
    )
    assert len((await here.do("get", eval_id=answer["eval_id"]))["judgement"]) == 32_766
    assert len((await here.do("aggregate", def_id=answer["def_id"]))["dimensions"]) == 64


@pytest.mark.parametrize(
    ("op", "fields", "reason"),
    [
        ("get", {}, "missing_field"),
        ("get", {"eval_id": "eval_none"}, "not_found"),
        ("list_for_run", {"run_id": "r", "limit": 0}, "invalid_definition"),
        ("list_for_run", {"run_id": "r", "limit": 101}, "invalid_definition"),
        ("list_for_run", {"run_id": "r", "limit": True}, "invalid_definition"),
        ("aggregate", {"def_id": "d", "include_lineage": 1}, "invalid_definition"),
    ],
)
async def test_bad_reads_are_refused(here: Here, op: str, fields: dict[str, Any], reason: str) -> None:
    assert (await here.refused(op, **fields))[0] == reason


async def test_without_an_answer_it_may_still_be_carried_out(here: Here) -> None:
    here.entities.error = UNANSWERED
    with pytest.raises(Unavailable) as caught:
        await here.submit()
    assert caught.value.is_unknown


async def test_what_is_not_read_yet_is_unavailable_and_not_missing(here: Here) -> None:
    here.entities.unread = frozenset({f"{TOPIC}/1:1"})
    with pytest.raises(Unavailable) as caught:
        await here.submit()
    assert not caught.value.is_unknown


# --- reading ---------------------------------------------------------------------------------------------------------


async def test_lists_are_in_pages_and_of_the_tenant(here: Here) -> None:
    for score in (0.1, 0.2, 0.3):
        judged = (await here.submit(score))["def_id"]
    page = await here.do("list_for_def", def_id=judged, limit=2)
    rest = await here.do("list_for_def", def_id=judged, limit=2, cursor=page["next"])
    assert page["def_id"] == judged
    assert len(page["evaluations"]) == 2
    assert {row["score"] for row in (*page["evaluations"], *rest["evaluations"])} == {0.1, 0.2, 0.3}
    assert "next" not in rest
    other = replace(OPERATOR, tenant="globex")
    assert (await here.do("list_for_def", other, def_id=judged))["evaluations"] == []
    assert (await here.refused("get", other, eval_id=page["evaluations"][0]["eval_id"]))[0] == "not_found"


async def test_sums_have_every_form_and_are_zero_without_judgements(here: Here) -> None:
    nothing = await here.do("aggregate", def_id="def_none")
    zero = {"mean": 0, "median": 0, "min": 0, "max": 0, "latest": 0, "count": 0}
    assert nothing == {"def_id": "def_none", "count": 0, "score": zero, "lineage_included": False}
    for score in (0.2, 0.9):
        judged = (await here.submit(score, dimensions={"style": score, "wit": 1}))["def_id"]
    await here.submit(0.4, JUDGE, dimensions={"style": 0.4})
    sums = await here.do("aggregate", def_id=judged)
    assert sums["count"] == sums["score"]["count"] == 3
    assert sums["score"]["mean"] == pytest.approx(0.5)
    assert (sums["score"]["median"], sums["score"]["min"], sums["score"]["max"]) == (0.4, 0.2, 0.9)
    assert (sums["dimensions"]["style"]["max"], sums["dimensions"]["wit"]["count"]) == (0.9, 2)
    assert {role: one["count"] for role, one in sums["by_emitter_role"].items()} == {"external": 2, "unrelated": 1}


async def test_a_lineage_has_the_judgements_of_all_ancestors(here: Here) -> None:
    first = await here.define("one", tenant="")
    second = await here.define("two", parent=first)
    third = await here.define("three", parent=second)
    for number, (judged, version) in enumerate(((first, 1), (second, 1), (third, 2))):
        run = here.run(number, def_id=judged, def_version=version)
        await here.submit(number, run_id=run.run_id)
    assert (await here.do("aggregate", def_id=third))["count"] == 1
    whole = await here.do("aggregate", def_id=third, include_lineage=True)
    assert (whole["count"], whole["score"]["max"], whole["lineage_included"]) == (3, 2, True)
    assert (await here.do("aggregate", def_id=second, include_lineage=True))["count"] == 2


async def test_a_lineage_that_began_with_a_file_has_the_judgements_of_the_file(here: Here) -> None:
    filed = here.run(1, agent="filed")
    await here.submit(0.3, run_id=filed.run_id)
    kind = KINDS["agent"]
    content = kind.compose("filed", {"model": "m", "system_prompt": "better"})
    command = ForkVersion(
        envelope=CommandEnvelope(command_id="fork", tenant="acme", subject="op"),
        kind="agent",
        name="filed",
        content=canonical_json(content),
        content_sha256=kind.hash("filed", content),
        base_content=FILED.text,
        base_sha256=FILED.content_sha256,
    )
    forked = (await here.entities.ask(command, wait_s=1)).events[1].def_id
    here.replicas.folded(aggregate_id("definition", "acme", line_id("agent", "filed")))
    assert (await here.do("aggregate", def_id=forked))["count"] == 0
    assert (await here.do("aggregate", def_id=forked, include_lineage=True))["count"] == 1


async def test_the_context_tool_has_the_sums_of_versions_of_its_tenant_and_of_files(here: Here) -> None:
    view = here.opened.get(DefinitionsView)
    made = await here.define("one")
    await here.submit(run_id=here.run(1, def_id=made, def_version=1).run_id)
    position = f"{TOPIC}/1:1"
    sums = await view.evaluations("acme", made, False, [position])
    assert sums is not None
    assert sums["count"] == 1
    assert here.entities.waited[-1] == (position,)
    assert await view.evaluations("globex", made, False, []) is None
    assert (await view.evaluations("globex", FILED.def_id, False, []) or {})["count"] == 0


# --- senders of their own --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"eval_id": ""}, "invalid_definition"),
        ({"eval_id": "e" * 300}, "too_large"),
        ({"run_id": "r\n"}, "invalid_definition"),
        ({"def_id": ""}, "invalid_definition"),
        ({"emitter_role": ""}, "invalid_definition"),
        ({"dimensions": {"": 1.0}}, "bad_name"),
        ({"judgement": "x" * 70_000}, "too_large"),
        ({"rationale": "x" * 20_000}, "too_large"),
        ({"score": float("nan")}, "invalid_definition"),
    ],
)
async def test_a_command_that_would_make_rows_no_one_can_store_is_refused(
    here: Here, fields: dict[str, Any], reason: str
) -> None:
    whole: dict[str, Any] = {
        "envelope": CommandEnvelope(command_id="raw", tenant="acme", subject="op"),
        "kind": "agent",
        "name": "helper",
        "eval_id": "eval_1",
        "run_id": "r_1",
        "def_id": "def_1",
        "score": 1.0,
        "emitter_role": "external",
    }
    (event,) = (await here.entities.ask(SubmitJudgement(**whole | fields), wait_s=1)).events
    assert (type(event), event.code) == (CommandRefused, reason)
    assert here.entities.items.rows == {}
