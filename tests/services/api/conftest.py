"""The API over an application in memory, for the tests of its routes."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.services.api.serving import Served, served


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path) as made:
        yield made
