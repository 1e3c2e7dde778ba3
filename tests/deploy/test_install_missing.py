"""What a bare machine lacks is installed where that can be done, and named elsewhere."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "deploy" / "install_missing.sh"
PROGRAMS = ("dirname", "python3", "id", "sh", "grep")


def machine(folder: Path, *, user: int, apt: bool, programs: tuple[str, ...] = ()) -> dict[str, str]:
    """The environment of a machine with few programs, whose apt-get writes down what it is asked."""
    for name in PROGRAMS:
        found = next(Path(place) / name for place in os.environ["PATH"].split(":") if (Path(place) / name).exists())
        (folder / name).symlink_to(found)
    for name, text in {"id": f"echo {user}", **dict.fromkeys(programs, "exit 0")}.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    if apt:
        (folder / "apt-get").write_text(f'#!/bin/sh\necho "$@" >> {folder}/asked\n')
        (folder / "apt-get").chmod(0o755)
    return {"PATH": str(folder)}


def run(environment: dict[str, str], *needs: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["/bin/sh", SCRIPT, *needs], env=environment, capture_output=True, text=True, check=False)


def test_as_root_on_debian_it_is_installed_after_saying_so(tmp_path: Path) -> None:
    result = run(machine(tmp_path, user=0, apt=True), "maven", "chromium")
    assert (result.returncode, result.stdout) == (0, "")
    assert "installing what is missing: maven chromium (apt-get)" in result.stderr
    assert (tmp_path / "asked").read_text().splitlines()[-1].endswith("--no-install-recommends maven chromium")


@pytest.mark.parametrize(("user", "apt"), [(1000, True), (0, False)])
def test_elsewhere_one_sentence_names_the_packages(tmp_path: Path, user: int, apt: bool) -> None:
    result = run(machine(tmp_path, user=user, apt=apt), "maven", "chromium")
    assert result.returncode == 1
    assert result.stderr.startswith("Missing here: maven chromium (")
    assert not (tmp_path / "asked").exists()


def test_what_is_there_is_left_alone(tmp_path: Path) -> None:
    environment = machine(tmp_path, user=0, apt=True, programs=("mvn", "chromium-browser"))
    assert run(environment, "maven", "chromium").stderr == ""
    assert not (tmp_path / "asked").exists()


def test_a_broker_elsewhere_needs_no_maven_and_a_named_browser_is_one(tmp_path: Path) -> None:
    environment = machine(tmp_path, user=1000, apt=False)
    named = {"LOOMLOG_KAFKA": "broker:9092", "LOOMLOG_CHROMIUM": "/opt/chrome"}
    assert run({**environment, **named}, "maven", "chromium").returncode == 0
