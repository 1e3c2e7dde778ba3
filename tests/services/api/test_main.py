"""The process: what it prints, what it refuses to start with, and a whole life over a real broker and Postgres."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import httpx
import orjson
import pytest

from loomlog.connectors.storage.postgres import PostgresOptions, connect
from loomlog.projections.engine.builds import Builds
from loomlog.redpanda.apply import apply
from loomlog.services.api import main as api_main
from loomlog.services.api.main import ApiServer, _server_config, main
from loomlog.services.api.process import end_streams
from tests.services.api.serving import served
from tests.services.application.world import ADMIN_CALLER

WAIT_S = 40.0
FILES = "agents: { soaker: { provider: mock, model: mock-generic } }\n"


def test_the_document_can_be_printed_without_any_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--print-openapi"]) == 0
    assert "/v1/runs" in orjson.loads(capsys.readouterr().out)["paths"]


def test_an_unknown_argument_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--serve"]) == 2
    assert "usage" in capsys.readouterr().err


async def ended(environ: Mapping[str, str], folder: Path) -> tuple[int, str]:
    """Exit code and stderr of the process under that environment."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "loomlog.services.api.main",
        cwd=folder,
        env=surroundings(environ),
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(WAIT_S):
        _, error = await process.communicate()
    assert process.returncode is not None
    return process.returncode, error.decode()


