"""Stacks as py-spy writes them become areas, leaves and a picture."""

from collections import Counter
from xml.etree import ElementTree

import pytest

from tests.benchmarks.stacks import AREAS, LOOP, WIDE, WIDTH, area_of, flame_svg, leaves, parse, shares, short, tree

RUN = "run (asyncio/runners.py)"
DECIDE = "decide (services/core/run/decide.py)"
ENCODE = "encode (schemas/codec.py)"
DUMPS = "dumps (json/__init__.py)"


def test_lines_of_the_raw_format_become_stacks_without_line_numbers() -> None:
    raw = "run (asyncio/runners.py:118);decide (services/core/run/decide.py:40) 3\nrun (asyncio/runners.py:118) 2\n"
    assert parse(raw) == Counter({(RUN, DECIDE): 3, (RUN,): 2})


def test_stacks_that_differ_in_the_line_only_are_one() -> None:
    assert parse("f (a/b.py:1) 1\nf (a/b.py:2) 4\n") == Counter({("f (a/b.py)",): 5})


@pytest.mark.parametrize(
    ("path", "seen"),
    [
        ("/home/somebody/.venv/lib/python3.11/site-packages/aiokafka/client.py", "aiokafka/client.py"),
        ("/usr/lib/python3.11/asyncio/tasks.py", "asyncio/tasks.py"),
        ("/home/somebody/loomlog/services/core/run/decide.py", "services/core/run/decide.py"),
        ("/opt/strange/place/thing.py", "place/thing.py"),
        ("schemas/codec.py", "schemas/codec.py"),
        ("loomlog/schemas/codec.py", "schemas/codec.py"),
    ],
)
def test_a_frame_says_nothing_of_the_machine_it_ran_on(path: str, seen: str) -> None:
    assert short(f"f ({path}:7)", root="/home/somebody/loomlog") == f"f ({seen})"


def test_a_frame_without_a_file_stays_as_it_is() -> None:
    assert short("process 12:python") == "process 12:python"


def test_a_sample_belongs_to_the_first_named_frame_from_the_leaf() -> None:
    assert area_of((RUN, DECIDE, ENCODE)) == "encoding, decoding and hashing of records"
    assert area_of((RUN, ENCODE, DECIDE)) == "deciding"


def test_what_the_standard_library_does_belongs_to_its_caller() -> None:
    assert area_of((RUN, DECIDE, DUMPS)) == "deciding"


def test_what_nobody_called_is_the_loop() -> None:
    assert area_of((RUN, DUMPS)) == LOOP


def test_a_socket_is_counted_with_who_wrote_to_it() -> None:
    send = ("send (aiokafka/conn.py)", "write (asyncio/streams.py)")
    assert area_of((RUN, "route (aiokafka/producer/sender.py)", *send)) == "broker's client: producing"
    assert area_of((RUN, "read (aiokafka/conn.py)")) == "broker's client: connections and answers"
    assert area_of((RUN, "_write (services/api/event_stream.py)", "send (uvicorn/http.py)")) == "SSE: writing"


def test_what_main_runs_is_not_counted_with_main() -> None:
    assert area_of(("main (services/api/main.py)", "serve (uvicorn/server.py)", RUN)) == LOOP


@pytest.mark.parametrize("areas", [AREAS, WIDE])
def test_an_area_that_stands_before_a_wider_one_is_reached(areas: list[tuple[str, str]]) -> None:
    for index, (prefix, name) in enumerate(areas):
        earlier = [wide for wide, other in areas[:index] if prefix.startswith(wide) and other != name]
        assert not earlier, f"{prefix} ({name}) is never reached: {earlier} takes it"


def test_shares_are_percent_of_all_samples_the_largest_first() -> None:
    actual = shares({(RUN, DECIDE): 1, (RUN, ENCODE): 2, (RUN,): 1})
    assert next(iter(actual.items())) == ("encoding, decoding and hashing of records", 50.0)
    assert sum(actual.values()) == 100.0


def test_leaves_are_counted_over_all_their_callers() -> None:
    assert leaves({(RUN, ENCODE): 1, (RUN, DECIDE, ENCODE): 2, (RUN,): 1}, 1) == {ENCODE: 75.0}


def test_of_the_frames_that_all_samples_share_the_last_is_drawn() -> None:
    root = tree({("main", RUN, DECIDE): 1, ("main", RUN, ENCODE): 1, ("main", RUN): 1})
    assert set(root.inner) == {RUN}
    assert set(root.inner[RUN].inner) == {DECIDE, ENCODE}


def test_the_graph_is_a_document_whose_boxes_are_as_wide_as_their_share() -> None:
    drawn = flame_svg({(RUN, DECIDE): 1, (RUN, ENCODE): 3}, "a <title>", "")
    root = ElementTree.fromstring(drawn)
    widths = {group[0].text: float(group[1].attrib["width"]) for group in root.iter() if group.tag.endswith("}g")}
    (narrow,) = [width for tip, width in widths.items() if tip and tip.startswith("decide")]
    (wide,) = [width for tip, width in widths.items() if tip and tip.startswith("encode")]
    assert wide / narrow == pytest.approx(3, rel=0.02)
    assert wide + narrow <= WIDTH


def test_no_samples_are_a_graph_without_boxes() -> None:
    assert "<g>" not in flame_svg({}, "nothing", "")
