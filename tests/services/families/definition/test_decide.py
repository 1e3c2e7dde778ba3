"""The rules of a line: given a state, when a command, then events."""

from typing import Any

import pytest

from loomlog.schemas.generated.definition_commands import (
    DefineVersion,
    DeleteLine,
    ForkVersion,
    PromoteVersion,
    RetireVersion,
    RollBack,
    SubmitJudgement,
)
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.values import BlobRef, CommandEnvelope
from loomlog.schemas.records import replace
from loomlog.services.core.definitions import def_id
from loomlog.services.core.families import TIMER_FIRED, At
from loomlog.services.families.definition import limits
from loomlog.services.families.definition.decide import decide, next_timer_ms
from loomlog.services.families.definition.state import Line, evolve
from tests.services.families.definition.examples import agent

ENVELOPE = CommandEnvelope(command_id="c1", tenant="acme", subject="ada")
EMPTY = Line(tenant="acme", kind="agent", name="helper")


def after(line: Line, *commands: Any, at_ms: int = 1_000) -> Line:
    """Return the line after commands that are not refused."""
    for command in commands:
        events = decide(line, command, At(at_ms, "ada", "c1"))
        assert not any(isinstance(event, CommandRefused) for event in events), events
        for event in events:
            line = evolve(line, event, at_ms)
    return line


def refused(line: Line, command: Any) -> str:
    (event,) = decide(line, command, At(1_000, "ada", "c1"))
    assert isinstance(event, CommandRefused), event
    return event.code


def define(prompt: str, **fields: Any) -> DefineVersion:
    return DefineVersion(envelope=ENVELOPE, kind="agent", name="helper", **{**agent(prompt), **fields})


def fork(prompt: str, parent: int = 0, **fields: Any) -> ForkVersion:
    named = {"parent_def_id": version_id(parent)} if parent else {}
    values = {**agent(prompt), "promote": False, **named, **fields}
    return ForkVersion(envelope=ENVELOPE, kind="agent", name="helper", **values)


def version_id(number: int) -> str:
    return def_id("acme", "agent", "helper", number)


def promote(number: int, **fields: Any) -> PromoteVersion:
    return PromoteVersion(envelope=ENVELOPE, kind="agent", name="helper", def_id=version_id(number), **fields)


def retire(number: int, *, retired: bool = True) -> RetireVersion:
    return RetireVersion(envelope=ENVELOPE, kind="agent", name="helper", def_id=version_id(number), retired=retired)


ROLL_BACK = RollBack(envelope=ENVELOPE, kind="agent", name="helper")


def test_a_first_version_is_active_and_the_same_content_makes_no_other() -> None:
    line = after(EMPTY, define("one"))
    assert (line.active, len(line.versions)) == (1, 1)
    assert decide(line, define("one"), At(1)) == []
    assert after(line, define("two")).active == 2


def test_a_fork_is_not_active_until_it_is_promoted() -> None:
    line = after(EMPTY, define("one"), fork("two", 1))
    assert (line.active, line.versions[1].parent) == (1, version_id(1))
    assert after(line, promote(2)).active == 2


def test_a_rollback_goes_back_through_what_was_active_and_passes_over_the_retired() -> None:
    line = after(EMPTY, define("one"), define("two"), define("three"), retire(2))
    back = after(line, ROLL_BACK)
    assert (back.active, back.previous) == (1, ())
    assert refused(back, ROLL_BACK) == "not_found"
    event = decide(line, ROLL_BACK, At(1))[0]
    assert (event.undoes, event.to_def_id) == (version_id(3), version_id(1))


def test_retiring_the_active_version_leaves_none_and_restoring_it_does_not_make_it_active() -> None:
    line = after(EMPTY, define("one"), retire(1))
    assert line.active == 0
    assert refused(line, promote(1)) == "retired"
    restored = after(line, retire(1, retired=False))
    assert (restored.active, restored.versions[0].is_retired) == (0, False)


def test_a_writer_that_has_not_seen_the_last_write_is_refused() -> None:
    line = after(EMPTY, define("one"))
    assert refused(line, define("two", expect_active="")) == "definition_conflict"
    assert refused(line, promote(1, expect_active=version_id(7))) == "definition_conflict"
    assert after(line, define("two", expect_active=version_id(1))).active == 2


