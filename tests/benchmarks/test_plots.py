"""The pictures: every point is in the frame, every line has its name, and names do not cover each other."""

import re
from xml.etree import ElementTree

import pytest

from tests.benchmarks.plots import BOTTOM, HEIGHT, LABEL_GAP, PICTURES, WIDTH, Line, Picture, svg
from tests.benchmarks.scaling import CURVES

PICTURE = Picture(
    title="fast & slow",
    x="runs",
    y="ms",
    lines=[
        Line(name="p50", points=[(1, 2.0), (16, 30.0), (1_000, 999.0)]),
        Line(name="p99", points=[(1, 3.0), (16, 31.0), (1_000, 1_000.0)]),
    ],
    log_y=True,
)


def test_a_picture_is_a_document_whose_points_are_in_the_frame() -> None:
    root = ElementTree.fromstring(svg(PICTURE, "measured today"))
    circles = [(float(one.attrib["cx"]), float(one.attrib["cy"])) for one in root.iter() if one.tag.endswith("circle")]
    assert len(circles) == 6
    assert all(0 < x < WIDTH and 0 < y < HEIGHT for x, y in circles)
    heights = [y for _, y in circles[:3]]
    assert heights == sorted(heights, reverse=True), "more is higher"


def test_names_of_lines_that_end_together_stand_apart() -> None:
    places = dict(re.findall(r'y="([\d.]+)"[^>]*>(p50|p99)<', svg(PICTURE, "")))
    first, second = sorted(float(place) for place in places)
    assert second - first >= LABEL_GAP - 0.1


def test_names_of_lines_that_lie_on_the_axis_do_not_fall_below_it() -> None:
    lines = [Line(name=f"line {number}", points=[(1, 0.0), (2, 100.0 if number == 0 else 0.0)]) for number in range(4)]
    drawn = svg(Picture(title="", x="", y="", lines=lines), "")
    heights = [float(place) for place in re.findall(r'y="([\d.]+)"[^>]*>line \d<', drawn)]
    assert max(heights) <= HEIGHT - BOTTOM + 4
    assert min(b - a for a, b in zip(sorted(heights), sorted(heights)[1:], strict=False)) >= LABEL_GAP - 0.1


def test_a_logarithmic_axis_of_less_than_two_decades_has_ticks_between_the_powers() -> None:
    lines = [Line(name="p50", points=[(1, 120.0), (2, 480.0)])]
    assert ">200<" in svg(Picture(title="", x="", y="", lines=lines, log_y=True), "")


@pytest.mark.parametrize("name", CURVES)
def test_every_curve_has_a_picture(name: str) -> None:
    assert name in PICTURES


def test_a_take_over_within_the_resolution_of_the_log_is_drawn_at_a_millisecond() -> None:
    kill = {"claimed_s": 3.0, "serving_s": 0.0, "recovered_s": 0.02}
    picture = PICTURES["live"]([{"live": 10, "kills": [kill, kill]}])
    assert {line.name: line.points for line in picture.lines}["claim to first event"] == [(10, 1.0)]
