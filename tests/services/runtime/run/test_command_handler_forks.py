"""Forks at the desk of a partition: the prefix is read back from the log, whatever became of its run."""

import asyncio
from typing import Any

import pytest

from loomlog.schemas.generated.run_commands import ForkRun
from loomlog.schemas.generated.run_events import RunStarted
from loomlog.schemas.generated.values import AgentDefinition, DefinitionOverrides, RunOptions, RunPosition
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import CommandRefusal, ForkCommand
from loomlog.services.core.run.lifecycle.fork import content_sha256
from loomlog.services.core.run.state import AwaitingModel
from loomlog.services.runtime.run.fork_definition import resolve_fork_definition
from loomlog.services.stream.partition.fold import BrokenHistory
from loomlog.services.stream.partition.partition import Aggregate
from tests.services.core.run.given import NOW, answered, calls, returned
from tests.services.runtime.given import DeskAtWork, envelope, saying
from tests.services.stream.given import CODEC, EVENTS, FAMILY
from tests.services.stream.outside import Definitions


def forking(at_seq: int, run_id: str = "r_tok-f", *, tenant: str = "t", origin: str = "r_tok", **more: Any) -> ForkRun:
    at = more.pop("issued_at_ms", NOW)
    return ForkRun(
        envelope=envelope(f"fork-{run_id}", tenant, at), origin_run_id=origin, at_seq=at_seq, run_id=run_id, **more
    )


def with_calls(work: DeskAtWork) -> Aggregate:
    """A live run of two calls, answered, and its second turn under way: eight events."""
    run = work.start("r_tok")
    state = run.state
    work.partition.submit(run, answered(state, "see", *calls("Read", "Read")), at_ms=NOW)
    work.partition.submit(run, returned(run.state, 0), at_ms=NOW)
    work.partition.submit(run, returned(run.state, 1), at_ms=NOW)
    work.flush()
    assert run.seq == 8
    return run


async def forked(work: DeskAtWork, command: ForkRun) -> Aggregate:
    """The fork, decided and in the log."""
    prepared = await work.looked_up(command)
    assert work.decide(prepared) == ["RunStarted", "ModelCallRequested"]
    work.flush()
    assert prepared.aggregate is not None
    return prepared.aggregate


def order_of(prepared: Any) -> ForkCommand:
    order = prepared.command()
    assert isinstance(order, ForkCommand)
    return order


async def test_a_live_run_is_forked_and_goes_on_untouched() -> None:
    work = DeskAtWork()
    run = with_calls(work)
    before = run.state
    fork = await forked(work, forking(7))
    assert run.state == before
    assert isinstance(fork.state, AwaitingModel)
    assert fork.state.facts.messages == before.facts.messages
    assert (fork.tenant, fork.key) == ("t", b"tok")
    assert fork.state.facts.session_id == "s_tok-f"


async def test_the_fork_names_the_place_and_the_digest_of_the_last_event_it_shares() -> None:
    work = DeskAtWork()
    run = with_calls(work)
    prepared = await work.looked_up(forking(2))
    origin = order_of(prepared).origin
    assert origin is not None
    assert (origin.point.first_offset, origin.point.last_offset, origin.point.seq) == (
        run.first_offset,
        run.first_offset + 1,
        2,
    )
    third = CODEC.decode(work.log.records[EVENTS, 0][origin.point.last_offset + 1].value or b"").envelope
    assert third is not None
    assert third.prev.hex() == origin.point.digest


async def test_the_prefix_is_that_of_the_seq_and_not_of_now() -> None:
    work = DeskAtWork()
    with_calls(work)
    fork = await forked(work, forking(1))
    assert len(fork.state.facts.messages) == 1


@pytest.mark.parametrize("way", ["memory", "index", "ending"])
async def test_a_run_that_is_over_is_forked_from_wherever_it_is_known(way: str) -> None:
    work = DeskAtWork()
    run = with_calls(work)
    work.end(run)
    if way == "ending":
        # Its end is decided but not in the log: the fork waits for it instead of missing it.
        waiting = work.lookup(forking(7))
        await asyncio.sleep(0)
        assert not waiting.done()
        work.flush()
        async with asyncio.timeout(30):
            prepared = await waiting
        assert work.decide(prepared) == ["RunStarted", "ModelCallRequested"]
        return
    work.flush()
    if way == "index":
        work.known_since_ms, work.forgotten_until = NOW, len(work.log.records[EVENTS, 0])
        work.take_over()
    fork = await forked(work, forking(9, prompt="go on"))
    assert [m.role for m in fork.state.facts.messages] == ["user", "assistant", "user", "user"]


