from collections.abc import Callable
from dataclasses import replace

import pytest

from loomlog.schemas.generated.run_commands import CancelRun
from loomlog.schemas.generated.run_events import ModelCallFailed, RunCancelled, RunFailed, RunQuarantined, RunRefused
from loomlog.schemas.generated.stream_records import DeadLetter
from loomlog.schemas.generated.values import CommandEnvelope, ToolCall
from loomlog.schemas.records import Record as Avro
from tests.chaos.checker import REFUSED_IN_S, check
from tests.chaos.evidence import Probe, Promise, Record, Row, Sighting, Strike
from tests.chaos.history import Story, accepted
from tests.chaos.story_book import (
    CALL,
    CODEC,
    RUN,
    USAGE,
    Log,
    asked,
    begin,
    completed,
    good,
    replied,
    returned,
    row,
    shrinking,
    shrunk,
    to_its_end,
    tool,
    turns,
    until_the_call,
)

INTERRUPTED = ModelCallFailed(turn=2, attempt=1, kind="interrupted", message="lost", provider="mock", model="m")


def kinds(log: Log) -> set[str]:
    return {violation.kind for violation in check(log.evidence()).violations}


def says(log: Log, kind: str, words: str) -> bool:
    return any(kind == violation.kind and words in violation.text for violation in check(log.evidence()).violations)


def live_row(log: Log) -> Row:
    """Of a run in its first turn, whose call is under way."""
    spent = {"iterations": 1, "input_tokens": USAGE.input_tokens, "output_tokens": USAGE.output_tokens}
    return row(log, status="running", stop_reason="", **spent)


def spoilt(log: Log, offset: int) -> None:
    """Take a record of the events away, as if the broker had lost it."""
    log.events[offset:] = [replace(r, offset=r.offset - 1) for r in log.events[offset + 1 :]]


def test_a_good_history_has_no_violations() -> None:
    verdict = check(good().evidence())
    assert verdict.violations == ()
    figures = verdict.figures
    assert (figures.runs, figures.events, figures.claims, figures.effects) == (1, 8, {"assigned": 1}, 1)
    assert (figures.lost, figures.doubled, figures.stale, figures.unknown_outcomes) == (0, 0, 0, 0)


def test_what_a_zombie_appended_is_stale_and_nothing_else() -> None:
    log = Log()
    until_the_call(log)
    old = log.term
    log.claim("runtime-2")
    log.event(returned(), keep=False, term=old)
    to_its_end(log, outcome="outcome_unknown")
    verdict = check(log.evidence())
    assert verdict.violations == ()
    assert (verdict.figures.stale, verdict.figures.claims) == (1, {"assigned": 2})


def test_a_model_call_that_was_lost_is_made_again_and_counted() -> None:
    log = Log()
    until_the_call(log)
    log.effects.append(f"{RUN}:1.0 {RUN}")
    for event in (returned(), asked(2), INTERRUPTED, asked(2, attempt=2), replied(2, attempt=2), completed()):
        log.event(event)
    log.rows[RUN] = row(log, model_errors=1)
    verdict = check(log.evidence())
    assert verdict.violations == ()
    assert verdict.figures.interrupted_model_calls == 1


@pytest.mark.parametrize("lines", [0, 1])
def test_an_unknown_outcome_may_have_its_effect_or_not(lines: int) -> None:
    log = Log()
    until_the_call(log)
    to_its_end(log, outcome="outcome_unknown")
    log.effects = log.effects[:lines]
    verdict = check(log.evidence())
    assert verdict.violations == ()
    assert (verdict.figures.unknown_outcomes, verdict.figures.unknown_with_effect) == (1, lines)


def test_a_call_that_may_be_repeated_may_have_its_effect_twice() -> None:
    log = Log()
    log.claim()
    log.order()
    begin(log)
    log.event(replied(1, CALL))
    log.event(tool(effect_class="idempotent"))
    log.event(tool(attempt=2, effect_class="idempotent"))
    to_its_end(log, attempt=2)
    log.effects *= 2
    verdict = check(log.evidence())
    assert verdict.violations == ()
    assert verdict.figures.repeated_tool_calls == 1


def test_the_same_order_twice_in_the_log_is_one_run() -> None:
    log = good()
    log.order(command_id="another")
    verdict = check(log.evidence())
    assert verdict.violations == ()
    assert verdict.figures.repeated_commands == 1


def test_a_gap_in_the_seq_is_found() -> None:
    log = good()
    spoilt(log, 3)
    assert {"gap", "chain"} <= kinds(log)


