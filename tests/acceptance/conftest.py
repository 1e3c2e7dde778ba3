"""One installation for the whole session, up while tests run."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.installation import Installation


@pytest.fixture(scope="session")
def stack() -> Iterator[Installation]:
    # Not pytest's own temporary folder: those of three sessions are kept, and a broker's is large.
    folder = Path(tempfile.mkdtemp(prefix="loomlog-acceptance-"))
    installation = Installation(folder)
    installation.make()
    try:
        installation.up()
        yield installation
    finally:
        installation.loomlog("down")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def reviewed(stack: Installation) -> str:
    """The run id of a review of the project."""
    stack.loomlog("review")
    found = stack.loomlog("runs", "ls", "--agent", "reviewer", "--json").json["runs"]
    return str(found[0]["run_id"])