async def test_a_fork_is_read_back_from_the_log_alone_and_forked_again() -> None:
    work = DeskAtWork()
    with_calls(work)
    fork = await forked(work, forking(7))
    work.partition.submit(fork, answered(fork.state, "done"), at_ms=NOW)
    work.flush()
    place = RunPosition(run_id=fork.id, first_offset=fork.first_offset, last_offset=fork.last_offset)
    fresh = type(work.past)(FAMILY, CODEC, work.log, EVENTS)
    assert (await fresh.load(0, place)).state == fork.state
    again = await forked(work, forking(fork.seq, "r_tok-g", origin="r_tok-f", prompt="and then?"))
    assert again.state.facts.messages[:-1] == fork.state.facts.messages


async def test_a_fork_of_a_run_that_goes_on_with_another_shares_both() -> None:
    work = DeskAtWork()
    first = work.start("r_tok")
    work.partition.submit(first, answered(first.state, "done"), at_ms=NOW)
    work.flush()
    second = work.start("r_tok-2", session_id="s_tok")
    fork = await forked(work, forking(2, origin="r_tok-2"))
    assert fork.state.facts.messages == second.state.facts.messages
    assert len(fork.state.facts.messages) == 3


async def test_the_same_command_again_has_no_place() -> None:
    work = DeskAtWork()
    with_calls(work)
    fork = await forked(work, forking(7))
    assert work.at_once(forking(7)).aggregate is None
    work.end(fork)
    assert work.at_once(forking(7)).aggregate is None
    work.flush()
    work.known_since_ms, work.forgotten_until = NOW, len(work.log.records[EVENTS, 0])
    work.take_over()
    assert (await work.looked_up(forking(7))).aggregate is None


@pytest.mark.parametrize(
    "command",
    [forking(99), forking(0), forking(-1), forking(7, origin="r_tok-none"), forking(7, tenant="other")],
    ids=["after its end", "zero", "below", "of no run", "of another tenant"],
)
async def test_what_is_not_there_is_refused(command: ForkRun) -> None:
    work = DeskAtWork()
    with_calls(work)
    order = order_of(await work.looked_up(command))
    assert (order.origin, order.origin_refusal) == (None, None)
    assert work.decide(await work.looked_up(command)) == ["RunRefused"]


async def test_an_origin_whose_bytes_were_altered_is_not_shared() -> None:
    work = DeskAtWork()
    run = with_calls(work)
    records = work.log.records[EVENTS, 0]
    at = run.first_offset + 2
    broken = CODEC.decode(records[at].value or b"")
    assert broken.envelope is not None
    other = replace(broken.record, text="something else")
    records[at] = replace(records[at], value=CODEC.encode_event(broken.envelope, other))
    order = order_of(await work.looked_up(forking(7)))
    assert order.origin_refusal is not None
    assert order.origin_refusal.code == "run_quarantined"


def test_a_fork_in_the_wrong_place_is_refused_with_what_was_expected() -> None:
    work = DeskAtWork()
    with pytest.raises(ValueError, match="the run r_other belongs under 'other'"):
        work.at_once(forking(1, origin="r_other"))


async def test_a_run_whose_prefix_was_forked_still_continues_to_its_end() -> None:
    """What is kept of a prefix is not taken for the end of its run."""
    work = DeskAtWork()
    run = with_calls(work)
    await forked(work, forking(1))
    assert work.decide(work.at_once(saying("r_tok", "quick"))) == ["InputReceived"]
    work.end(run)
    work.flush()
    further = work.start("r_tok-2", session_id="s_tok")
    assert len(further.state.facts.messages) > 3


# --- definitions -----------------------------------------------------------------------------------------------------

PINNED = AgentDefinition(name="helper", provider="acme", model="large", sha256="aa" * 32, tools=("Read", "Web*"))
NOW_IT_IS = replace(PINNED, model="larger", sha256="bb" * 32)
OTHER = replace(PINNED, name="other", sha256="cc" * 32)


