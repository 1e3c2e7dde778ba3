import json
import sys

import pytest

from tests.benchmarks.slot import CLIENT, SlotFailed, combined, per_run, run_slot, shares

CLIENT_PROGRAM = """
import json, sys, time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
burn({before})
print("counting", flush=True)
burn({counted})
time.sleep({pause})
print("counted", flush=True)
share = int(sys.argv[1])
print(json.dumps({{"in_flight": share, "seconds": 1.0, "runs": 10, "runs_per_s": {rate}, "p50_ms": 1.0, "p99_ms": 1.0,
                   "errors": 1, "client_cpu_s": 0.0, "took_ms": [float(share)] * share}}), flush=True)
"""


def run(program: str, *, in_flight: int = 1, processes: int = 1, **meters):
    command = [sys.executable, "-c", program]
    return run_slot(
        command, {}, in_flight=in_flight, warm_up_s=0.0, seconds=0.0, processes=processes, groups={}, meters=meters
    )


def client(*, before: float = 0.0, counted: float = 0.0, pause: float = 0.0, rate: float = 100.0) -> str:
    return CLIENT_PROGRAM.format(before=before, counted=counted, pause=pause, rate=rate)


def test_what_was_used_before_counting_is_in_no_figure():
    # With 1,000 runs a second, CPU milliseconds a run are the cores that were busy: one, in the counted time.
    row = run(client(before=0.6, counted=0.1, rate=1_000.0))
    assert 0 < row["cpu_ms_per_run"][CLIENT] <= 1.2


def test_a_meter_is_read_where_counting_begins_and_where_it_ends():
    reads = iter((1_000.0, 1_500.0))
    row = run(client(pause=0.5, rate=20.0), log_bytes=lambda: next(reads))
    assert row["log_bytes_per_run"] == pytest.approx(50, rel=0.3)


def test_a_client_that_fails_says_how():
    with pytest.raises(SlotFailed, match="no broker here"):
        run("import sys; sys.exit('no broker here')")


def test_a_client_that_never_counted_has_failed():
    with pytest.raises(SlotFailed, match="0 of 1 counted"):
        run("print('{}')")


def test_a_client_of_several_processes_shares_the_runs_out_and_has_one_row():
    row = run(client(pause=0.5), in_flight=3, processes=2)
    assert (row["in_flight"], row["runs"], row["runs_per_s"], row["errors"]) == (3, 20, 200.0, 2)
    assert (row["p50_ms"], row["p99_ms"], row["processes"]) == (2.0, 2.0, 2)


def test_one_run_in_flight_needs_one_process():
    row = run(client(), in_flight=1, processes=2)
    assert row["in_flight"] == 1
    assert "processes" not in row


def test_shares_are_even_and_none_is_empty():
    assert shares(256, 2) == [128, 128]
    assert shares(5, 2) == [3, 2]
    assert shares(1, 4) == [1]


def test_percentiles_of_several_processes_are_those_of_all_runs_together():
    one = {"in_flight": 1, "seconds": 1.0, "runs": 1, "runs_per_s": 1.0, "errors": 0, "client_cpu_s": 0.0}
    row = combined([{**one, "took_ms": [1.0] * 99}, {**one, "took_ms": [500.0]}])
    assert (row["p50_ms"], row["p99_ms"]) == (1.0, 500.0)
    assert "took_ms" not in json.dumps(row)


def test_without_a_run_nothing_is_divided():
    actual = per_run({"cpu client": 1.0, "wal_bytes": 5.0}, 0)
    assert actual == {"cpu_ms_per_run": {"client": 0.0}, "wal_bytes_per_run": 0.0}


def test_seconds_of_cpu_become_milliseconds_a_run():
    assert per_run({"cpu kafka": 2.0}, 1_000)["cpu_ms_per_run"] == {"kafka": 2.0}
