from pathlib import Path

import pytest

from loomlog.connectors.protocols import EffectClass
from loomlog.connectors.tools.read import READ_BYTES, build_read_tool, read_file
from loomlog.connectors.tools.results import ToolCallRefused
from loomlog.connectors.tools.thread_pool import ThreadPool
from tests.connectors.tools.given import STOP, binding, context, volume


def test_a_file_is_returned_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"one\r\n  two\n")
    assert read_file({"path": "f"}, volume(tmp_path), STOP) == "one\r\n  two\n"


def test_a_file_of_exactly_the_limit_is_not_cut(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * READ_BYTES)
    assert read_file({"path": "f"}, volume(tmp_path), STOP) == "x" * READ_BYTES


def test_a_longer_file_is_cut_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * (READ_BYTES - 1) + "ü".encode() + b"rest")
    text = read_file({"path": "f"}, volume(tmp_path), STOP)
    note = f"[cut: the first {READ_BYTES - 1} of {READ_BYTES + 5} bytes; offset {READ_BYTES - 1} reads on]"
    assert text == "x" * (READ_BYTES - 1) + f"\n{note}"
    assert read_file({"path": "f", "offset": READ_BYTES - 1}, volume(tmp_path), STOP) == "ürest"
    assert read_file({"path": "f", "offset": READ_BYTES}, volume(tmp_path), STOP) == "rest"


def test_a_file_is_read_in_parts_of_which_none_is_lost(tmp_path: Path) -> None:
    content = "añ😀z" * 50
    (tmp_path / "f").write_text(content)
    got, offset = "", 0
    while True:
        part = read_file({"path": "f", "offset": offset, "limit": 16}, volume(tmp_path), STOP)
        text, _, note = part.partition("\n[cut: ")
        got += text
        if not note:
            break
        offset = int(note.partition("offset ")[2].split()[0])
    assert got == content
    with pytest.raises(ToolCallRefused, match="at or after the end"):
        read_file({"path": "f", "offset": 10_000}, volume(tmp_path), STOP)


def test_a_read_only_volume_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    assert read_file({"path": "f"}, volume(tmp_path, mode="ro"), STOP) == "x"


def test_a_path_outside_is_refused(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "f").write_bytes(b"x")
    with pytest.raises(ToolCallRefused, match="leads outside"):
        read_file({"path": "../f"}, volume(tmp_path / "root"), STOP)


async def test_the_tool_reads_the_volume_it_is_told(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text(name)
    grants = (binding(tmp_path / "one", name="one", is_default=True), binding(tmp_path / "two", name="two"))
    tool = build_read_tool(ThreadPool())
    assert (await tool.call({"path": "f"}, context(volumes=grants))).text == "one"
    assert (await tool.call({"path": "f", "volume": "two"}, context(volumes=grants))).text == "two"
    assert tool.effect_class({}) is EffectClass.READ


async def test_what_cannot_be_read_is_an_error_result(tmp_path: Path) -> None:
    tool = build_read_tool(ThreadPool())
    for arguments, problem in (
        ({"path": "gone"}, "no such file"),
        ({"file": "f"}, '"path" is missing'),
        ({"path": "f", "volume": "other"}, "Granted are: work (rw)"),
    ):
        result = await tool.call(arguments, context(volumes=(binding(tmp_path),)))
        assert result.is_error
        assert problem in result.text
    unbound = await tool.call({"path": "f"}, context())
    assert unbound.is_error
    assert "No volume is granted" in unbound.text
