"""Pages and pictures of what was measured are what the figures in docs/figures give, to the byte."""

import json
import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests import figures as reliability
from tests.benchmarks import scale_page
from tests.benchmarks.cluster_text import UNKNOWN
from tests.benchmarks.curve_texts import SHOWN
from tests.benchmarks.peers.page import page as peers_page
from tests.benchmarks.plots import PICTURES, draw
from tests.benchmarks.scaling import CURVES

DOCS = scale_page.DOCS
FIGURES = scale_page.FIGURES


def measured(name: str) -> Any:
    return json.loads((FIGURES / f"{name}.json").read_text())


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("SCALE.md", lambda: scale_page.page(scale_page.read(FIGURES))),
        ("BENCHMARKS.md", lambda: peers_page(measured("peers"), measured("smoke"))),
        ("RELIABILITY.md", lambda: reliability.page(measured("chaos"), reliability.sections(FIGURES))),
    ],
)
def test_a_page_is_what_its_figures_give(name: str, page: Any) -> None:
    assert page() == (DOCS / name).read_text()


def test_a_picture_is_what_its_figures_give(tmp_path: Path) -> None:
    assert set(CURVES) <= set(PICTURES) == set(SHOWN)
    for source in FIGURES.glob("scaling-*.json"):
        shutil.copy(source, tmp_path)
    pictures = draw(tmp_path)
    assert len(pictures) == len(PICTURES)
    for picture in pictures:
        assert picture.read_text() == (FIGURES / picture.name).read_text()


def test_a_page_of_nothing_says_of_every_curve_how_to_measure_it() -> None:
    text = scale_page.page({})
    assert text.count("Not measured: `python -m tests.benchmarks.scaling --curves") == len(PICTURES)
    assert "Not measured: `make flame`." in text
    assert "](figures/" not in text, "no picture that is not there"
    assert f"| brokers | {UNKNOWN} | {UNKNOWN} |" in text


def test_what_breaks_first_and_what_ended_early_follow_the_figures() -> None:
    figures = deepcopy(scale_page.read(FIGURES))
    for row in figures["peers"]["rows"]:
        row["wal_bytes_per_run"] = 5_000_000.0
    figures["scaling-streams"]["rows"][-1]["ended_early"] = 7
    text = scale_page.page(figures)
    assert "1. **one Postgres, by the write-ahead log of its projections**" in text
    assert "7 streams ended early." in text


def test_a_missing_file_makes_unknown_what_needs_it_and_nothing_else() -> None:
    figures = scale_page.read(FIGURES)
    del figures["scaling-streams"]
    text = scale_page.page(figures)
    assert f"| api processes, by open streams | {UNKNOWN} | {UNKNOWN} |" in text
    assert f"| runtimes (owners and standbys) | {UNKNOWN}" not in text
