import os
import stat
from pathlib import Path

from loomlog.services.cli.stack.logfile import TAIL_LINES, open_log, read_tail, rotate_log


def test_a_log_over_its_bound_is_moved_aside_while_its_writer_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "kafka.log"
    with open_log(path) as writer:
        writer.write(b"x" * 100)
        assert rotate_log(path, max_bytes=50)
        writer.write(b"new\n")
    assert path.read_bytes() == b"new\n"
    assert (tmp_path / "kafka.log.1").read_bytes() == b"x" * 100


def test_logs_are_for_their_owner_only_whatever_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with open_log(tmp_path / "logs" / "api.log") as writer:
            writer.write(b"x" * 100)
        rotate_log(tmp_path / "logs" / "api.log", max_bytes=50)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "logs", *tmp_path.glob("logs/*"))}
    assert modes == {"logs": 0o700, "api.log": 0o600, "api.log.1": 0o600}


def test_an_older_log_is_replaced(tmp_path: Path) -> None:
    for text in (b"a" * 100, b"b" * 100):
        with open_log(tmp_path / "api.log") as writer:
            writer.write(text)
        assert rotate_log(tmp_path / "api.log", max_bytes=50)
    assert (tmp_path / "api.log.1").read_bytes() == b"b" * 100


def test_a_log_within_its_bound_and_no_log_at_all_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("short")
    assert not rotate_log(tmp_path / "a.log", max_bytes=50)
    assert not rotate_log(tmp_path / "absent.log", max_bytes=50)
    assert [file.name for file in tmp_path.iterdir()] == ["a.log"]


def test_the_tail_is_the_last_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"\xff" * 100_000 + b"".join(b"line %d\n" % number for number in range(100)))
    assert read_tail(path).splitlines() == [f"line {number}" for number in range(100 - TAIL_LINES, 100)]
    assert read_tail(tmp_path / "absent.log") == ""