def surroundings(environ: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOOMLOG_", "LOOMCYCLE_"))}
    return {**kept, "PYTHONPATH": str(Path(__file__).parents[3]), **environ}


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"LOOMLOG_OPEN_MODE": "1"}, "LOOMLOG_KAFKA is not set"),
        ({"LOOMLOG_OPEN_MODE": "1", "LOOMLOG_KAFKA": "127.0.0.1:1"}, "LOOMLOG_POSTGRES is not set"),
        ({"LOOMLOG_KAFKA": "127.0.0.1:1", "LOOMLOG_POSTGRES": "postgresql://x@127.0.0.1:1/x"}, "there is no token"),
        (
            {
                "LOOMLOG_KAFKA": "127.0.0.1:1",
                "LOOMLOG_POSTGRES": "postgresql://x@127.0.0.1:1/x",
                "LOOMLOG_OPEN_MODE": "1",
                "LOOMLOG_LISTEN_ADDR": "0.0.0.0:18080",
            },
            "no loopback address",
        ),
        ({"LOOMLOG_LISTEN_ADR": "x"}, "LOOMLOG_LISTEN_ADR is not a setting"),
    ],
)
def test_what_cannot_work_is_said_in_a_sentence(
    environ: Mapping[str, str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in [name for name in os.environ if name.startswith(("LOOMLOG_", "LOOMCYCLE_"))]:
        monkeypatch.delenv(name)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    assert main() == 2
    assert says in capsys.readouterr().err


async def test_a_tier_that_leads_nowhere_ends_the_start_and_a_key_that_only_runtimes_have_does_not(
    tmp_path: Path,
) -> None:
    environ = {"LOOMLOG_KAFKA": "127.0.0.1:1", "LOOMLOG_POSTGRES": "postgresql://x@127.0.0.1:1/x"}
    file = tmp_path / "loomlog.yaml"
    output = []
    for model in ("{ provider: mock, model: m }", "{ provider: openai, model: m }"):
        file.write_text(f"provider_priority: [mock, openai]\ntiers: {{low: [{model}]}}\nagents: {{a: {{tier: low}}}}\n")
        _, error = await ended({**environ, "LOOMLOG_CONFIG_FILES": str(file)}, tmp_path)
        assert "Traceback" not in error
        output.append("resolves to nothing" in error)
    assert output == [True, False]


async def test_who_is_not_answered_before_a_stop_gets_json_on_the_wire(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loomlog.services.api.main.GRACE_S", 0.01)
    asked = asyncio.Event()

    async def waits(*_: object, **__: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    async with served(tmp_path) as here:
        monkeypatch.setattr(here.world.layer.queries, "agent", waits)
        server = ApiServer(_server_config(here.service, 1_024), on_stopping=lambda: end_streams(here.service))
        with socket.create_server(("127.0.0.1", 0)) as listening:
            host, port = listening.getsockname()
            serving = asyncio.create_task(server.serve([listening]))
            headers = {"Authorization": f"Bearer {ADMIN_CALLER.name}-token"}
            async with httpx.AsyncClient(base_url=f"http://{host}:{port}", headers=headers) as client:
                cut_off = asyncio.create_task(client.get("/v1/agents/a_1"))
                async with asyncio.timeout(WAIT_S):
                    await asked.wait()
                    server.should_exit = True
                    answer = await cut_off
                    await serving
    assert (answer.status_code, answer.headers["content-type"]) == (503, "application/json")
    assert (answer.json()["code"], answer.headers["retry-after"]) == ("stopping", "1")


@pytest.mark.integration
@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nhost: t\r\nx-slow: "], ids=["nothing", "half"])
async def test_a_connection_without_complete_headers_is_closed(
    sent: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_main, "HEADERS_WAIT_S", 0.05)
    async with served(tmp_path) as here:
        listening = socket.create_server(("127.0.0.1", 0))
        server = ApiServer(_server_config(here.service, 1_000_000), on_stopping=lambda: None)
        serving = asyncio.create_task(server.serve([listening]))
        reader, writer = await asyncio.open_connection(*listening.getsockname()[:2])
        writer.write(sent)
        async with asyncio.timeout(WAIT_S):
            assert await reader.read() == b""
        writer.close()
        async with httpx.AsyncClient() as client:
            whole = await client.get("http://{}:{}/healthz".format(*listening.getsockname()[:2]))
        assert whole.status_code == 200
        server.should_exit = True
        await serving


async def check_log(client: httpx.AsyncClient) -> None:
    """Read topics, records, dead letters, checkpoints and health of the real broker, and verify it."""
    topics = {one["name"]: one for one in (await client.get("/v1/_log/topics")).json()["topics"]}
    events = topics["loom.run.events"]
    assert (events["retention_ms"], len(events["partitions"]) > 0) == (None, True)
    assert topics["loom.run.commands"]["retention_ms"] == 14 * 86_400_000
    page = (await client.get("/v1/_log/topics/run.events/0?from=2026-01-01T00:00:00Z")).json()
    assert page["end_offset"] == events["partitions"][0]["next_offset"]
    assert "letters" in (await client.get("/v1/_dead_letters")).json()
    assert "checkpoints" in (await client.get("/v1/_audit/checkpoints")).json()
    checks = {one["name"]: one for one in (await client.get("/v1/_doctor")).json()["checks"]}
    assert [checks[name]["state"] for name in ("broker", "postgres", "topics")] == ["ok"] * 3, checks
    verified = await client.post("/v1/_audit/verify", json={"partition": 0})
    assert "event: result" in verified.text, verified.text


async def test_a_process_serves_waits_for_what_is_missing_and_stops_quickly(
    kafka: str, postgres: str, tmp_path: Path
) -> None:
    await apply(kafka)
    async with await connect(PostgresOptions(dsn=postgres)) as connection:
        await Builds(connection).prepare()  # as a projector does
    (tmp_path / "loomlog.yaml").write_text(FILES)
    environ = {
        "LOOMLOG_KAFKA": kafka,
        "LOOMLOG_POSTGRES": postgres,
        "LOOMLOG_AUTH_TOKEN": "a-token-for-tests",
        "LOOMLOG_LISTEN_ADDR": "127.0.0.1:0",
        "LOOMLOG_CONFIG_FILES": str(tmp_path / "loomlog.yaml"),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "loomlog.services.api.main",
        cwd=tmp_path,
        env=surroundings(environ),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(WAIT_S):
            line = b""
            while b"listening on" not in line:
                line = await process.stderr.readline()
                assert line, "the process ended"
            address = line.decode().split("listening on ")[1].split()[0]
            headers = {"Authorization": "Bearer a-token-for-tests"}
            async with httpx.AsyncClient(base_url=address, headers=headers) as client:
                assert (await client.get("/healthz")).json()["ok"] is True
                while (await client.get("/readyz")).status_code != 200:
                    await asyncio.sleep(0.05)
                assert (await client.get("/v1/_me")).json()["is_admin"] is True
                large = await client.post(
                    "/v1/runs", content=b"x" * (20 << 20), headers={"content-type": "application/json"}
                )
                assert (large.status_code, large.json()["code"]) == (413, "payload_too_large")
                answer = await client.post("/v1/runs", json={"agent": "soaker"})
                assert answer.status_code == 400
                await check_log(client)
            process.send_signal(signal.SIGTERM)
            await process.communicate()
        assert process.returncode == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
