"""A key that came with a run, once for each driver: it is sent instead of the driver's own, and is in no message."""

import logging

import pytest

from loomlog.connectors.errors import ConnectorError, Permanent
from loomlog.connectors.models.provider_client import ProviderClient
from loomlog.connectors.protocols import Model, ModelRequest
from loomlog.schemas.records import replace
from tests.connectors.models import fault_server
from tests.connectors.models.samples import request
from tests.connectors.models.test_faults import DRIVERS, KEY, Driver, talking

THEIRS = "sk-of-the-run"
HEADERS = {
    "anthropic": ("x-api-key", "{}"),
    "openai": ("authorization", "Bearer {}"),
    "deepseek": ("authorization", "Bearer {}"),
    "gemini": ("x-goog-api-key", "{}"),
    "ollama": ("authorization", "Bearer {}"),
}

each_driver = pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.name)


async def said(model: Model, asked: ModelRequest) -> None:
    async for _ in model.stream(asked):
        pass


@each_driver
async def test_the_key_of_a_run_is_sent_instead_of_the_drivers_own_and_for_that_call_only(driver: Driver) -> None:
    name, form = HEADERS[driver.name]
    theirs = replace(request(), api_key=THEIRS)
    async with talking(driver, driver.stream(driver.frames)) as (model, server):
        for asked in (request(), theirs, request()):
            await said(model, asked)
        sent = [received.headers[name] for received in server.requests if received.method == "POST"]
        connections = server.connections
    assert sent == [form.format(key) for key in (KEY, THEIRS, KEY)]
    assert connections == 1


@each_driver
async def test_a_provider_without_a_key_of_the_operator_takes_that_of_a_run(driver: Driver) -> None:
    name, form = HEADERS[driver.name]
    async with talking(driver, driver.stream(driver.frames), api_key="") as (model, server):
        setattr(model, "_is_hosted" if driver.name == "ollama" else "_needs_key", True)
        with pytest.raises(Permanent, match="no API key"):
            await said(model, request())
        assert server.requests == []
        await said(model, replace(request(), api_key=THEIRS))
        assert {received.headers[name] for received in server.requests} == {form.format(THEIRS)}


@each_driver
async def test_no_failure_shows_the_key_of_a_run(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    theirs = replace(request(), api_key=THEIRS)
    assert THEIRS not in repr(theirs)
    async with talking(driver, fault_server.error(401, f"bad key {THEIRS}")) as (model, _):
        with pytest.raises(ConnectorError) as refused:
            await said(model, theirs)
    assert str(refused.value) == "some 401: bad key [key]"
    echoed = driver.overloaded.replace(b"Overloaded", f"Overloaded by {THEIRS}".encode())
    async with talking(driver, driver.stream([*driver.frames[: driver.cut], echoed])) as (model, _):
        with pytest.raises(ConnectorError) as broken:
            await said(model, theirs)
    assert "Overloaded by [key]" in str(broken.value)
    assert THEIRS not in caplog.text


async def test_a_key_of_a_run_that_is_no_header_is_refused_without_showing_it() -> None:
    wire = ProviderClient(provider="some", base_url="http://127.0.0.1:1", headers={}, secret=KEY)
    with pytest.raises(Permanent, match="the credential that came with the run") as caught:
        wire.with_key("sk 1\n", {})
    await wire.close()
    assert "sk 1" not in str(caught.value)
