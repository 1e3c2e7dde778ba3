"""The pictures: every point is in the frame, every line has its name, and names do not cover each other."""

import re
from xml.etree import ElementTree

from tests.benchmarks.plots import HEIGHT, LABEL_GAP, WIDTH, Line, Picture, svg

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
