import time
from pathlib import Path

from tests.chaos.clock import NS_A_SECOND, Clock


def test_without_a_file_the_time_is_right(tmp_path: Path) -> None:
    clock = Clock(tmp_path / "clock")
    clock.jump()
    before = time.time_ns()
    assert before <= clock.time_ns() <= time.time_ns()


def test_the_clock_jumps_by_what_the_file_says_and_back_when_it_is_gone(tmp_path: Path) -> None:
    file = tmp_path / "clock"
    clock = Clock(file)
    for seconds in (-3_600, 86_400):
        file.write_text(str(seconds))
        clock.jump()
        before = time.time_ns()
        assert before + seconds * NS_A_SECOND <= clock.time_ns() <= time.time_ns() + seconds * NS_A_SECOND
        assert abs(clock.time() - (time.time() + seconds)) < 1
    file.unlink()
    clock.jump()
    assert clock.offset_ns == 0


def test_the_clock_does_not_jump_before_it_is_told(tmp_path: Path) -> None:
    clock = Clock(tmp_path / "clock")
    (tmp_path / "clock").write_text("5")
    assert clock.offset_ns == 0
