from pathlib import Path

import pytest

from loomlog.connectors.protocols import EffectClass
from loomlog.connectors.tools.results import ToolCallRefused
from loomlog.connectors.tools.thread_pool import ThreadPool
from loomlog.connectors.tools.write import WRITE_BYTES, build_write_tool, write_file
from tests.connectors.tools.given import STOP, binding, context, volume


def test_the_answer_says_bytes_and_path(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    text = write_file({"path": "./a/f", "content": "grün"}, volume(tmp_path), STOP)
    assert text == "Wrote 5 bytes to a/f."
    assert (tmp_path / "a" / "f").read_text("utf-8") == "grün"


def test_the_folder_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ToolCallRefused, match='"gone" in volume "work": there is no such file or folder'):
        write_file({"path": "gone/f", "content": ""}, volume(tmp_path), STOP)
    assert list(tmp_path.iterdir()) == []


def test_one_byte_over_the_limit_is_refused(tmp_path: Path) -> None:
    assert "1048576 bytes" in write_file({"path": "f", "content": "x" * WRITE_BYTES}, volume(tmp_path), STOP)
    with pytest.raises(ToolCallRefused, match="1048577 bytes; at most 1048576"):
        write_file({"path": "f", "content": "x" * (WRITE_BYTES + 1)}, volume(tmp_path), STOP)


def test_a_read_only_volume_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolCallRefused, match="read-only"):
        write_file({"path": "f", "content": ""}, volume(tmp_path, mode="ro"), STOP)


async def test_a_repeated_call_leaves_the_same_file(tmp_path: Path) -> None:
    tool = build_write_tool(ThreadPool())
    results = [await tool.call({"path": "f", "content": "x"}, context(volumes=(binding(tmp_path),))) for _ in range(2)]
    assert results[0] == results[1]
    assert (tmp_path / "f").read_text() == "x"
    assert tool.effect_class({}) is EffectClass.IDEMPOTENT


async def test_content_that_is_no_text_is_an_error_result(tmp_path: Path) -> None:
    result = await build_write_tool(ThreadPool()).call(
        {"path": "f", "content": "\ud800"}, context(volumes=(binding(tmp_path),))
    )
    assert result.is_error
    assert "lone surrogate" in result.text
