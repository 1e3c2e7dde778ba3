"""A run with encrypted content over a real broker and Postgres: the files and the tables hold no word of it.

The name of the agent is not encrypted and is looked for with the words, so that a search that finds nothing fails.
"""

import asyncio
import base64
from dataclasses import replace
from pathlib import Path

import orjson
import psycopg
import pytest

from loomlog.connectors.configuration.load import load
from loomlog.connectors.crypto.content_encryption import load_key_encryption_keys
from loomlog.connectors.storage.blobs import FileBlobs
from loomlog.services.application.bootstrap import Endpoints
from loomlog.services.application.runs.requests import RunRequest
from loomlog.services.cli.stack.home import Home
from loomlog.services.core.refusals import StartProblem
from loomlog.services.runtime import main, topics
from tests.services.application.test_bootstrap import layer_of, places, projecting
from tests.services.application.world import ADMIN_CALLER, IVY, pieces_of, types_of
from tests.services.runtime.names import names_under
from tests.services.runtime.test_process import stopped

__all__ = ["places"]
WAIT_S = 60.0
PROMPT, NOTE = "ivys-own-words-aardvark", "ivys-own-note-badger"
KEY = base64.b64encode(b"k" * 32).decode()
CONFIGURATION = """
providers:
  mock: { driver: mock, options: { enabled: true, latency_ms: 0, latency_jitter_ms: 0 } }
agents:
  visible-agent: { provider: mock, model: mock-a3x2, tools: [Bench] }
"""


def found_in(folder: Path, words: list[str]) -> set[str]:
    """The words that stand in any file below the folder."""
    found = set()
    for file in folder.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            found |= {word for word in words if word.encode() in content}
    return found


async def rows_of(postgres: str, prefix: str) -> str:
    """Everything in the tables of the read models, as text."""
    told = []
    async with await psycopg.AsyncConnection.connect(postgres, autocommit=True) as connection:
        tables = await (
            await connection.execute(
                "SELECT schemaname, tablename FROM pg_tables WHERE starts_with(schemaname, %s)", (prefix,)
            )
        ).fetchall()
        for schema, table in tables:
            place = psycopg.sql.Identifier(schema, table)
            query = psycopg.sql.SQL("SELECT t::text FROM {} AS t").format(place)
            told += [row[0] for row in await (await connection.execute(query)).fetchall()]
    return "\n".join(told)


@pytest.mark.integration
async def test_neither_the_brokers_files_nor_the_tables_hold_what_was_said(
    kafka: str,
    postgres: str,
    session_folder: Path,
    topic_prefix: str,
    places: Endpoints,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    for name, value in names_under(topic_prefix).items():
        monkeypatch.setattr(topics, name, value)
    (tmp_path / "loomlog.yaml").write_text(CONFIGURATION)
    environ = {
        "LOOMLOG_KAFKA": kafka,
        "LOOMLOG_POSTGRES": postgres,
        "LOOMLOG_CONFIG_FILES": str(tmp_path / "loomlog.yaml"),
        "LOOMLOG_ENCRYPTION_KEY": KEY,
        "LOOMLOG_BENCH_ENABLED": "1",
        "LOOMLOG_BLOB_FOLDER": str(tmp_path / "blobs"),
        "LOOMLOG_RUNTIME_METRICS_PORT": "0",
    }
    given = load_key_encryption_keys(text=KEY, file=None, previous="")
    places = replace(places, blobs=FileBlobs(tmp_path / "blobs"), key_encryption_keys=given)
    process = asyncio.create_task(main.run(load(environ, working_directory=tmp_path)))
    try:
        async with asyncio.timeout(WAIT_S), projecting(places), layer_of(places) as layer:
            while "is up" not in caplog.text:
                assert not process.done(), process
                await asyncio.sleep(0.05)
            request = RunRequest(agent="visible-agent", prompt=PROMPT, metadata={"note": NOTE})
            accepted = await layer.runs.start(IVY, request)
            pieces = await pieces_of(accepted.stream)
            assert types_of(pieces)[-1] == "done"
            frames = [orjson.loads(piece.data) for piece in pieces if piece.type in ("text", "tool_result")]
            said = [frame["text"][:60] for frame in frames]
            assert len(said) == 5, "three turns and two results"
            await layer.barrier.wait_for([accepted.position])
            row = await layer.queries.run(IVY, accepted.run_id)
            assert NOTE in row.metadata

            rows = await rows_of(postgres, places.read_model_prefix)
            words = [PROMPT, NOTE, *said]
            assert not [word for word in words if word in rows]
            assert "visible-agent" in rows
            home = Home(root=session_folder, cache=session_folder)
            # Servers that ran before the tests (LOOMLOG_KAFKA, LOOMLOG_POSTGRES) do not show their files.
            if home.kafka_data.exists():
                logs = [one for one in home.kafka_data.iterdir() if one.name.startswith(topic_prefix)]
                found = set[str]().union(*[found_in(one, ["visible-agent", *words]) for one in logs])
                assert found == {"visible-agent"}
            if home.postgres_data.exists():
                # The projector's commits do not wait for the disk.
                while "visible-agent" not in found_in(home.postgres_data, ["visible-agent"]):
                    await asyncio.sleep(0.05)
                assert found_in(home.postgres_data, ["visible-agent", *words]) == {"visible-agent"}

            await layer.erasure.erase(ADMIN_CALLER, "acme", IVY.subject)
            shown = b"".join(piece.data for piece in await pieces_of(await layer.queries.stream(IVY, accepted.run_id)))
            assert b"[erased]" in shown
            assert not [word for word in words if word.encode() in shown]
            assert not (await layer.histories.replay(IVY, accepted.run_id)).drift
            report = await layer.erasure.report(ADMIN_CALLER, "acme", IVY.subject)
            assert (report.findings.frames_in_clear, [key.erasure is None for key in report.keys]) == (0, [False])
    finally:
        await stopped(process, is_up="is up" in caplog.text)
    assert not [word for word in words if word in caplog.text]


@pytest.mark.integration
async def test_an_encrypted_log_is_not_opened_without_its_key(places: Endpoints) -> None:
    given = load_key_encryption_keys(text=KEY, file=None, previous="")
    async with asyncio.timeout(WAIT_S):
        async with layer_of(replace(places, key_encryption_keys=given)) as layer:
            assert layer.keys is not None
            await layer.keys.cipher_for("acme", "ivy")
        with pytest.raises(StartProblem, match="LOOMLOG_ENCRYPTION_KEY is not set"):
            async with layer_of(places):
                pass
        other = load_key_encryption_keys(text=base64.b64encode(b"o" * 32).decode(), file=None, previous="")
        with pytest.raises(StartProblem, match="set the right one"):
            async with layer_of(replace(places, key_encryption_keys=other)):
                pass
