"""The local broker: Apache Kafka in one JVM, formatted once, started from an archive of its loaded classes.

First start: the jars (java.py), then the storage is formatted by Kafka's own StorageTool (0.5 s), into a folder that
gets its name only when it is complete. Every start: server.properties is written from the template with the current
ports.

The archive (AppCDS) halves the start time. The JVM writes it at its exit, so the first clean stop creates it and no
start waits for it. Its name depends on Java build, flags and jars; it is never required (-Xshare:auto), checked by the
JVM when it is mapped, and deleted when a broker that used it dies before it was ready.

Not chosen: writing the storage's files ourselves (half a second, once, against a format that Kafka may change).

Before: local.  After: children, loomlog.redpanda.cluster (the readiness check).
"""

import asyncio
import base64
import hashlib
import os
import shutil
import signal
import string
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from loomlog.redpanda.cluster import ClusterProblem, ask
from loomlog.services.cli.stack.child import ChildExit, ChildSpec
from loomlog.services.cli.stack.errors import StackError
from loomlog.services.cli.stack.home import RESTART_FREE_BYTES, Home, require_space, write_atomically
from loomlog.services.cli.stack.java import LOCAL_BROKER, Java, find_java, resolve_jars
from loomlog.services.cli.stack.oneshot import run_program
from loomlog.services.cli.stack.ports import LOOPBACK

NAME = "kafka"
MAIN_CLASS = "kafka.Kafka"
# Warm 1 s; without an archive on a busy small machine up to 15 s; the rest is for recovering a large log.
READY_TIMEOUT_S = 90.0
# A clean stop takes 0.3 s, the one that writes the archive 2 s.
STOP_TIMEOUT_S = 8.0
FORMAT_TIMEOUT_S = 60.0
PROBE_TIMEOUT_S = 3.0
# An unfinished archive of this age was abandoned; writing one takes seconds.
UNFINISHED_ARCHIVE_S = 600.0
# One is used; others are for another Java or older jars. 50 MB each.
MAX_ARCHIVES = 3
# 60 MB of live data here (buffers, indexes, group state), the rest is for bursts. On the few processors of a local
# stack the serial collector is the fastest: its pauses are as long as G1's (9 ms here), it marks nothing concurrently,
# and large pages save address lookups. Perf data would be a file in /tmp synced on every change; out of memory ends the
# process, which is then restarted.
JVM_FLAGS = (
    "-Xms192m", "-Xmx512m", "-Xmn32m", "-XX:+UseSerialGC", "-XX:+AlwaysPreTouch", "-XX:+UseTransparentHugePages",
    "-XX:+ExitOnOutOfMemoryError", "-XX:-UsePerfData", "-Djava.awt.headless=true", "-Dfile.encoding=UTF-8",
)  # fmt: skip
FORMAT_FLAGS = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
# The JVM's exit codes after a clean stop with SIGTERM.
CLEAN_EXIT_CODES = (0, 128 + signal.SIGTERM)
# It was killed: no fault of the archive.
KILLED_EXIT_CODES = (-signal.SIGKILL, -signal.SIGTERM, *CLEAN_EXIT_CODES)


