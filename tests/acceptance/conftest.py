"""What several acceptance tests look at."""

from collections.abc import Iterator

import pytest

from tests.acceptance.installation import Installation
from tests.acceptance.second_stack import running_second_stack, serve_guarded
from tests.connectors.mcp.authorization_server import GuardedServer


@pytest.fixture(scope="session")
def reviewed(stack: Installation) -> str:
    """The run id of a review of the project."""
    stack.loomlog("review")
    found = stack.loomlog("runs", "ls", "--agent", "reviewer", "--json").json["runs"]
    return str(found[0]["run_id"])


@pytest.fixture(scope="package")
def guarded() -> Iterator[GuardedServer]:
    with serve_guarded() as server:
        yield server


@pytest.fixture(scope="package")
def second_stack(guarded: GuardedServer) -> Iterator[Installation]:
    with running_second_stack(guarded) as stack:
        yield stack
