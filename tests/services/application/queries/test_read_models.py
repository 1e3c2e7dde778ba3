import asyncio
from typing import Any, cast

import pytest

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections.run_queries import RunFilter
from loomlog.services.application.queries.read_models import ReadModels, SqlReadModels
from tests.services.application.world import declined


class Asked:
    """A Reader that answers, refuses or never comes back."""

    def __init__(self, error: Exception | None = None, *, hangs: bool = False) -> None:
        self.error = error
        self.hangs = hangs
        self.statements: list[str] = []
        self.may_end = asyncio.Event()
        self.ended = asyncio.Event()

    async def fetch(self, statement: Any) -> list[tuple[Any, ...]]:
        self.statements.append(str(statement))
        if self.error is not None:
            raise self.error
        if self.hangs:
            try:
                await asyncio.Event().wait()
            finally:
                # A driver that waits for a server which does not confirm the cancel.
                await self.may_end.wait()
                self.ended.set()
        return []


def projection(reader: Asked, *, wait_s: float = 1.0) -> ReadModels:
    return SqlReadModels(cast(PostgresReader, reader), wait_s=wait_s)


def questions(one: ReadModels) -> list[Any]:
    return [
        one.run("acme", "r_1"),
        one.run_of_handle("acme", "a_1"),
        one.runs("acme", RunFilter(), limit=1),
        one.count_active("acme"),
        one.audit_row("acme", "r_1"),
        one.transcript("acme", "s_1", limit=1),
        one.frames("acme", "r_1", from_seq=0, limit=1),
        one.follow_from("acme", "r_1"),
        one.cursors(),
    ]


async def test_every_question_about_runs_is_confined_to_a_tenant() -> None:
    reader = Asked()
    for asked in questions(projection(reader)):
        await asked
    assert len(reader.statements) == 9
    assert all(".tenant = " in statement for statement in reader.statements[:8])


@pytest.mark.parametrize("error", [Transient("gone", kind="network"), Permanent("no table", kind="not_found")])
async def test_whatever_goes_wrong_is_one_answer(error: Exception) -> None:
    for asked in questions(projection(Asked(error))):
        actual = await declined(asked)
        assert actual.code == "projection_unavailable"
        assert actual.__cause__ is error


async def test_a_server_that_does_not_answer_is_given_up_within_the_bound() -> None:
    reader = Asked(hangs=True)
    actual = await declined(projection(reader, wait_s=0.02).run("acme", "r_1"))
    assert actual.code == "projection_unavailable"
    assert not reader.ended.is_set(), "the driver's own end is not waited for"
    reader.may_end.set()
    async with asyncio.timeout(30):
        await reader.ended.wait()


async def test_a_caller_who_leaves_takes_the_question_along() -> None:
    reader = Asked(hangs=True)
    asking = asyncio.create_task(cast(Any, projection(reader).run("acme", "r_1")))
    while not reader.statements:
        await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    assert asking.cancelled()
    reader.may_end.set()
    async with asyncio.timeout(30):
        await reader.ended.wait()