class Broker:
    """The broker of one state folder as a child to supervise: `supervisor.start(Broker(...).child())`."""

    def __init__(
        self, *, home: Home, port: int, controller_port: int, environ: Mapping[str, str], report: Callable[[str], None]
    ) -> None:
        self.bootstrap = f"{LOOPBACK}:{port}"
        self._home = home
        self._ports = {"kafka_port": str(port), "controller_port": str(controller_port)}
        self._environ = environ
        self._report = report
        self._java: Java | None = None
        self._archive: Path | None = None
        self._used_archive = False
        self._cluster_id = ""

    def child(self) -> ChildSpec:
        return ChildSpec(
            name=NAME,
            environment=server_environment(self._environ),
            url=self.bootstrap,
            ready=self._check_ready,
            ready_timeout_s=READY_TIMEOUT_S,
            stop_signal=signal.SIGTERM,
            stop_timeout_s=STOP_TIMEOUT_S,
            orphan_signal=signal.SIGTERM,
            before_start=self._before_start,
            after_exit=self._after_exit,
        )

    async def _before_start(self) -> tuple[str, ...]:
        require_space(self._home.root, minimum_bytes=RESTART_FREE_BYTES)
        if self._java is None:
            self._java = await find_java(self._environ)
        jars = await resolve_jars(self._home.cache, self._environ, self._report)
        await asyncio.to_thread(self._write_settings, jars)
        await self._format_storage(self._java, jars)
        self._archive = await asyncio.to_thread(archive_path, self._home.cache, self._java, jars)
        self._used_archive = self._archive.exists()
        sharing: tuple[str, ...]
        if self._used_archive:
            # Verified, because a flipped bit in it would be executed as code; costs 50 ms.
            sharing = (f"-XX:SharedArchiveFile={self._archive}", "-Xshare:auto", "-XX:+VerifySharedSpaces")
        else:
            sharing = (f"-XX:ArchiveClassesAtExit={self._temporary_archive(self._archive)}", "-Xshare:auto")
        return (
            str(self._java.program), *JVM_FLAGS, *sharing, "-Xlog:cds=off", "-Xlog:cds+dynamic=off",
            f"-Djava.io.tmpdir={self._home.kafka / 'tmp'}", f"-XX:ErrorFile={self._home.logs / 'kafka-crash-%p.log'}",
            f"-Dlog4j2.configurationFile={LOCAL_BROKER / 'log4j2.properties'}", f"@{self._class_path_file}",
            MAIN_CLASS, str(self._home.kafka_settings),
        )  # fmt: skip

    async def _check_ready(self) -> str | None:
        try:
            answer = await ask(self.bootstrap, timeout_s=PROBE_TIMEOUT_S)
        except ClusterProblem as problem:
            return str(problem)
        if answer.cluster_id != self._cluster_id:
            return f"cluster {answer.cluster_id} answers at {self.bootstrap}, expected our {self._cluster_id}"
        # A broker that has not registered yet, or whose registration has expired, is missing from its own response.
        return None if answer.brokers else "the broker has not registered with its controller yet"

    async def _after_exit(self, child_exit: ChildExit) -> bool:
        assert self._archive is not None
        return await asyncio.to_thread(self._store_archive, self._archive, child_exit)

    def _store_archive(self, archive: Path, child_exit: ChildExit) -> bool:
        unfinished = self._temporary_archive(archive)
        if child_exit.stop_requested and child_exit.code in CLEAN_EXIT_CODES and unfinished.exists():
            os.replace(unfinished, archive)
            made = sorted(archive.parent.glob("broker-*.jsa"), key=lambda path: path.stat().st_mtime)
            for old in made[:-MAX_ARCHIVES]:
                old.unlink(missing_ok=True)
        unfinished.unlink(missing_ok=True)
        if (
            self._used_archive
            and not child_exit.was_ready
            and not child_exit.stop_requested
            and child_exit.code not in KILLED_EXIT_CODES
        ):
            archive.unlink(missing_ok=True)
            self._report("Broker: it ended before it was ready; starting it again without its class archive")
            return True
        return False

    def _temporary_archive(self, archive: Path) -> Path:
        return archive.with_name(f"{archive.name}.{os.getpid()}.new")

    @property
    def _class_path_file(self) -> Path:
        """Return a file of arguments for `java`: 46 jars on the command line would fill every `ps` and stack.json."""
        return self._home.kafka / "class-path"

    def _write_settings(self, jars: tuple[Path, ...]) -> None:
        home = self._home
        temporary = home.kafka / "tmp"
        shutil.rmtree(temporary, ignore_errors=True)  # native libraries unpacked by the previous run
        temporary.mkdir(mode=0o700)
        write_atomically(home.kafka_settings, server_properties(home.kafka_data, self._ports))
        quoted = class_path(jars).replace("\\", "\\\\").replace('"', '\\"')
        write_atomically(self._class_path_file, f'-cp "{quoted}"\n')
        for stale in home.cache.glob("*.new"):
            if time.time() - stale.stat().st_mtime > UNFINISHED_ARCHIVE_S:
                stale.unlink(missing_ok=True)

    async def _format_storage(self, java: Java, jars: tuple[Path, ...]) -> None:
        home = self._home
        if not home.kafka_data.exists():
            self._report("Broker: formatting its storage (once)")
            unfinished = home.kafka / "data.new"
            await asyncio.to_thread(shutil.rmtree, unfinished, ignore_errors=True)
            settings = home.kafka / "format.properties"
            write_atomically(settings, server_properties(unfinished, self._ports))
            argv = (
                str(java.program), *FORMAT_FLAGS, f"-Dlog4j2.configurationFile={LOCAL_BROKER / 'log4j2.properties'}",
                "-cp", class_path(jars), "kafka.tools.StorageTool", "format",
                "--cluster-id", new_cluster_id(), "--config", str(settings),
            )  # fmt: skip
            try:
                ended = await run_program(
                    argv, timeout_s=FORMAT_TIMEOUT_S, environment=server_environment(self._environ)
                )
            except TimeoutError as error:
                raise StackError(f"Formatting {unfinished} took longer than {FORMAT_TIMEOUT_S:g} s.") from error
            if ended.exit_code != 0:
                raise StackError(
                    f"The broker's storage {unfinished} could not be formatted (exit {ended.exit_code}):\n"
                    f"{ended.output.strip()[-2000:]}"
                )
            os.rename(unfinished, home.kafka_data)
            settings.unlink()
        self._cluster_id = read_cluster_id(home.kafka_data)


