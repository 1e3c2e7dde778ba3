"""The listener: health, reflection, TLS and limits."""

import subprocess
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from loomlog.services.core.refusals import StartProblem
from loomlog.services.grpc.messages import SERVICE, message_class
from loomlog.services.grpc.server import listen
from tests.services.application.world import until
from tests.services.grpc.serving import MESSAGE_BYTES_MAX, refusal, served, user_text

SELF_SIGNED = (
    *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
    *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
)


async def reflected(channel: grpc.aio.Channel) -> list[str]:
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    async for answer in stub.ServerReflectionInfo(iter([asked])):
        return [service.name for service in answer.list_services_response.service]
    return []


async def test_health_needs_no_token_and_says_when_the_service_serves(tmp_path: Path):
    for is_ready, expected in ((True, "SERVING"), (False, "NOT_SERVING")):
        async with served(tmp_path, is_ready=is_ready) as here:
            for name in ("", SERVICE):
                check = health_pb2.HealthCheckRequest(service=name)
                state = await health_pb2_grpc.HealthStub(here.channel).Check(check)
                assert health_pb2.HealthCheckResponse.ServingStatus.Name(state.status) == expected


async def test_reflection_is_on_only_where_it_is_switched_on(tmp_path: Path):
    async with served(tmp_path, has_reflection=True) as here:
        assert await reflected(here.channel) == [SERVICE]
    async with served(tmp_path) as here:
        with pytest.raises(grpc.aio.AioRpcError) as missing:
            await reflected(here.channel)
        assert missing.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_message_beyond_the_limit_is_refused_and_others_go_on(tmp_path: Path):
    async with served(tmp_path) as here:
        large = here.call("Run", agent="soaker", segments=user_text("x" * (MESSAGE_BYTES_MAX + 1)))
        assert (await refusal(large)).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert [event.type for event in await here.run()][-1] == "done"


async def test_a_slow_reader_does_not_slow_others(tmp_path: Path):
    async with served(tmp_path) as here:
        slow = [here.call("Run", agent="soaker", segments=user_text("x" * 50_000)) for _ in range(20)]
        assert [event.type for event in await here.run()][-1] == "done"
        for call in slow:
            call.cancel()
        await until(lambda: here.service.shares.open_streams == 0)


async def test_an_address_that_is_taken_names_the_setting(tmp_path: Path):
    async with served(tmp_path) as here:
        second = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        with pytest.raises(StartProblem, match="LOOMLOG_GRPC_ADDR"):
            listen(second, here.address, certificate=None, key=None)
        await second.stop(None)


async def test_with_a_certificate_only_tls_is_spoken(tmp_path: Path):
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [*SELF_SIGNED, "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    async with served(tmp_path, certificate=certificate, key=key) as here:
        assert (await refusal(here.call("Health", caller=None, timeout_s=1.0))).code() is not grpc.StatusCode.OK
        trusted = grpc.ssl_channel_credentials(certificate.read_bytes())
        async with grpc.aio.secure_channel(f"localhost:{here.address.rpartition(':')[2]}", trusted) as channel:
            raw = await channel.unary_unary(f"/{SERVICE}/Health")(b"", timeout=30)
            assert message_class("HealthResponse").FromString(raw).ok


async def test_a_missing_certificate_names_the_setting(tmp_path: Path):
    server = grpc.aio.server()
    with pytest.raises(StartProblem, match="LOOMLOG_GRPC_TLS_CERT"):
        listen(server, "127.0.0.1:0", certificate=tmp_path / "none", key=tmp_path / "none")
    await server.stop(None)


async def test_a_reader_that_takes_nothing_is_dropped_and_its_run_goes_on(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("loomlog.services.grpc.streams.WRITE_WAIT_S", 0.2)
    async with served(tmp_path) as here:
        call = here.call("Run", agent="silent", segments=user_text("go"))
        run_id = here.world.commands()[0].run_id if await call.read() else ""
        here.world.reply(run_id, text="x" * 5_000_000)
        await until(lambda: here.service.shares.open_streams == 0)
        assert [event.type for event in await here.run()][-1] == "done"
