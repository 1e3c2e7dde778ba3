"""The peers' own environments, under .loomlog/peers, made from their pinned requirements when `make bench-peers` asks.

The folder's name has the hash of the requirements and the version of Python, so that changed pins make a new
environment, peers run on the interpreter that we run on, and an interrupted installation is not taken for a whole one
(a stamp is written last). Python packages come through uv with their hashes checked, the Restate server through
`npm ci` from its lock, without running any package's scripts.
"""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parents[2] / ".loomlog" / "peers"
STAMP = ".installed"
INSTALL_TIMEOUT_S = 600.0


class NotInstalled(Exception):
    """Why a peer cannot be measured here: what was tried, and the end of what it answered."""


def python_of(peer: str) -> Path:
    """The interpreter of a peer's environment, which is made when it is not there. Raises NotInstalled."""
    requirements = HERE / peer / "requirements.txt"
    folder = folder_of(f"{peer}-{platform.python_version()}", requirements)
    python = folder / "bin" / "python"
    if not (folder / STAMP).exists():
        _fresh(folder)
        _run([sys.executable, "-m", "uv", "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)])
        into = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(python)]
        _run([*into, "--require-hashes", "-r", str(requirements)])
        (folder / STAMP).touch()
    return python


def restate_server() -> Path:
    """The program of the Restate server, which is fetched when it is not there. Raises NotInstalled."""
    lock = HERE / "restate" / "package-lock.json"
    folder = folder_of("restate-server", lock)
    if not (folder / STAMP).exists():
        _fresh(folder)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(lock.with_name(name), folder / name)
        _run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], where=folder)
        (folder / STAMP).touch()
    paths = sorted(folder.glob("node_modules/@restatedev/restate-server-*/bin/restate-server"))
    if not paths:
        raise NotInstalled("npm has no build of @restatedev/restate-server for this machine")
    return paths[0]


def pinned(peer: str, *names: str) -> dict[str, str]:
    """The versions that a peer's requirements pin, of these packages."""
    lines = (HERE / peer / "requirements.txt").read_text().splitlines()
    result = dict(line.split(" ", 1)[0].split("==", 1) for line in lines if "==" in line and not line.startswith(" "))
    return {name: result[name] for name in names}


def pinned_server() -> str:
    """The version of the Restate server that is pinned."""
    expected = json.loads((HERE / "restate" / "package.json").read_text())
    return str(expected["dependencies"]["@restatedev/restate-server"])


def folder_of(name: str, pins: Path) -> Path:
    """Where an environment with exactly these pins is."""
    return ENVIRONMENTS / f"{name}-{hashlib.sha256(pins.read_bytes()).hexdigest()[:12]}"


def _fresh(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _run(command: list[str], *, where: Path | None = None) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=where,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
            check=False,
            env={**os.environ},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        raise NotInstalled(
            f"{' '.join(command[:4])} ended with {done.returncode}: {(done.stdout + done.stderr)[-500:]}"
        )
