import sys

import pytest

from tests.benchmarks.slot import CLIENT, SlotFailed, per_run, run_slot

CLIENT_PROGRAM = """
import json, time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
burn({before})
print("counting", flush=True)
burn({counted})
print("counted", flush=True)
print(json.dumps({{"runs": 10, "runs_per_s": 1.0}}), flush=True)
"""


def run(program: str, **meters):
    return run_slot([sys.executable, "-c", program], {}, groups={}, meters=meters, timeout_s=10)


def test_what_was_used_before_counting_is_in_no_figure():
    row = run(CLIENT_PROGRAM.format(before=0.5, counted=0.1))
    assert 5 <= row["cpu_ms_per_run"][CLIENT] < 40


def test_a_meter_is_read_where_counting_begins_and_where_it_ends():
    reads = iter((1_000.0, 1_500.0))
    row = run(CLIENT_PROGRAM.format(before=0, counted=0), log_bytes=lambda: next(reads))
    assert row["log_bytes_per_run"] == 50


def test_a_client_that_fails_says_how():
    with pytest.raises(SlotFailed, match="no broker here"):
        run("import sys; sys.exit('no broker here')")


def test_a_client_that_never_counted_has_failed():
    with pytest.raises(SlotFailed, match="ended with 0"):
        run("print('{}')")


def test_without_a_run_nothing_is_divided():
    assert per_run({"cpu client": 1.0, "wal_bytes": 5.0}, 0) == {
        "cpu_ms_per_run": {"client": 0.0},
        "wal_bytes_per_run": 0.0,
    }


def test_seconds_of_cpu_become_milliseconds_a_run():
    assert per_run({"cpu kafka": 2.0}, 1_000)["cpu_ms_per_run"] == {"kafka": 2.0}
