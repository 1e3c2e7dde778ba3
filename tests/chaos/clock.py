"""A service under a clock that can jump.

    python -m tests.chaos.clock FILE MODULE

Runs MODULE as its main program with a `time.time` and a `time.time_ns` that are off by the seconds in FILE. The file is
read at the start and again on SIGUSR2, so that the clock jumps while the service works, as it does when somebody sets
it or when NTP corrects it. The monotonic clock goes on as it does then. What asks the system in C (datetime.now) sees
the true time; no service does that.

Before: rig starts services through it.  After: services.<name>.main.
"""

import runpy
import signal
import sys
import time
from pathlib import Path
from typing import Any

JUMP = signal.SIGUSR2
NS_A_SECOND = 1_000_000_000


class Clock:
    """Wall time with an offset."""

    def __init__(self, file: Path) -> None:
        self.offset_ns = 0
        self._file = file
        self._time_ns = time.time_ns

    def jump(self, *_: Any) -> None:
        """Be off by what the file says; without a file by nothing."""
        try:
            self.offset_ns = int(float(self._file.read_text()) * NS_A_SECOND)
        except FileNotFoundError:
            self.offset_ns = 0

    def time_ns(self) -> int:
        return self._time_ns() + self.offset_ns

    def time(self) -> float:
        return self.time_ns() / NS_A_SECOND


def main() -> None:
    clock = Clock(Path(sys.argv[1]))
    module = sys.argv[2]
    clock.jump()
    signal.signal(JUMP, clock.jump)
    setattr(time, "time", clock.time)  # noqa: B010 - mypy does not let a module's function be replaced
    setattr(time, "time_ns", clock.time_ns)  # noqa: B010
    sys.argv = [sys.argv[0]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