def test_a_missing_offset_is_found() -> None:
    log = good()
    del log.events[3]
    assert says(log, "gap", "events/0 offset 4: expected offset 3")


def test_an_event_that_is_there_twice_is_found() -> None:
    log = Log()
    until_the_call(log)
    log.event(tool(), keep=False, seq=4)
    to_its_end(log)
    assert "doubled" in kinds(log)


def test_two_accepted_histories_are_found() -> None:
    log = Log()
    until_the_call(log)
    log.event(returned(outcome="error"), keep=False)
    to_its_end(log)
    assert {"doubled", "chain"} <= kinds(log)


def test_a_run_in_two_partitions_is_found() -> None:
    log, other = good(), Log()
    other.claim()
    other.order()
    begin(other)
    evidence = replace(log.evidence(), events={0: log.events, 1: other.events})
    assert "two histories" in {violation.kind for violation in check(evidence).violations}


def test_a_broken_hash_chain_is_found() -> None:
    log = Log()
    until_the_call(log)
    log.event(returned(), prev=b"x" * 16)
    assert "chain" in kinds(log)


def test_a_term_that_nobody_claimed_is_found() -> None:
    log = good()
    log.event(completed(), term=99)
    assert kinds(log) == {"illegal writer"}


def test_a_term_that_is_claimed_only_later_is_found() -> None:
    log = good()
    log.event(completed(), term=len(log.events) + 1)
    log.claim()
    assert "illegal writer" in kinds(log)


@pytest.mark.parametrize(
    ("spoil", "kind", "words"),
    [
        (lambda log: log.event(asked(2)), "order", "asks for turn 2 while calls [(1, 0)] are open"),
        (lambda log: log.event(replied(1, CALL)), "doubled", "answers turn and attempt (1, 1), which is not open"),
        (lambda log: log.event(returned(attempt=2)), "order", "answers attempt 2, 1 is open"),
        (lambda log: log.event(returned(turn=2)), "order", "names the call 2.0, which no answer of a model asked for"),
        (lambda log: log.event(tool(attempt=2)), "doubled", "repeats a call that must not be repeated"),
        (lambda log: log.event(tool(attempt=3)), "order", "is attempt 3, expected 2"),
        (lambda log: log.event(completed()), "order", "ends the run with calls [(1, 0)] open"),
        (lambda log: begin(log), "doubled", "starts the run again"),
        (lambda log: log.event(RunQuarantined(error="bug", record_topic="t", record_offset=1)), "quarantined", "bug"),
    ],
)
def test_an_event_in_the_middle_of_a_tool_call_is_found(spoil: Callable[[Log], None], kind: str, words: str) -> None:
    log = Log()
    until_the_call(log)
    spoil(log)
    to_its_end(log)
    assert says(log, kind, words)


@pytest.mark.parametrize(
    ("events", "kind", "words"),
    [
        ((asked(2),), "order", "asks for turn 2 while turn 1 is open"),
        ((completed(),), "order", "ends the run with turn 1 open"),
        ((replied(1, attempt=2),), "order", "answers (1, 2), but (1, 1) is open"),
        ((replied(1), asked(3)), "order", "asks for turn and attempt (3, 1), expected (2, 1)"),
        ((replied(1), asked(2, attempt=2)), "order", "asks for turn and attempt (2, 2), expected (2, 1)"),
        ((replied(1, CALL), returned()), "order", "answers a call that was never asked for"),
        ((replied(1, CALL), tool(), returned(), tool()), "doubled", "asks again for a call that was answered"),
        ((replied(1, CALL), tool(), returned(), asked(2), tool()), "order", "names a call of turn 1 in turn 2"),
    ],
)
def test_an_order_that_no_run_may_have_is_found(events: tuple[Avro, ...], kind: str, words: str) -> None:
    log = Log()
    log.claim()
    log.order()
    begin(log)
    for event in events:
        log.event(event)
    assert says(log, kind, words)


