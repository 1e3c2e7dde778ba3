"""`loomlog demo` whole: a stack, a run, a runtime killed in its middle, and the proof; and again on the same log."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.installation import REPOSITORY, START_TIMEOUT_S, link_cache

pytestmark = pytest.mark.stack


@pytest.fixture
def home() -> Iterator[Path]:
    # Not pytest's own temporary folder: those of three sessions are kept, and a broker's is large.
    folder = Path(tempfile.mkdtemp(prefix="loomlog-demo-"))
    yield folder / "home"
    shutil.rmtree(folder, ignore_errors=True)


def test_a_killed_runtime_loses_nothing_and_does_nothing_twice(home: Path) -> None:
    link_cache(home)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOOMLOG_", "LOOMCYCLE_"))}
    # Settings of the user, which must not reach the demo's stack.
    environ = kept | {"PYTHONPATH": str(REPOSITORY), "LOOMLOG_HOME": str(home), "LOOMLOG_SPARES": "0"}
    for _ in range(2):
        ended = subprocess.run(
            (sys.executable, "-P", "-m", "loomlog.services.cli.main", "demo"),
            cwd=home,
            env=environ,
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert re.search(r"kill -9 of runtime(-2)? after \d results, a call is under way", ended.stdout)
        assert re.search(r"take-over  the next owner's first event came \d+ ms after the kill", ended.stdout)
        assert "effects    12 tool calls, 12 lines in the ledger, 12 of them different" in ended.stdout
        assert "hash chain intact, replay equal to the read models" in ended.stdout
    status = subprocess.run(
        (sys.executable, "-P", "-m", "loomlog.services.cli.main", "status"),
        env=environ | {"LOOMLOG_HOME": str(home / "demo")},
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
        check=False,
    )
    assert status.returncode == 3, "nothing of it runs on"
