"""The distribution loomlog-client, built from the repository once a session and put on the path of programs."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

CLIENT = Path(__file__).parents[1] / "connectors" / "client"
BUILD_TIMEOUT_S = 120.0


def build_wheel(folder: Path) -> Path:
    """Build the wheel of the client into a folder, and return its file."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)],
        cwd=CLIENT,
        check=True,
        capture_output=True,
        timeout=BUILD_TIMEOUT_S,
    )
    (wheel,) = folder.glob("loomlog_client-*.whl")
    return wheel


@pytest.fixture(scope="session")
def client_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed package `loomlog_client`, for PYTHONPATH."""
    folder = tmp_path_factory.mktemp("client")
    with zipfile.ZipFile(build_wheel(folder / "dist")) as wheel:
        wheel.extractall(folder / "site")
    return folder / "site"
