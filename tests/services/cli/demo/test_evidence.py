"""What a demo must show before it ends with 0."""

from dataclasses import replace

import pytest

from loomlog.services.cli.demo.evidence import DemoEvidence, _read_keys

WELL = DemoEvidence(
    run_id="r_1",
    status="completed",
    events=50,
    calls=12,
    lines=12,
    distinct_lines=12,
    takeover_ms=150,
    drift=(),
    comparison_skipped="",
)


def test_a_run_that_went_on_with_every_effect_once_is_well() -> None:
    assert WELL.problems(12) == []
    assert WELL.replay_text == "hash chain intact, replay equal to the read models"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"status": "failed"}, "The run is failed, expected completed."),
        ({"takeover_ms": None}, "No other owner went on with the run"),
        ({"calls": 11, "lines": 11, "distinct_lines": 11}, "The log has the results of 11 tool calls, expected 12."),
        ({"lines": 13}, "The ledger has 13 lines, 12 of them different, for 12 calls"),
        ({"lines": 11, "distinct_lines": 11}, "an effect is missing or happened twice"),
        ({"drift": ("seq 4 follows 2",)}, "Replay: seq 4 follows 2"),
        ({"comparison_skipped": "no tables"}, "The replay could not be compared: no tables"),
    ],
)
def test_each_part_that_does_not_hold_is_a_sentence(changes, expected) -> None:
    [problem] = replace(WELL, **changes).problems(12)
    assert expected in problem


def test_the_lines_of_other_runs_are_not_counted(tmp_path) -> None:
    ledger = tmp_path / "ledger.txt"
    assert _read_keys(ledger, "r_1") == []
    ledger.write_text("r_1:1.0 r_1\nr_2:1.0 r_2\nr_1:1.0 r_1\n")
    assert _read_keys(ledger, "r_1") == ["r_1:1.0", "r_1:1.0"]
