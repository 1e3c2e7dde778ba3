"""What the events of a topic are projected into: the tables, and who fills them.

A ReadModel is all that the loop and the rebuild need to know. Readers of one never see the builds of another, and each
is rebuilt by itself.

Before: services/projector/main.py chooses. After: rebuild.py, run_projection.py, entity_projection.py.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import psycopg

from loomlog.projections.engine.builds import ENTITY_TABLES, RUN_TABLES, Build, TableSet
from loomlog.projections.engine.entity_fold import EntityFold
from loomlog.projections.engine.entity_projection import EntityProjection
from loomlog.projections.engine.family_folds import outdated_families
from loomlog.projections.engine.projection import Projection
from loomlog.projections.engine.run_projection import RunProjection
from loomlog.projections.entities import Seal, plain_seal
from loomlog.schemas.codec import Codec


class ReadModel(Protocol):
    """The tables of a topic, and the projection that writes them."""

    @property
    def tables(self) -> TableSet: ...

    def projection(
        self,
        connection: psycopg.AsyncConnection[Any],
        build: Build,
        topic: str,
        *,
        owner: str,
        codec: Codec | None,
        families: frozenset[str] | None = None,
    ) -> Projection[Any]:
        """Return the projection into a build; with `families`, of their aggregates alone."""
        ...

    async def outdated(self, connection: psycopg.AsyncConnection[Any], build: Build) -> frozenset[str]:
        """Return the families whose rows in the build another fold has made. Raises NewerFold."""
        ...


class RunModel:
    """The read model of runs."""

    tables = RUN_TABLES

    def projection(
        self,
        connection: psycopg.AsyncConnection[Any],
        build: Build,
        topic: str,
        *,
        owner: str,
        codec: Codec | None,
        families: frozenset[str] | None = None,
    ) -> Projection[Any]:
        assert families is None, "runs are one family"
        return RunProjection(connection, build, topic, owner=owner, codec=codec)

    async def outdated(self, connection: psycopg.AsyncConnection[Any], build: Build) -> frozenset[str]:
        return frozenset()


class EntityModel:
    """The read model of entities, with the folds of this process."""

    tables = ENTITY_TABLES

    def __init__(self, folds: Mapping[str, EntityFold], seal: Seal = plain_seal) -> None:
        self.folds, self.seal = folds, seal

    def projection(
        self,
        connection: psycopg.AsyncConnection[Any],
        build: Build,
        topic: str,
        *,
        owner: str,
        codec: Codec | None,
        families: frozenset[str] | None = None,
    ) -> Projection[Any]:
        return EntityProjection(
            connection, build, topic, owner=owner, codec=codec, folds=self.folds, seal=self.seal, families=families
        )

    async def outdated(self, connection: psycopg.AsyncConnection[Any], build: Build) -> frozenset[str]:
        return await outdated_families(connection, build.schema, self.folds, self.seal)
