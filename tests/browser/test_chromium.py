"""Without a browser the tests say what to install; they are never skipped."""

from pathlib import Path

import pytest

from tests.browser.chromium import NoBrowser, find_chromium


def test_without_a_browser_the_text_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(NoBrowser, match="apt-get install chromium, or name another program with LOOMLOG_CHROMIUM"):
        find_chromium({"PATH": str(tmp_path)})


def test_a_browser_that_is_named_wins_and_has_to_be_there(tmp_path: Path) -> None:
    program = tmp_path / "browser"
    program.touch(mode=0o755)
    assert find_chromium({"PATH": "", "LOOMLOG_CHROMIUM": str(program)}) == program
    with pytest.raises(NoBrowser, match="LOOMLOG_CHROMIUM=/no/such is no program"):
        find_chromium({"PATH": "/usr/bin", "LOOMLOG_CHROMIUM": "/no/such"})
