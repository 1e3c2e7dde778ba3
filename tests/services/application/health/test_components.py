from types import SimpleNamespace

import pytest

from loomlog.redpanda.topics import TopicChange
from loomlog.services.application.health.components import (
    entity_check,
    insights_check,
    read_models_check,
    runs_check,
    topics_check,
    unsigned_check,
)
from loomlog.services.application.health.entity_status import EntityStatus
from loomlog.services.core.check import FAIL, OK, WARN
from tests.services.cli.log.test_projections import PROJECTOR, lag


def status(*quarantined: str, count: int = 0, **changes) -> EntityStatus:
    rows = [SimpleNamespace(aggregate=name, quarantine="offset 7: ZeroDivisionError") for name in quarantined]
    return EntityStatus(lag=lag(**changes), quarantined=count or len(rows), first_quarantined=rows)


@pytest.mark.parametrize(
    ("given", "state", "text", "remedy"),
    [
        (status(lag=0), OK, "none quarantined, rows up to date", ""),
        (status(), OK, "rows 7 records behind", ""),
        (status("counter:acme/x"), WARN, "1 aggregate quarantined", "counter:acme/x: offset 7: ZeroDivisionError"),
        (status("counter:acme/x", count=9), WARN, "9 aggregates quarantined", "and 8 more"),
        (status(projectors=[]), FAIL, "has not said anything ever", "Checkpoints wait for it"),
        (status(projectors=[PROJECTOR | {"said_s_ago": 60.0}]), FAIL, "anything for 1 min 00 s", "See its log"),
        (status(projectors=[PROJECTOR | {"lag_ms": 20_000}]), WARN, "7 records and 20.0 s behind", "Checkpoints wait"),
        (status(lag=0, projectors=[PROJECTOR | {"lag_ms": 20_000}]), OK, "up to date", ""),
        (status(problems=2), WARN, "2 records could not be projected", "loomlog replay"),
    ],
)
def test_what_the_rows_and_their_projector_say(given, state, text, remedy):
    check = entity_check(given)
    assert (check.name, check.state) == ("entities", state)
    assert text in check.text
    assert remedy in check.remedy
    assert bool(check.remedy) == (state != OK)


def change(kind: str) -> TopicChange:
    return TopicChange(kind=kind, topic="loom.run.events", text="retention.ms 1 -> -1", settings={})


@pytest.mark.parametrize(
    ("kinds", "state", "text", "remedy"),
    [
        ([], OK, "as they should be, at k:1", ""),
        (["ignored"], OK, "as they should be, at k:1", ""),
        (["alter"], FAIL, "1 difference", "loomlog topics apply"),
        (["alter", "refuse"], FAIL, "not as they should be", "loom.run.events: retention.ms"),
    ],
)
def test_topics_are_compared_with_what_they_should_be(kinds, state, text, remedy):
    check = topics_check([change(kind) for kind in kinds], "k:1")
    assert (check.state, check.text) == (state, text)
    assert remedy in check.remedy


def test_read_models_are_behind_or_silent():
    assert read_models_check(lag(lag=0)).text == "up to date"
    assert read_models_check(lag(lag=7)).text == "7 records behind"
    assert read_models_check(lag(projectors=[])).state == FAIL
    assert read_models_check(lag(problems=2)).state == WARN


def test_records_may_wait_some_periods_for_their_signature():
    assert unsigned_check(13.0, 1.0, "") is None
    late = unsigned_check(75.0, 1.0, "/logs")
    assert late is not None
    assert (late.state, "1 min 15 s" in late.text, "in /logs" in late.remedy) == (FAIL, True, True)


def test_insights_answers_is_away_or_off():
    assert insights_check("http://i", lag_records=3).text == "http://i, 3 records behind"
    assert insights_check("http://i", error="no answer").state == WARN
    assert insights_check("").text == "switched off"


def test_quarantined_runs_are_named_and_so_health_is_not_well():
    runs = [SimpleNamespace(run_id=f"r_{number}", quarantine_error="a gap") for number in range(2)]
    check = runs_check(runs, is_whole=True)
    assert (check.state, check.text) == (WARN, "2 runs quarantined")
    assert "r_1: a gap" in check.remedy
    assert runs_check(runs, is_whole=False).text == "2 runs and more quarantined"
    assert runs_check([], is_whole=True).state == OK