@pytest.mark.parametrize(
    ("events", "kind", "words"),
    [
        ((shrinking(1), asked(2)), "order", "asks for turn 2 while compaction 1 is open"),
        ((shrinking(1), completed()), "order", "ends the run with compaction 1 open"),
        ((shrinking(2),), "order", "asks for compaction and attempt (2, 1) before turn 2, expected (1, 1)"),
        ((shrinking(1), shrinking(2)), "order", "expected (1, 2) before turn 2"),
        ((shrunk(1),), "doubled", "ends compaction 1, which is not open"),
        ((shrinking(1), shrunk(1, attempt=2)), "order", "ends compaction and attempt (1, 2), but (1, 1) is open"),
        ((shrinking(1), shrunk(1), shrunk(1)), "doubled", "ends compaction 1, which is not open"),
    ],
)
def test_a_compaction_that_no_run_may_have_is_found(events: tuple[Avro, ...], kind: str, words: str) -> None:
    log = Log()
    log.claim()
    log.order()
    begin(log)
    log.event(replied(1))
    for event in events:
        log.event(event)
    assert says(log, kind, words)


def test_a_compaction_of_two_attempts_between_turns_is_left_in_peace() -> None:
    log = Log()
    log.claim()
    log.order()
    begin(log)
    for event in (replied(1, CALL), tool(), returned(), shrinking(1), shrinking(1, attempt=2), shrunk(1, attempt=2)):
        log.event(event)
    for last in (asked(2), replied(2), completed()):
        log.event(last)
    assert not kinds(log) & {"order", "doubled", "gap"}


def test_an_event_before_the_start_of_its_run_is_found() -> None:
    log = good()
    log.event(asked(1), run_id="r_two", key=b"two")
    assert says(log, "order", "comes before RunStarted")


def test_an_event_the_checker_does_not_know_is_found() -> None:
    story = Story("r_one")
    story.follow(replace(accepted(0, good().events).events[0], name="RunTeleported"))
    assert [violation.text.rpartition(" is ")[2] for violation in story.violations][-1] == (
        "an event the checker does not know"
    )


def test_a_second_answer_to_a_tool_call_is_found() -> None:
    log = Log()
    until_the_call(log)
    log.event(returned())
    to_its_end(log)
    assert "doubled" in kinds(log)


def test_a_second_answer_of_a_model_is_found() -> None:
    log = Log()
    until_the_call(log)
    log.effects.append(f"{RUN}:1.0 {RUN}")
    for event in (returned(), asked(2), replied(2), replied(2), completed()):
        log.event(event)
    assert "doubled" in kinds(log)


def test_an_event_after_the_end_is_found() -> None:
    log = good()
    log.event(asked(3))
    assert "order" in kinds(log)


def test_a_start_without_a_run_is_lost() -> None:
    log = good()
    log.order("r_two", key=b"two", command_id="k2")
    verdict = check(log.evidence())
    assert {violation.kind for violation in verdict.violations} == {"lost"}
    assert verdict.figures.lost == 1


def test_an_acknowledged_start_that_is_not_in_the_log_is_lost() -> None:
    log = good()
    log.promises.append(Promise(sender="topic", name="k9", partition=0, offset=7))
    assert kinds(log) == {"lost"}


def test_a_run_the_api_accepted_that_is_not_in_the_log_is_lost() -> None:
    log = good()
    log.promises.append(Promise(sender="http", name="key", run_id="r_gone"))
    assert kinds(log) == {"lost"}


def test_one_key_with_two_runs_is_found() -> None:
    log = good()
    log.order("r_two", key=b"two", command_id="k2")
    begin(log, cause=1, run_id="r_two", key=b"two")
    log.promises += [Promise(sender="http", name="key", run_id=name) for name in (RUN, "r_two")]
    assert "doubled" in kinds(log)


def test_two_runs_for_one_start_are_found() -> None:
    log = good()
    log.order(command_id="again")
    begin(log, cause=1, run_id="r_two")
    assert says(log, "doubled", f"{RUN}: StartRun at [(0, 0), (0, 1)] has 2 runs: {RUN} at")


def test_a_start_that_began_another_run_than_it_names_is_found() -> None:
    log = good()
    log.order("r_two", key=b"two", command_id="k2")
    begin(log, cause=1, run_id="r_three", key=b"two")
    assert says(log, "doubled", "r_two: its StartRun began r_three")


def test_a_start_that_names_no_run_is_told_by_its_command() -> None:
    log = good()
    for command_id, run_id in (("k2", "r_two"), ("k3", "r_three")):
        begin(log, cause=log.order("", key=b"two", command_id=command_id), run_id=run_id, key=b"two")
    assert kinds(log) == {"unfinished", "row"}
    log.order("", key=b"two", command_id="k4")
    assert says(log, "lost", "k4: StartRun at [(0, 3)] has no run")


def test_a_run_that_nobody_asked_for_is_found() -> None:
    log = good()
    begin(log, cause=5, run_id="r_two", key=b"two")
    assert "out of nothing" in kinds(log)