def archive_path(cache: Path, java: Java, jars: tuple[Path, ...]) -> Path:
    """Return the archive's path for this Java, these flags and these jars. The JVM accepts it only
    for exactly these.
    """
    facts = [java.version, str(java.program), *JVM_FLAGS]
    for jar in jars:
        status = jar.stat()
        facts.append(f"{jar} {status.st_size} {status.st_mtime_ns}")
    return cache / f"broker-{hashlib.sha256('|'.join(facts).encode()).hexdigest()[:16]}.jsa"


def class_path(jars: tuple[Path, ...]) -> str:
    """Return the jars one by one in a fixed order: an archive does not work with a wildcard."""
    return ":".join(str(jar) for jar in jars)


def server_properties(data: Path, ports: Mapping[str, str]) -> str:
    """Return the broker's settings for this folder and these ports."""
    template = string.Template((LOCAL_BROKER / "server.properties").read_text("utf-8"))
    return template.substitute(ports, data=escape_property_value(str(data)))


def escape_property_value(text: str) -> str:
    """Escape `text` as a value of a .properties file, which is Latin-1 and has backslashes as escapes."""
    return "".join(
        "\\\\" if character == "\\" else character if 32 <= ord(character) < 127 else _escape_character(character)
        for character in text
    )


def _escape_character(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def new_cluster_id() -> str:
    """Return a random UUID in Kafka's form: 16 bytes in 22 characters. None begins with a dash, which reads as an
    option.
    """
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def read_cluster_id(data: Path) -> str:
    """Return the id the storage was formatted with. Raises StackError when `data` is not a formatted storage."""
    try:
        lines = (data / "meta.properties").read_text("latin-1").splitlines()
        return next(line.partition("=")[2].strip() for line in lines if line.startswith("cluster.id="))
    except (FileNotFoundError, StopIteration) as error:
        raise StackError(
            f"The folder {data} should be the broker's storage, but its meta.properties has no cluster id. It is not "
            "formatted again, because it may hold your log: put the file back, or move the folder away to begin with "
            "an empty log."
        ) from error


def is_broker_of(home: Home, arguments: list[str]) -> bool:
    """Return whether a process with these arguments is the broker of this state folder."""
    return MAIN_CLASS in arguments and str(home.kafka_settings) in arguments


def server_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of broker and Postgres: the paths of programs, and UTF-8."""
    return {"PATH": environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"}
