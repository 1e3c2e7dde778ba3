"""Streams end when the token that opened them expires; test_identity_endpoints.py has tokens that are taken back."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest_asyncio

from loomlog.services.application.authentication import Authenticator
from tests.connectors.identity_providers.provider import Provider, providers_of
from tests.services.api.serving import Served, Wire, served
from tests.services.application.world import tokens

STATES = "/v1/users/ann/agents/stream"
LIFETIME_S, LEEWAY_S = 600, 60


@dataclass(slots=True)
class Clock:
    """Seconds of the day, later by what a test says."""

    later_s: float = 0

    def __call__(self) -> float:
        return time.time() + self.later_s


@pytest_asyncio.fixture(loop_scope="session")
async def clock() -> Clock:
    return Clock()


@pytest_asyncio.fixture(loop_scope="session")
async def provider() -> Provider:
    return Provider()


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path, provider: Provider, clock: Clock) -> AsyncIterator[Served]:
    gate = Authenticator(tokens(), providers=providers_of(provider), time_s=clock)
    async with served(tmp_path, authenticator=gate) as made:
        yield made


def opened(here: Served, token: str) -> Wire:
    stream = Wire(here.app, "GET", STATES, caller=None)
    stream.header("authorization", f"Bearer {token}").begin()
    return stream


async def test_a_stream_ends_when_the_token_of_a_provider_expires(
    here: Served, provider: Provider, clock: Clock
) -> None:
    short, long = opened(here, provider.token()), opened(here, provider.token(exp=int(time.time()) + 2 * LIFETIME_S))
    await short.until("stream_open")
    await long.until("stream_open")
    clock.later_s = LIFETIME_S + LEEWAY_S - 10
    here.service.open_access.end_revoked()
    assert not short.ended
    clock.later_s = LIFETIME_S + LEEWAY_S + 1
    here.service.open_access.end_revoked()
    assert "ended: the token gives no access any more" in await short.done()
    assert not long.ended
    long.leave()


async def test_expiry_is_looked_for_all_the_time(here: Served, provider: Provider, clock: Clock) -> None:
    stream = opened(here, provider.token())
    await stream.until("stream_open")
    clock.later_s = LIFETIME_S + LEEWAY_S + 1
    looking = asyncio.create_task(here.service.open_access.run())
    assert "ended:" in await stream.done()
    looking.cancel()
