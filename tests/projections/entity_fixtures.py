"""Builds of the read model of entities under a unique prefix; imported by the conftest of the tests that use them."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from loomlog.connectors.storage.postgres import PostgresOptions, PostgresReader, open_reader
from loomlog.projections.engine.builds import ENTITY_TABLES, Builds
from loomlog.projections.engine.entity_projection import EntityProjection
from tests.projections.counters import FOLDS, TOPIC, records_of
from tests.projections.stories import Partition

ProjectEntities = Callable[..., Awaitable[EntityProjection]]


@pytest.fixture
def entity_prefix(prefix: str) -> str:
    return f"{prefix}_entities"


@pytest_asyncio.fixture(loop_scope="session")
async def entity_builds(connection, entity_prefix: str) -> Builds:
    """The list of builds, with build 1 created and live."""
    builds = Builds(connection, entity_prefix, ENTITY_TABLES)
    await builds.prepare()
    return builds


@pytest_asyncio.fixture(loop_scope="session")
async def entity_reader(
    options: PostgresOptions, entity_prefix: str, entity_builds: Builds
) -> AsyncIterator[PostgresReader]:
    """Reads the live build."""
    opened = await open_reader(options, schema=entity_prefix, max_connections=2)
    yield opened
    await opened.close()


@pytest_asyncio.fixture(loop_scope="session")
async def project_entities(connection, entity_builds: Builds) -> ProjectEntities:
    """Projects whole partitions, numbered in their order, into the live build."""

    async def project(*partitions: Partition, **options) -> EntityProjection:
        live = (await entity_builds.live()).number
        projection = EntityProjection(
            connection, entity_builds.build(live), TOPIC, owner="tests", **({"folds": FOLDS} | options)
        )
        await projection.claim(range(len(partitions)))
        await projection.apply(records_of(*partitions))
        return projection

    return project
