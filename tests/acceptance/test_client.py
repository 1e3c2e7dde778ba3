"""The distribution loomlog-client in an environment of its own, and the examples run there from another folder."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.acceptance.installation import REPOSITORY, Installation
from tests.client_package import build_wheel

pytestmark = pytest.mark.stack
PROGRAM_TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the client and the locked dependencies, but without this checkout."""
    folder = tmp_path_factory.mktemp("client")
    wheel = build_wheel(folder / "dist")
    target = folder / "environment"
    venv.create(target, symlinks=True, with_pip=False)
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "--quiet",
            "--python",
            str(target),
            "install",
            "--no-deps",
            "--no-index",
            str(wheel),
        ],
        check=True,
    )
    # A path in a .pth file adds the dependencies; .pth files found there (the editable checkout's) are not read.
    (site,) = (target / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    for example in (REPOSITORY / "docs" / "examples").glob("*.py"):
        shutil.copy(example, folder)
    return target


def run_example(environment: Path, stack: Installation, name: str, *arguments: str) -> str:
    """Run a copy of an example and return its output; it must end with 0."""
    variables: Mapping[str, str] = {
        "PATH": os.environ["PATH"],
        "LOOMLOG_BASE_URL": f"http://{stack.environ['LOOMLOG_LISTEN_ADDR']}",
    }
    done = subprocess.run(
        [environment / "bin" / "python", environment.parent / name, *arguments],
        cwd=environment.parent,
        env=variables,
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_environment_has_the_client_and_not_loomlog(environment: Path) -> None:
    program = "import importlib.util as u, loomlog_client; print(u.find_spec('loomlog'), loomlog_client.__name__)"
    done = subprocess.run([environment / "bin" / "python", "-I", "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["None", "loomlog_client"], done.stderr


def test_a_run_is_started_over_the_log_and_followed_over_the_log(environment: Path, stack: Installation) -> None:
    address = stack.loomlog("status", "--json").json["kafka"]
    started = run_example(environment, stack, "start_run.py", "--bootstrap", address, "--agent", "talker", "Hello")
    run_id = started.split()[1]
    state, answers = environment.parent / "follow.json", environment.parent / "answers"
    where = ("--state", str(state), "--answers", str(answers), "--until", run_id)
    assert f"{run_id}: " in run_example(environment, stack, "follow_events.py", "--bootstrap", address, *where)
    assert (answers / f"{run_id}.txt").read_text()
    assert json.loads(state.read_text())["positions"]


def test_a_run_over_http_prints_its_answer(environment: Path, stack: Installation) -> None:
    shown = run_example(environment, stack, "run_over_http.py", "--agent", "talker", "Hello")
    assert shown.strip() == "ok"
