"""What the events of a topic are projected into: the tables, and who fills them.

A ReadModel is all that the loop and the rebuild need to know. Readers of one never see the builds of another, and each
is rebuilt by itself.

Before: services/projector/main.py chooses. After: rebuild.py, run_projection.py, entity_projection.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import psycopg

from loomlog.projections.engine.builds import ENTITY_TABLES, RUN_TABLES, Build, TableSet
from loomlog.projections.engine.carried_rows import carry_rows
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

    async def carry_rows(
        self, connection: psycopg.AsyncConnection[Any], build: Build, topic: str, families: frozenset[str]
    ) -> int:
        """Make the rows of these families those of the folds of this process, for a topic without its first events;
        returns how many could be.
        """
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

    async def carry_rows(
        self, connection: psycopg.AsyncConnection[Any], build: Build, topic: str, families: frozenset[str]
    ) -> int:
        raise AssertionError("the log of runs is kept")


class EntityModel:
    """The read model of the entities of a topic set, with the folds of this process."""

    def __init__(
        self,
        folds: Mapping[str, EntityFold],
        seal: Seal = plain_seal,
        tables: TableSet = ENTITY_TABLES,
        *,
        former_seals: Sequence[Seal] = (),
    ) -> None:
        """`former_seals`: rows that are taken over may have them."""
        self.folds, self.seal, self.tables, self.former_seals = folds, seal, tables, former_seals

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

    async def carry_rows(
        self, connection: psycopg.AsyncConnection[Any], build: Build, topic: str, families: frozenset[str]
    ) -> int:
        seals = (self.seal, *self.former_seals)
        return await carry_rows(connection, build, topic, families, folds=self.folds, seals=seals)