def test_a_fork_of_a_file_makes_the_file_the_first_version() -> None:
    file = agent("of the file", tools=["Read"])
    forked = fork("two", base_content=file["content"], root_tools=("Read",), tools=("Read",))
    line = after(EMPTY, forked)
    first, second = line.versions
    assert (first.is_bootstrapped, second.parent, line.active) == (True, version_id(1), 0)
    again = after(line, replace(forked, content=agent("three")["content"]))
    assert [version.is_bootstrapped for version in again.versions] == [True, False, False]


@pytest.mark.parametrize("generations", [1, 3])
def test_no_descendant_gets_a_tool_that_the_root_lacks(generations: int) -> None:
    line = after(EMPTY, define("one", **agent("one", tools=["Read"])))
    for number in range(1, generations):
        line = after(line, fork(f"{number}", number, tools=()))
    assert refused(line, fork("more", generations, tools=("Bash",))) == "tools_widened"
    assert after(line, fork("as much", generations, tools=("Read",)))


def test_an_author_grants_no_tool_that_it_lacks() -> None:
    assert refused(EMPTY, define("one", tools=("Bash",), ceiling=("Read", "Web*"))) == "tools_widened"
    assert after(EMPTY, define("one", tools=("WebFetch",), ceiling=("Read", "Web*")))


def test_old_contents_leave_the_state_and_a_promotion_brings_them_back() -> None:
    line = EMPTY
    for number in range(1, 12):
        line = after(line, define(f"{number:02}" * 3_500))  # an agent's prompt is in its content twice
    first = line.versions[0]
    assert not first.content
    assert line.versions[-1].content
    assert sum(len(version.content) for version in line.versions[:-1]) <= limits.KEPT_BYTES_MAX
    assert refused(line, promote(1)) == "content_needed"
    assert refused(line, promote(1, content=agent("other")["content"])) == "content_needed"
    content = agent("01" * 3_500)["content"]
    assert after(line, promote(1, content=content)).versions[0].content == content


def test_an_expired_version_is_retired_by_its_timer() -> None:
    line = after(EMPTY, define("one", expires_at_ms=5_000))
    assert next_timer_ms(line) == 5_000
    assert decide(line, TIMER_FIRED, At(4_999)) == []
    expired = after(line, TIMER_FIRED, at_ms=5_000)
    assert (expired.active, next_timer_ms(expired)) == (0, 0)


def test_a_deleted_line_can_be_made_again_and_keeps_its_numbers() -> None:
    line = after(EMPTY, define("one"), DeleteLine(envelope=ENVELOPE, kind="agent", name="helper"))
    assert refused(line, promote(1)) == "not_found"
    again = after(line, define("one"))
    assert (again.active, again.is_deleted, again.versions[0].is_retired) == (2, False, True)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (define("one", content=""), "missing_field"),
        (define("one", content="{"), "invalid_definition"),
        (define("one", content='{"nodel":"x"}'), "invalid_definition"),
        (define("one", content="x" * (limits.INLINE_BYTES_MAX + 1)), "too_large"),
        (define("one", content="", content_blob=BlobRef(sha256="../x", size_bytes=1)), "invalid_definition"),
        (define("one", description="x" * 8_193), "too_large"),
        (fork("one"), "missing_field"),
        (promote(1), "not_found"),
    ],
)
def test_what_a_sender_of_its_own_may_put_on_the_topic_is_refused(command: Any, reason: str) -> None:
    assert refused(EMPTY, command) == reason


def test_judgements_are_summed_up() -> None:
    line = after(EMPTY, define("one"))

    def judge(score: float, **fields: Any) -> SubmitJudgement:
        values = {"version": 1, "def_id": version_id(1), **fields}
        return SubmitJudgement(
            envelope=ENVELOPE, kind="agent", name="helper", eval_id="e", run_id="r", score=score,
            emitter_role="self", **values,
        )  # fmt: skip

    line = after(line, judge(0.5), judge(-1.0), judge(3.0, version=0))
    sums = line.versions[0].sums
    assert (sums.count, sums.total, sums.low, sums.high) == (2, -0.5, -1.0, 0.5)
    assert line.static_sums.count == 1
    assert refused(line, judge(float("nan"))) == "invalid_definition"
    (unknown,) = decide(line, judge(1.0, version=9), At(1))
    assert unknown.version == 0  # a run of another installation
    assert refused(line, judge(1.0, dimensions={f"{n}": 1.0 for n in range(65)})) == "too_many"