def test_a_run_without_an_end_is_found() -> None:
    log = Log()
    until_the_call(log)
    log.rows[RUN] = live_row(log)
    verdict = check(log.evidence())
    assert [violation.kind for violation in verdict.violations] == ["unfinished"]
    assert "calls [(1, 0)] open" in verdict.violations[0].text
    assert verdict.figures.lost == 1


def test_a_run_that_failed_or_was_refused_is_found() -> None:
    log = Log()
    until_the_call(log)
    log.event(RunFailed(code="model_error", error="no", iterations=1, usage=turns(1)))
    log.rows[RUN] = replace(live_row(log), status="failed", error_code="model_error")
    log.order("r_two", key=b"two", command_id="k2")
    log.event(RunRefused(code="backpressure", message="later"), run_id="r_two", key=b"two", cause_offset=1)
    assert kinds(log) == {"not completed"}
    assert says(log, "not completed", f"{RUN}: failed: no")
    assert says(log, "not completed", "r_two: refused: backpressure: later")


def test_a_run_may_be_cancelled_only_when_somebody_asked_for_that() -> None:
    log = Log()
    until_the_call(log)
    log.event(RunCancelled(reason="enough", iterations=1, usage=turns(1)))
    log.rows[RUN] = replace(live_row(log), status="cancelled", stop_reason="enough")
    assert says(log, "not completed", f"{RUN}: cancelled: enough")
    command = CancelRun(envelope=CommandEnvelope(command_id="k2"), run_id=RUN)
    log.commands.append(Record(partition=0, offset=1, key=b"one", value=CODEC.encode(command)))
    verdict = check(log.evidence())
    assert verdict.violations == ()
    assert verdict.figures.cancelled == 1


def test_an_unsafe_effect_that_happened_twice_is_found() -> None:
    log = good()
    log.effects *= 2
    verdict = check(log.evidence())
    assert [violation.kind for violation in verdict.violations] == ["doubled effect"]
    assert verdict.figures.doubled == 1


def test_an_unknown_outcome_whose_effect_happened_twice_is_found() -> None:
    log = Log()
    until_the_call(log)
    to_its_end(log, outcome="outcome_unknown")
    log.effects *= 2
    assert kinds(log) == {"doubled effect"}


def test_an_effect_that_was_reported_and_never_happened_is_found() -> None:
    log = good()
    log.effects.clear()
    assert kinds(log) == {"lost effect"}


def test_an_effect_without_an_intent_is_found() -> None:
    log = good()
    log.effects.append("r_two:1.0 r_two")
    assert kinds(log) == {"effect without intent"}


def test_a_dead_letter_is_found() -> None:
    log = good()
    letter = DeadLetter(
        topic="loom.run.commands",
        partition=0,
        offset=3,
        timestamp_ms=0,
        service="runtime",
        kind="refused",
        error="e",
        at_ms=0,
    )
    log.dead_letters.append(Record(partition=0, offset=0, key=b"k", value=CODEC.encode(letter)))
    assert kinds(log) == {"dead letter"}
    log.dead_letters.append(Record(partition=0, offset=1, key=b"k", value=b"torn"))
    assert kinds(log) == {"dead letter", "unreadable"}


@pytest.mark.parametrize("value", [None, b"", b"\0\0\0\0\x63", b"not ours", b"\0\0\0\0\x11\x02"])
def test_bytes_that_are_no_record_are_found(value: bytes | None) -> None:
    log = good()
    log.events.append(Record(partition=0, offset=len(log.events), key=b"k", value=value))
    assert kinds(log) == {"unreadable"}
    log = good()
    log.commands.append(Record(partition=0, offset=1, key=b"k", value=value))
    assert kinds(log) == {"unreadable"}


def seen(log: Log, claim: int, *, went_on_s: float) -> tuple[Sighting, ...]:
    """What was there before that Claim, the Claim a second after 10.0, and the rest."""
    return (
        Sighting(partition=0, first=0, last=claim - 1, at_s=9.9),
        Sighting(partition=0, first=claim, last=claim, at_s=11.0),
        Sighting(partition=0, first=claim + 1, last=len(log.events) - 1, at_s=went_on_s),
    )


