"""Every command of docs/TUTORIAL.md, in its order, in one shell, from an empty environment."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loomlog.services.cli.stack.ports import pick_port
from tests.acceptance.installation import REPOSITORY, link_cache
from tests.client_package import build_wheel

pytestmark = pytest.mark.stack
TUTORIAL_TIMEOUT_S = 150.0
INSTALL = "pip install --quiet './connectors/client[kafka]'"
BROKER = "127.0.0.1:19092"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A copy of what the tutorial names, and a state folder that has the broker's jars."""
    shutil.copytree(REPOSITORY / "docs" / "examples", tmp_path / "docs" / "examples")
    link_cache(tmp_path / "home")
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)  # a broker's folder is large


def commands_of(tutorial: str) -> list[str]:
    return re.findall(r"```sh\n(.*?)```", tutorial, re.DOTALL)


def test_the_tutorial_does_what_it_says(folder: Path) -> None:
    text = (REPOSITORY / "docs" / "TUTORIAL.md").read_text()
    wheel = build_wheel(folder / "dist")
    target = folder / "client"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", target, wheel],
        check=True,
    )
    port = str(pick_port())
    script = "\n".join(
        ["set -e", "trap 'kill ${SERVICE:-} 2> /dev/null || true; loomlog down' EXIT", *commands_of(text)]
    )
    assert INSTALL in script
    assert BROKER in script
    script = script.replace(INSTALL, "").replace(BROKER, f"127.0.0.1:{port}")
    environ = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "PYTHONPATH": f"{REPOSITORY}:{target}",
        "LOOMLOG_HOME": str(folder / "home"),
        "LOOMLOG_KAFKA_PORT": port,
        "LOOMLOG_POSTGRES_PORT": "0",
        "LOOMLOG_LISTEN_ADDR": f"127.0.0.1:{pick_port()}",
        "LOOMLOG_INSIGHTS_PORT": str(pick_port()),
    }
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=TUTORIAL_TIMEOUT_S,
    )
    assert done.returncode == 0, f"{done.stdout[-3_000:]}\n{done.stderr[-3_000:]}"
    (answer,) = (folder / "answers").glob("r_*.txt")
    assert answer.read_text().strip() == "order 17 has 1 items now"
    for line in ("cashier", "Add a lamp to order 17?", "order 17 has 1 items now", "matches the read models"):
        assert line in done.stdout, line