def resolved(**fields: Any) -> AgentDefinition | CommandRefusal:
    known = Definitions()
    known.known = {"helper": NOW_IT_IS, "other": OTHER}
    started = RunStarted(session_id="s", agent_id="a", definition=PINNED, segments=())
    return resolve_fork_definition(forking(1, **fields), started, known, tenant="t")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, PINNED),
        ({"definition": "current"}, NOW_IT_IS),
        ({"definition": "aaaaaaaa"}, PINNED),
        ({"definition": "bb" * 32}, NOW_IT_IS),
        ({"agent": "other"}, OTHER),
        ({"agent": "other", "definition": "current"}, OTHER),
    ],
)
def test_a_fork_is_pinned_to_the_definition_it_names(fields: Any, expected: AgentDefinition) -> None:
    assert resolved(**fields) == expected


@pytest.mark.parametrize("wanted", ["aaaa", "dddddddd", "latest"])
def test_a_definition_nobody_has_is_refused_with_those_there_are(wanted: str) -> None:
    actual = resolved(definition=wanted)
    assert isinstance(actual, CommandRefusal)
    assert PINNED.sha256 in actual.message
    assert NOW_IT_IS.sha256 in actual.message


def test_an_unknown_agent_and_two_definitions_are_refused() -> None:
    unknown, both = resolved(agent="nobody"), resolved(agent="other", definition="aaaaaaaa")
    assert isinstance(unknown, CommandRefusal)
    assert isinstance(both, CommandRefusal)
    assert (unknown.code, both.code) == ("unknown_agent", "bad_request")


def test_an_agent_is_found_with_the_keys_of_the_fork_and_not_with_those_of_its_origin() -> None:
    asked: dict[str, Any] = {}

    class Noting(Definitions):
        def resolve(self, agent: str, **more: object) -> AgentDefinition | CommandRefusal:
            asked.update(more)
            return OTHER

    started = RunStarted(
        session_id="s", agent_id="a", definition=PINNED, segments=(), options=RunOptions(credentials=("theirs",))
    )
    command = forking(1, agent="other", credentials=("ACME_KEY",), operator_key_restricted=True)
    assert resolve_fork_definition(command, started, Noting(), tenant="t") == OTHER
    assert (asked["credentials"], asked["operator_key_restricted"]) == (("ACME_KEY",), True)
    assert asked["tools"] is None
    resolve_fork_definition(
        forking(1, agent="other", overrides=DefinitionOverrides(tools=("Read",))), started, Noting(), tenant="t"
    )
    assert asked["tools"] == ("Read",)


def test_tools_are_only_ever_narrowed() -> None:
    actual = resolved(overrides=DefinitionOverrides(tools=("WebFetchTool", "Re*")))
    assert isinstance(actual, AgentDefinition)
    assert actual.tools == ("Read", "WebFetch")
    assert actual.sha256 == content_sha256(actual)
    nothing = resolved(overrides=DefinitionOverrides(tools=()))
    assert isinstance(nothing, AgentDefinition)
    assert nothing.tools == ()


@pytest.mark.parametrize("tools", [("Nope",), ("Read", "Bash"), ("B*",), ("read",)])
def test_a_tool_that_the_agent_does_not_have_is_refused_with_those_it_has(tools: tuple[str, ...]) -> None:
    actual = resolved(overrides=DefinitionOverrides(tools=tools))
    assert isinstance(actual, CommandRefusal)
    assert (actual.code, repr(tools[-1]) in actual.message, "Read, Web*" in actual.message) == (
        "bad_request",
        True,
        True,
    )


def test_a_provider_that_is_not_there_is_refused_with_those_that_are() -> None:
    actual = resolved(overrides=DefinitionOverrides(provider="nosuch"))
    assert isinstance(actual, CommandRefusal)
    assert (actual.code, actual.message) == ("bad_request", "overrides.provider is 'nosuch': there are acme")
    known = resolved(overrides=DefinitionOverrides(provider="acme", model="small"))
    assert isinstance(known, AgentDefinition)
    assert known.model == "small"


async def test_a_fork_point_that_names_another_event_than_there_is_gives_no_state() -> None:
    work = DeskAtWork()
    run = with_calls(work)
    origin = order_of(await work.looked_up(forking(2))).origin
    assert origin is not None
    assert (await work.past.state(0, origin.point)).facts.run_id == run.id
    fresh = type(work.past)(FAMILY, CODEC, work.log, EVENTS)
    for wrong in (replace(origin.point, digest="00" * 16), replace(origin.point, seq=1)):
        with pytest.raises(BrokenHistory, match="another event"):
            await fresh.state(0, wrong)