def test_a_take_over_is_measured_to_the_first_event_of_the_next_owner() -> None:
    log = Log()
    until_the_call(log)
    claim = log.claim("runtime-2")
    to_its_end(log, outcome="outcome_unknown")
    evidence = replace(
        log.evidence(),
        strikes=(
            Strike(target="runtime", process="runtime-1", at_s=10.0, back_s=12.0),
            Strike(target="zombie", process="runtime-2", at_s=12.0, back_s=13.0),
        ),
        sightings=seen(log, claim, went_on_s=11.5),
    )
    figures = check(evidence).figures
    assert figures.pauses_ms == {"runtime": (1500.0,)}
    assert figures.back_ms == {"runtime": (2000.0,), "zombie": (1000.0,)}
    assert figures.strikes == {"runtime": 1, "zombie": 1}
    assert figures.claims_ms == {"runtime": (1000.0,)}
    assert figures.claimed_by_ms == {"group": (1000.0,)}
    assert figures.went_on_by_ms == {"group": (1500.0,)}


@pytest.mark.parametrize("live", ["a run that waits", "no run"])
def test_how_long_a_take_over_took_is_not_measured_by_an_event_that_was_not_due(live: str) -> None:
    log = Log()
    until_the_call(log)
    if live == "no run":
        to_its_end(log)
    else:
        log.event(returned())  # and the next turn comes only later
    claim = log.claim("runtime-2")
    if live == "no run":
        begin(log, cause=log.order("r_other", command_id="k2"), run_id="r_other")
    else:
        log.event(asked(2))
    evidence = replace(
        log.evidence(),
        strikes=(Strike(target="runtime", process="runtime-1", at_s=10.0, back_s=12.0),),
        sightings=seen(log, claim, went_on_s=19.0),
    )
    figures = check(evidence).figures
    assert figures.claimed_by_ms == {"group": (1000.0,)}
    assert figures.pauses_ms == {"runtime": (9000.0,)}
    assert figures.went_on_by_ms == {}


@pytest.mark.parametrize(("at_s", "back_s"), [(9.0, 10.1), (11.4, 13.0), (10.2, 10.3)])
def test_a_pause_into_which_another_strike_fell_is_no_figure(at_s: float, back_s: float) -> None:
    log = Log()
    until_the_call(log)
    log.claim("runtime-2")
    to_its_end(log, outcome="outcome_unknown")
    place = log.term
    evidence = replace(
        log.evidence(),
        strikes=(
            Strike(target="runtime", process="runtime-1", at_s=10.0, back_s=12.0),
            Strike(target="api", process="api", at_s=at_s, back_s=back_s),
        ),
        sightings=(
            Sighting(partition=0, first=0, last=place - 1, at_s=8.0),
            Sighting(partition=0, first=place, last=len(log.events) - 1, at_s=11.5),
        ),
    )
    assert "runtime" not in check(evidence).figures.pauses_ms


def test_a_call_over_http_is_counted_unless_it_only_reads() -> None:
    for effect_class, lines, actual in (("unsafe", 2, {"doubled effect"}), ("unsafe", 0, {"lost effect"})):
        log = Log()
        log.claim()
        log.order()
        begin(log)
        log.event(replied(1, ToolCall(id="c1", name="HTTP", input="{}")))
        log.event(tool(effect_class=effect_class))
        to_its_end(log)
        log.effects = log.effects[:1] * lines
        assert kinds(log) == actual
    log = Log()
    log.claim()
    log.order()
    begin(log)
    log.event(replied(1, ToolCall(id="c1", name="HTTP", input="{}")))
    log.event(tool(effect_class="read"))
    to_its_end(log)
    log.effects.clear()
    verdict = check(log.evidence())
    assert verdict.violations == ()
    assert (verdict.figures.effects, verdict.figures.recorded_effects) == (0, 0)


@pytest.mark.parametrize(
    ("probe", "found"),
    [
        (Probe(status=503, code="log_unavailable", took_s=5.2), set()),
        (Probe(status=503, code="log_unavailable", took_s=REFUSED_IN_S + 0.1), {"unclear"}),
        (Probe(status=503, code="overloaded", took_s=1.0), {"unclear"}),
        (Probe(status=500, code="log_unavailable", took_s=1.0), {"unclear"}),
        (Probe(status=0, code="ReadTimeout", took_s=30.0), {"unclear"}),
    ],
)
def test_a_write_without_a_quorum_has_to_be_refused_clearly_and_soon(probe: Probe, found: set[str]) -> None:
    verdict = check(replace(good().evidence(), probes=(probe,)))
    assert {violation.kind for violation in verdict.violations} == found
    assert verdict.figures.refusals_ms == (probe.took_s * 1000,)
