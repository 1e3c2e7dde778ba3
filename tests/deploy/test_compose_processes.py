"""Every process of compose.yaml, started with exactly its environment: only the addresses of other machines differ."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import psycopg
import pytest

from loomlog.services.cli.stack.ports import pick_port
from tests.deploy.test_compose import COMPOSE, example
from tests.waiting import until

ROOT = Path(__file__).parents[2]
TOKEN = "a token of this test"
EXIT_S = 30.0
REVIEW = {"agent": "reviewer", "prompt": "go"}
REVIEWS = 4


def expand(text: str, variables: dict[str, str]) -> str:
    """Fill in ${NAME}, ${NAME:-default} and ${NAME:?message} as compose does."""
    while (start := text.find("${")) >= 0:
        end = text.index("}", start)
        name, _, default = text[start + 2 : end].partition(":")
        value = variables.get(name, "")
        assert value or not default.startswith("?"), f"{name} has to be set"
        text = text[:start] + (value or default.removeprefix("-")) + text[end + 1 :]
    return text


class Containers:
    """The processes, each with a working folder like the image's."""

    def __init__(self, folder: Path, *, kafka: str, postgres: str) -> None:
        self._folder, self._kafka, self._postgres = folder, kafka, postgres
        self.files = folder / "srv"
        self.api = f"127.0.0.1:{pick_port()}"
        self.ports = [pick_port() for _ in range(3)]
        self.insights_port = pick_port()
        shutil.copytree(ROOT / "docs" / "examples", self.files / "review")
        shutil.copy(ROOT / "loomlog.yaml", self.files)

    def environment(self, service: str, replica: int = 0) -> dict[str, str]:
        variables = example() | {"POSTGRES_PASSWORD": "p", "LOOMLOG_AUTH_TOKEN": TOKEN}
        given = COMPOSE["services"][service]["environment"]
        environ = {name: expand(str(value), variables) for name, value in given.items()}
        there = {
            "LOOMLOG_KAFKA": self._kafka,
            "LOOMLOG_POSTGRES": self._postgres,
            "LOOMLOG_CONFIG_FILES": str(self.files / "loomlog.yaml"),
            "LOOMLOG_LISTEN_ADDR": self.api,
            "LOOMLOG_STANDBY_ADDR": f"0.0.0.0:{self.ports[replica]}",
            "LOOMLOG_INSIGHTS_HOST": "127.0.0.1",
            "LOOMLOG_INSIGHTS_URL": f"http://127.0.0.1:{self.insights_port}",
        }
        environ |= {name: address for name, address in there.items() if name in environ}
        # What the image sets.
        return environ | {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "LOOMLOG_HOME": str(self._folder / "home"),
            "LOOMLOG_INSIGHTS_PORT": str(self.insights_port),
        }

    @contextmanager
    def running(self, service: str, replica: int = 0) -> Iterator["subprocess.Popen[bytes]"]:
        command = [sys.executable, "-m", *COMPOSE["services"][service]["command"]]
        with (self._folder / f"{service}-{replica}.log").open("wb") as output:
            process = subprocess.Popen(
                command, cwd=self.files, env=self.environment(service, replica), stdout=output, stderr=output
            )
        try:
            yield process
        finally:
            if process.poll() != -signal.SIGKILL:
                process.terminate()
                code = process.wait(EXIT_S)
                assert code == 0, f"{service}: {(self._folder / f'{service}-{replica}.log').read_text()[-2_000:]}"

    def run(self, service: str) -> None:
        command = [sys.executable, "-m", *COMPOSE["services"][service]["command"]]
        subprocess.run(command, cwd=self.files, env=self.environment(service), check=True, timeout=60)


@pytest.fixture
def containers(tmp_path: Path, kafka: str, postgres: str) -> Iterator[Containers]:
    database = f"compose_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {database}")
    address = psycopg.conninfo.make_conninfo(postgres, dbname=database)
    parts = psycopg.conninfo.conninfo_to_dict(address)
    dsn = f"postgresql://{parts['user']}@{parts['host']}:{parts['port']}/{database}?passfile={parts['passfile']}"
    yield Containers(tmp_path, kafka=kafka, postgres=dsn)
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {database} WITH (FORCE)")


async def test_the_processes_of_compose_review_a_folder_while_a_runtime_dies(
    containers: Containers,
) -> None:
    containers.run("topics")
    with ExitStack() as processes:
        for service in ("api", "projector", "insights"):
            processes.enter_context(containers.running(service))
        processes.enter_context(containers.running("runtime", 1))
        client = httpx.AsyncClient(
            base_url=f"http://{containers.api}", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60
        )
        async with client:
            await until(lambda: _is_ready(client), within_s=60)
            await until(lambda: _has_insights(client))
            healthcheck = COMPOSE["services"]["runtime"]["healthcheck"]["test"]
            probe = [sys.executable, *healthcheck[2:-1], healthcheck[-1].replace("7950", str(containers.ports[1]))]
            await until(lambda: subprocess.run(probe, check=False, stderr=subprocess.DEVNULL).returncode == 0)
            with containers.running("runtime", 2) as second:
                async with asyncio.TaskGroup() as group:
                    reviewing = [group.create_task(client.post("/v1/runs", json=REVIEW)) for _ in range(REVIEWS)]
                    await until(lambda: _is_started(client))
                    second.kill()
                second.wait()
            answers = [task.result() for task in reviewing]
            assert [answer.status_code for answer in answers] == [200] * REVIEWS
            assert ["event: done" in answer.text for answer in answers] == [True] * REVIEWS
    report = next(containers.files.rglob("report.md")).read_text()
    assert "follow_events.py" in report


async def _has_insights(client: httpx.AsyncClient) -> bool:
    return (await client.get("/v1/_insights")).status_code == 200


async def _is_ready(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/v1/runs")).status_code == 200
    except httpx.TransportError:
        return False


async def _is_started(client: httpx.AsyncClient) -> bool:
    return bool((await client.get("/v1/runs")).json()["runs"])
