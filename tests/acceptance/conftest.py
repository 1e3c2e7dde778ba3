"""What several acceptance tests look at."""

import pytest

from tests.acceptance.installation import Installation


@pytest.fixture(scope="session")
def reviewed(stack: Installation) -> str:
    """The run id of a review of the project."""
    stack.loomlog("review")
    found = stack.loomlog("runs", "ls", "--agent", "reviewer", "--json").json["runs"]
    return str(found[0]["run_id"])
