"""Sessions that are kept: one for all callers at once, opened again with back-off, never more than fit."""

import asyncio

import pytest

from loomlog.connectors.errors import Transient
from loomlog.connectors.mcp.peer import NotSent
from loomlog.connectors.mcp.session import Session
from loomlog.connectors.mcp.session_pool import SessionKey, SessionPool

CRM = SessionKey(tenant="acme", server="crm", version="1")


class OpenSession:
    """What the pool uses of a session."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True


class Here:
    """A pool with a clock, and what was opened."""

    def __init__(self, sessions_max: int = 2) -> None:
        self.now_s = 0.0
        self.opened: list[OpenSession] = []
        self.error: Exception | None = None
        self.pool = SessionPool(now_s=lambda: self.now_s, sessions_max=sessions_max)

    async def open(self) -> Session:
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        self.opened.append(OpenSession())
        return self.opened[-1]  # type: ignore[return-value]

    async def get(self, key: SessionKey = CRM) -> OpenSession:
        return await self.pool.get(key, self.open)  # type: ignore[return-value]


@pytest.fixture
def here() -> Here:
    return Here()


async def test_callers_at_once_share_a_session_and_later_ones_keep_it(here: Here) -> None:
    first, second = await asyncio.gather(here.get(), here.get())
    assert first is second is await here.get()
    assert len(here.opened) == 1


@pytest.mark.parametrize("field", ["tenant", "server", "version", "headers"])
async def test_another_tenant_server_version_or_user_has_another_session(here: Here, field: str) -> None:
    assert await here.get() is not await here.get(CRM._replace(**{field: "other"}))


async def test_a_session_that_was_closed_is_opened_again(here: Here) -> None:
    (await here.get()).is_closed = True
    await here.get()
    assert [one.is_closed for one in here.opened] == [True, False]


async def test_a_server_that_fails_is_left_alone_for_longer_and_longer(here: Here) -> None:
    here.error = Transient("no route", kind="network")
    for delay_s in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 16.0):
        with pytest.raises(Transient, match=r"^no route"):
            await here.get()
        here.now_s += delay_s - 0.1
        with pytest.raises(NotSent, match=r"crm could not be reached, and is tried again in 0.1 s: no route"):
            await here.get()
        here.now_s += 0.2
    here.error = None
    (await here.get()).is_closed = True
    here.error = Transient("no route", kind="network")
    with pytest.raises(Transient):
        await here.get()
    here.now_s += 0.6  # what had failed before is forgotten
    with pytest.raises(Transient, match=r"^no route"):
        await here.get()


async def test_a_full_pool_closes_the_session_that_is_used_least_recently_and_none_in_use(here: Here) -> None:
    busy, idle = await here.get(), await here.get(CRM._replace(tenant="other"))
    busy.in_flight = 1
    third = await here.get(CRM._replace(tenant="third"))
    await asyncio.sleep(0)
    assert (busy.is_closed, idle.is_closed) == (False, True)
    third.in_flight = 1
    with pytest.raises(Transient, match="2 sessions in use"):
        await here.get(CRM._replace(tenant="fourth"))


async def test_the_connection_with_the_fewest_calls_is_chosen(here: Here) -> None:
    for number, in_flight in enumerate((3, 1)):
        (await here.get(CRM._replace(number=number))).in_flight = in_flight
    assert here.pool.choose(CRM, 2).number == 1
    assert here.pool.choose(CRM, 3).number == 2


async def test_closing_ends_all(here: Here) -> None:
    await here.get()
    await here.get(CRM._replace(tenant="other"))
    await here.pool.close()
    assert [one.is_closed for one in here.opened] == [True, True]
