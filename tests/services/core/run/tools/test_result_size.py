"""A result takes a share of the model's window, whatever the tool gives."""

import pytest

from loomlog.schemas.generated.values import BlobRef
from loomlog.schemas.records import replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.tools.result_size import OFFSET, result_bytes_max, shorten
from tests.services.core.run.given import answered, at_tools, begun, calls, returned


@pytest.mark.parametrize(
    ("window", "count", "most"),
    [
        (0, 1, 0),  # not known: nothing is cut
        (128_000, 1, 128_000),  # a quarter of it, in bytes
        (128_000, 2, 128_000),
        (128_000, 4, 64_000),  # half of it for all results of the turn
        (4_096, 1, 4_096),
        (4_096, 128, limits.RESULT_BYTES_MIN),
    ],
)
def test_a_result_may_have_a_share_of_the_window(window: int, count: int, most: int) -> None:
    facts = replace(begun().live.facts, max_context_tokens=window)
    assert result_bytes_max(facts, count) == most


def test_what_a_script_gets_is_never_cut() -> None:
    facts = begun().live.facts
    script = replace(facts, max_context_tokens=1_000, definition=replace(facts.definition, code_body="1"))
    script = replace(script, definition=replace(script.definition, provider="code-js"))
    assert result_bytes_max(script, 1) == 0


def test_the_beginning_and_the_end_are_kept_with_a_note_between() -> None:
    text = "b" * 5_000 + "ü" * 5_000 + "end"
    part = shorten(text, 1_000, lambda: f"read on at {OFFSET}")
    assert part is not None
    head, note, tail = part.split("\n")
    assert (head, tail[-3:]) == ("b" * 750, "end")
    assert note == "[cut: 14004 of 15003 bytes are left out here; read on at 750]"
    assert len((head + tail).encode()) == 999  # no character is cut in two


@pytest.mark.parametrize("text", ["", "x" * 1_000, "ü" * 500])
def test_a_result_within_its_share_is_whole(text: str) -> None:
    assert shorten(text, 1_000, str) is None
    assert shorten(text * 1_000, 0, str) is None


def test_where_the_whole_is_stays_with_the_result_in_the_conversation() -> None:
    ref = BlobRef(sha256="a" * 64, size_bytes=9_000_000)
    run = at_tools("A")
    run.give(returned(run.state, 0, "a part", whole_blob=ref))
    block = run.live.facts.messages[-1].blocks[0]
    assert (getattr(block, "text", ""), getattr(block, "whole", None)) == ("a part", ref)
    run.give(answered(run.state, "", *(replace(one, id="2") for one in calls("A"))))
    run.give(returned(run.state, 0, "all of it"))
    assert getattr(run.live.facts.messages[-1].blocks[0], "whole", ref) is None
