from collections.abc import AsyncIterator

import pytest_asyncio

from loomlog.connectors.models.code_js import CodeModel


@pytest_asyncio.fixture(scope="module")
async def code_model() -> AsyncIterator[CodeModel]:
    """The provider of code agents, with its keeper process."""
    model = CodeModel(provider="code-js")
    yield model
    await model.close()
