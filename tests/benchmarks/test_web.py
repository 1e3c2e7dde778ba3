"""What `make bench-web` says of frames, tokens and long runs, without a browser."""

from pathlib import Path

import pytest

from loomlog.connectors.configuration.load import load
from tests.benchmarks.web_page import SCREEN_MS, frames_of, spread_of
from tests.benchmarks.web_token import TOKEN, Reader, compared
from tests.benchmarks.web_workload import (
    AUTHOR,
    EVENTS_A_TURN,
    KEY_ENV,
    TURNS_MAX,
    configuration,
    long_script,
    token_text,
)
from tests.benchmarks.workload import ENVIRONMENT


def test_the_stack_has_the_agents_of_all_parts(tmp_path: Path) -> None:
    (tmp_path / "loomlog.yaml").write_text(configuration(1234))
    environ = {
        **ENVIRONMENT,
        KEY_ENV: "a-key-of-the-bench",
        "LOOMLOG_HOME": str(tmp_path),
        "LOOMLOG_CONFIG_FILES": str(tmp_path / "loomlog.yaml"),
    }
    assert {AUTHOR, "bench"} <= set(load(environ, working_directory=tmp_path).configuration.agents)


@pytest.mark.parametrize("events", [1, EVENTS_A_TURN, EVENTS_A_TURN + 1, 5_000])
def test_a_long_run_has_at_least_as_many_events_as_asked_for(events: int) -> None:
    steps = long_script(events)
    assert events <= EVENTS_A_TURN * (len(steps) - 1) < events + EVENTS_A_TURN
    assert not steps[-1].calls, "the last answer ends the run"
    assert len(steps) <= TURNS_MAX


def test_frames_that_the_screen_missed_are_counted() -> None:
    on_time = [number * SCREEN_MS for number in range(61)]
    assert frames_of(on_time) == {"frames_per_s": 60.0, "p50_ms": 16.7, "p95_ms": 16.7, "missed_percent": 0.0}
    late = [*on_time, on_time[-1] + 2 * SCREEN_MS]
    assert frames_of(late)["missed_percent"] == pytest.approx(100 / 61, abs=0.1)
    assert frames_of([5.0])["missed_percent"] == 100.0, "no frame at all is not smooth"


def test_tokens_are_found_by_their_numbers() -> None:
    text = "".join(map(token_text, (7, 8, 123)))
    assert [int(number) for number in TOKEN.findall(text)] == [7, 8, 123]


def test_a_piece_is_compared_by_its_last_token_and_only_if_the_page_showed_it() -> None:
    reader = Reader.__new__(Reader)
    reader.at_s = {1: 10.0, 2: 10.0, 3: 10.05, 4: 10.1}
    reader.pieces = [2, 3, 4]
    figures = compared(reader, {1: 10_030.0, 2: 10_030.0, 3: 10_060.0}, {1: 9.98, 2: 9.99, 3: 10.0, 4: 10.1, 5: 11.0})
    assert figures["pieces"] == 2
    assert figures["client_to_page_ms"] == {"p50": 30.0, "p95": 30.0, "max": 30.0}
    assert figures["between_pieces_ms"]["p50"] == 50.0
    assert figures["model_to_client_ms"]["max"] == 50.0


def test_a_spread_of_nothing_is_nothing() -> None:
    assert spread_of([]) == {"p50": 0.0, "p95": 0.0, "max": 0.0}
