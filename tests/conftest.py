"""One broker and one Postgres for the whole test session, started when the first test asks for them.

    kafka          HOST:PORT of a broker without topics; make yours under `topic_prefix`
    postgres       connection string of a database with pgvector; make your tables in `pg_schema`
    topic_prefix   a name no other test has, for `redpanda.apply(..., prefix=topic_prefix)`, groups, transactional ids
    pg_schema      a schema no other test has, dropped afterwards
    stack          one installation as a person has it, everything up, for the tests of commands and of the web page

LOOMLOG_KAFKA and LOOMLOG_POSTGRES use servers that run already. What the stack caches (jars, class archive) is kept in
.loomlog/cache, so only the first session on a machine is slow.
"""

import gc
import logging
import os
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, settings

from loomlog.services.cli.stack.home import open_home
from loomlog.services.cli.stack.local import LocalStack, local_stack
from tests.acceptance.installation import Installation, running_installation

# Hundreds of processes are started: with bytecode kept, what they import is compiled once and not in each of them.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# An example that takes long, or is long in the making, tells of the machine and not of the code.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# A background job of a shell has SIGINT ignored, and so would every program that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Looking for garbage as often as Python does took a quarter of the time of tests that make an application each.
gc.set_threshold(50_000)

CACHE = Path(__file__).parent.parent / ".loomlog" / "cache"


def pytest_collection_finish() -> None:
    # Modules and tests stay to the end. Looking for garbage among them again and again took a twelfth of all time.
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """What a program that a test runs within this process does to its logging ends with the test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    if root.handlers != handlers:
        root.handlers = handlers
    if root.level != level:
        root.setLevel(level)


@pytest.fixture(scope="session")
def session_folder() -> Iterator[Path]:
    """Where broker and Postgres of this session keep their files, when they are its own."""
    # Not pytest's own temporary folder: those of three sessions are kept, and a broker's is large.
    folder = Path(tempfile.mkdtemp(prefix="loomlog-tests-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def session_stack(session_folder: Path) -> AsyncIterator[LocalStack]:
    """Broker and Postgres of this session, on free ports."""
    async with local_stack(
        open_home(session_folder, cache=CACHE),
        report=print,
        environ=os.environ,
        kafka=os.environ.get("LOOMLOG_KAFKA"),
        postgres=os.environ.get("LOOMLOG_POSTGRES"),
        kafka_port=0,
        postgres_port=0,
    ) as stack:
        yield stack


@pytest.fixture(scope="session")
def stack() -> Iterator[Installation]:
    with running_installation("acceptance") as installation:
        yield installation


@pytest.fixture(scope="session")
def kafka(session_stack: LocalStack) -> str:
    return session_stack.kafka


@pytest.fixture(scope="session")
def postgres(session_stack: LocalStack) -> str:
    return session_stack.postgres


@pytest.fixture
def topic_prefix() -> str:
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest_asyncio.fixture(loop_scope="session")
async def pg_schema(postgres: str) -> AsyncIterator[str]:
    name = f"test_{uuid.uuid4().hex[:12]}"
    async with await psycopg.AsyncConnection.connect(postgres, autocommit=True) as connection:
        await connection.execute(f"CREATE SCHEMA {name}")
    yield name
    async with await psycopg.AsyncConnection.connect(postgres, autocommit=True) as connection:
        await connection.execute(f"DROP SCHEMA {name} CASCADE")
