"""The wheel in an environment of its own: one package, one command, and the main job runs from it."""

import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from loomlog.services.web.static_files import load_web_page
from tests.acceptance.installation import PLANTED, REPOSITORY, START_TIMEOUT_S, Installation

pytestmark = pytest.mark.stack
BUILD_TIMEOUT_S = 120.0


@dataclass(slots=True)
class WheelInstallation(Installation):
    """Commands run from the environment into which the wheel was installed."""

    environment: Path = field(kw_only=True)

    def command(self, *arguments: str) -> Sequence[str]:
        return (str(self.environment / "bin" / "loomlog"), *arguments)


def pip(*arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments],
        check=True,
        timeout=BUILD_TIMEOUT_S,
    )


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel and the locked dependencies, but without this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder / "dist"), str(REPOSITORY))
    (wheel,) = (folder / "dist").glob("loomlog-*.whl")
    target = folder / "environment"
    venv.create(target, symlinks=True, with_pip=False)
    pip("--python", str(target), "install", "--no-deps", "--no-index", str(wheel))
    # A path in a .pth file adds the dependencies; .pth files found there (the editable checkout's) are not read.
    (site,) = (target / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return target


def test_the_wheel_puts_one_package_and_one_command_there(environment: Path) -> None:
    (site,) = (environment / "lib").glob("python*/site-packages")
    installed = {path.name for path in site.iterdir() if path.is_dir() and not path.name.endswith(".dist-info")}
    assert installed == {"loomlog"}
    assert {path.name for path in (environment / "bin").iterdir() if "loom" in path.name} == {"loomlog"}
    program = "import loomlog, importlib.util as u; print(loomlog.__file__, u.find_spec('services'))"
    done = subprocess.run(
        [environment / "bin" / "python", "-I", "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(site / "loomlog" / "__init__.py"), "None"]


def test_the_wheel_has_all_files_of_the_web_page(environment: Path) -> None:
    program = (
        "from loomlog.services.web.static_files import load_web_page\n"
        "page = load_web_page('1')\n"
        "print(page.build, len(page.files))"
    )
    python = environment / "bin" / "python"
    done = subprocess.run([python, "-I", "-c", program], capture_output=True, text=True, check=True)
    here = load_web_page("1")
    assert done.stdout.split() == [here.build, str(len(here.files))]


def test_the_main_job_runs_from_the_wheel(environment: Path, tmp_path: Path) -> None:
    installation = WheelInstallation(tmp_path, environment=environment)
    installation.make()
    # The family of the acceptance tests alone: nothing of the checkout's own package.
    installation.environ["PYTHONPATH"] = str(REPOSITORY / "docs" / "examples" / "counter")
    shown = installation.loomlog("review", "--once", timeout_s=START_TIMEOUT_S).out
    place = re.search(r"^Report +(\S+)", shown, re.MULTILINE)
    assert place is not None, shown
    report = Path(place[1]).read_text()
    assert all(f"{name}:{line}`" in report for name, findings in PLANTED.items() for line in findings)
