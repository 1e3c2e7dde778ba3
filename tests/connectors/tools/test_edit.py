import asyncio
from pathlib import Path
from typing import Any

import pytest

from loomlog.connectors.protocols import EffectClass
from loomlog.connectors.tools.edit import EDIT_BYTES, build_edit_tool, edit_file
from loomlog.connectors.tools.results import ToolCallRefused
from loomlog.connectors.tools.thread_pool import ThreadPool
from tests.connectors.tools.given import STOP, binding, context, volume


def edit(folder: Path, old: str, new: str, **more: Any) -> str:
    return edit_file({"path": "f", "old_string": old, "new_string": new, **more}, volume(folder), STOP)


def refusal(folder: Path, old: str, new: str, **more: Any) -> str:
    before = (folder / "f").read_bytes()
    with pytest.raises(ToolCallRefused) as caught:
        edit(folder, old, new, **more)
    assert (folder / "f").read_bytes() == before
    return str(caught.value)


def test_one_occurrence_is_replaced_and_the_rest_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a\r\n\xffb\r\n")
    assert edit(tmp_path, "b\r\n", "ü") == "Replaced 1 occurrence in f."
    assert (tmp_path / "f").read_bytes() == b"a\r\n\xff" + "ü".encode()


def test_text_that_does_not_occur_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    assert "does not occur" in refusal(tmp_path, "x", "y")


def test_text_that_occurs_twice_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abab")
    assert "more than once" in refusal(tmp_path, "ab", "y")


def test_occurrences_that_overlap_are_two(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"aaa")
    assert "more than once" in refusal(tmp_path, "aa", "b")


def test_all_occurrences_are_replaced_when_asked(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"ab-ab")
    assert edit(tmp_path, "ab", "", replace_all=True) == "Replaced 2 occurrences in f."
    assert (tmp_path / "f").read_bytes() == b"-"


def test_an_edit_that_changes_nothing_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"ab")
    assert "the same" in refusal(tmp_path, "ab", "ab")


def test_a_file_over_the_limit_is_refused_before_and_after(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a" * EDIT_BYTES)
    assert f"would have {EDIT_BYTES * EDIT_BYTES} bytes" in refusal(tmp_path, "a", "b" * EDIT_BYTES, replace_all=True)
    (tmp_path / "f").write_bytes(b"x" + b"a" * EDIT_BYTES)
    assert "larger than" in refusal(tmp_path, "x", "y")


def test_a_read_only_volume_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a")
    with pytest.raises(ToolCallRefused, match="read-only"):
        edit_file({"path": "f", "old_string": "a", "new_string": "b"}, volume(tmp_path, mode="ro"), STOP)


async def test_edits_of_one_file_at_the_same_time_lose_none(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("".join(f"<{n}>" for n in range(20)))
    tool = build_edit_tool(ThreadPool())
    calls = [{"path": "f", "old_string": f"<{n}>", "new_string": f"[{n}]"} for n in range(20)]
    results = await asyncio.gather(*(tool.call(call, context(volumes=(binding(tmp_path),))) for call in calls))
    assert not [result for result in results if result.is_error]
    assert (tmp_path / "f").read_text() == "".join(f"[{n}]" for n in range(20))


async def test_an_empty_old_string_is_an_error_result(tmp_path: Path) -> None:
    tool = build_edit_tool(ThreadPool())
    result = await tool.call({"path": "f", "old_string": "", "new_string": "x"}, context(volumes=(binding(tmp_path),)))
    assert result.is_error
    assert '"old_string" is empty' in result.text
    assert tool.effect_class({}) is EffectClass.UNSAFE


CRLF_FILE = b"line one\r\nline two\r\nline three\r\n"
MIXED = b"a\r\nb\nc\r\nd\n"


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (CRLF_FILE, "line one\nline two", "line ONE\nline TWO", b"line ONE\r\nline TWO\r\nline three\r\n"),
        (CRLF_FILE, "line two", "line two\nand more", b"line one\r\nline two\r\nand more\r\nline three\r\n"),
        (CRLF_FILE, "line three\n", "line three\nthe end\n", CRLF_FILE + b"the end\r\n"),
        (CRLF_FILE, "line two\n", "", b"line one\r\nline three\r\n"),
        (CRLF_FILE, "one\nline two\nline", "1\r\nline", b"line 1\r\nline three\r\n"),
        (CRLF_FILE, "line one\r\n", "line one\n", b"line one\nline two\r\nline three\r\n"),  # asked for by its bytes
        (b"a\r\nlast", "last", "last\none", b"a\r\nlast\r\none"),
        (b"a\nb", "a\nb", "a\nb\nc", b"a\nb\nc"),
        (MIXED, "a\nb\nc\nd", "a\nb\nX\nd", b"a\r\nb\nX\r\nd\n"),
        (MIXED, "a\nb\nc\n", "a\nnew\nb\nc\n", b"a\r\nnew\nb\nc\r\nd\n"),
        (MIXED, "b\nc\n", "c\n", b"a\r\nc\r\nd\n"),
        (MIXED, "c", "c\nmore", b"a\r\nb\nc\r\nmore\r\nd\n"),
    ],
)
def test_a_file_keeps_its_line_ends_however_the_model_writes_them(
    tmp_path: Path, before: bytes, old: str, new: str, after: bytes
) -> None:
    (tmp_path / "f").write_bytes(before)
    edit(tmp_path, old, new)
    assert (tmp_path / "f").read_bytes() == after


def test_every_occurrence_keeps_its_own_line_ends(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x\r\ny\r\n-\nx\ny\n")
    assert edit(tmp_path, "x\ny\n", "x\nz\n", replace_all=True) == "Replaced 2 occurrences in f."
    assert (tmp_path / "f").read_bytes() == b"x\r\nz\r\n-\nx\nz\n"
    assert "more than once" in refusal(tmp_path, "x\nz\n", "y")
