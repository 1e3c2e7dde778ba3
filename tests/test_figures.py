from tests.figures import group, projections, sections, simulation


def test_a_section_that_was_not_measured_says_so(tmp_path):
    text = sections(tmp_path)
    assert text.count("Not measured.") == 4


def test_a_seed_that_broke_something_is_named():
    figures = {
        "first": 0, "seeds": 100, "seconds": 1.0, "processes": 2, "broken_seed": 17, "machine": {"python_ms": 9.0},
    }  # fmt: skip
    assert "**seed 17 is broken**" in simulation(figures)
    assert "50 seeds a second and process (goal 100: **missed**)" in simulation(figures | {"broken_seed": None})
    assert "100 seeds a second and process (goal 100: met)" in simulation(figures | {"processes": 1})


def test_rows_that_differ_are_shouted():
    one = {"events": 10, "seconds": 2.0, "events_per_s": 5.0, "equal": False}
    lag = {"runs_per_s": 100.0, "records": 5, "p50_ms": 1.0, "p99_ms": 2.0, "max_ms": 3.0}
    text = projections({"rebuild": one, "lost": one | {"equal": True}, "lag": lag})
    assert text.count("**ROWS DIFFER**") == 1
    assert text.count("rows equal") == 1


def test_what_went_wrong_while_the_group_took_over_is_shouted():
    counts = {"strikes": {"runtime": 12}, "runs": 675, "lost": 0, "doubled": 0, "stuck": 0}
    found = {"count": 24, "p50": 3020, "p99": 3484, "max": 3484}
    figures = {
        "session_s": 3.0,
        "counts": counts,
        "claimed_ms": {"group": {"count": 0}},
        "taken_over_ms": {"group": found},
        "violations_in_all": 0,
    }
    text = group(figures)
    assert "killed 12 times under 675 runs" in text
    assert "**p99 3,484 ms**" in text
    assert "claimed again: no figure" in text
    assert "Nothing was lost" in text
    assert "**2 violations**" in group(figures | {"counts": counts | {"stuck": 2}})
