"""Curves are measured one by one: what one does is nothing to the others."""

import json
from pathlib import Path

import pytest

from tests.benchmarks import scaling
from tests.benchmarks.curves import FULL, SMALL, Row, Sizes
from tests.benchmarks.scaling import CURVES, chosen, measure_all


@pytest.fixture(autouse=True)
def _a_machine_nobody_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "machine", lambda folder: {"cores": 2})


def fine(sizes: Sizes) -> list[Row]:
    return [{"seconds": sizes.seconds}]


def broken(sizes: Sizes) -> list[Row]:
    raise ValueError(f"nothing after {sizes.seconds} s")


def refused(sizes: Sizes) -> list[Row]:
    raise SystemExit("loomlog up ended with 1")


def stopped(sizes: Sizes) -> list[Row]:
    raise SystemExit(143)


def test_a_curve_that_fails_is_named_and_the_others_are_kept(tmp_path: Path) -> None:
    failed = measure_all({"one": broken, "two": fine, "three": refused, "four": fine}, SMALL, tmp_path)
    assert failed == ["one", "three"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scaling-four.json", "scaling-two.json"]
    report = json.loads((tmp_path / "scaling-two.json").read_text())
    assert report["rows"] == [{"seconds": SMALL.seconds}]


def test_the_figures_a_failed_curve_had_before_stay(tmp_path: Path) -> None:
    measure_all({"one": fine}, SMALL, tmp_path)
    before = (tmp_path / "scaling-one.json").read_text()
    measure_all({"one": broken}, FULL, tmp_path)
    assert (tmp_path / "scaling-one.json").read_text() == before


def test_who_is_told_to_stop_measures_nothing_more(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        measure_all({"one": stopped, "two": fine}, SMALL, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_curve_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(SystemExit, match="widths"):
        chosen("live,widths")
    assert list(chosen("live,parked")) == ["live", "parked"]


@pytest.mark.parametrize("name", CURVES)
def test_every_curve_is_told_in_the_help(name: str) -> None:
    assert f"\n    {name} " in (scaling.__doc__ or "")
