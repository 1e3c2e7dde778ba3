"""Ports of the broker and Postgres, chosen so that they stay the same from one start to the next.

The configured port, else the one remembered in ports.json, else the default. A port in use is never silently replaced,
because clients know the old number: the message names the port, the process that holds it and the setting that chooses
another. The controller's port is the exception: only the broker itself uses it, so any free one will do.

Before: local.  After: broker, postgres.
"""

import json
import random
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from loomlog.services.cli.stack.errors import StackError
from loomlog.services.cli.stack.home import write_atomically

LOOPBACK = "127.0.0.1"
KAFKA_PORT = 19092
POSTGRES_PORT = 15432
# Attempts to get a port from the system that was not chosen already.
PICK_ATTEMPTS = 20
# Below the ephemeral ports of Linux, macOS and Windows (from 32768 and 49152), above the usual servers.
PICK_RANGE = range(20_000, 30_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    kafka: int
    controller: int
    postgres: int


def choose_ports(
    *,
    remembered: Mapping[str, int],
    kafka: int | None,
    postgres: int | None,
    local_servers: frozenset[str],
    is_free: Callable[[int], bool],
    pick: Callable[[], int],
    describe_holder: Callable[[int], str],
) -> Ports:
    """Choose the ports of the parts in `local_servers` ("kafka", "postgres"); the others keep theirs.

    `kafka` and `postgres` are the configured ports: a port, 0 for any free one, None if not configured. Raises
    StackError.
    """
    taken: set[int] = set()

    def free(port: int) -> bool:
        return port not in taken and is_free(port)

    def any_free() -> int:
        for _ in range(PICK_ATTEMPTS):
            port = pick()
            if free(port):
                return port
        raise StackError(f"No free port was found on {LOOPBACK} in {PICK_ATTEMPTS} attempts.")

    def choose(name: str, title: str, asked: int | None, default: int, setting: str) -> int:
        known = remembered.get(name)
        port = asked or known or default
        if name in local_servers:
            if asked is not None and not 0 <= asked <= 65535:
                raise StackError(f"{setting} is {asked}; a port is a number from 1 to 65535, or 0 for any free one.")
            if asked == 0 and not (known and free(known)):
                port = any_free()
            if not free(port):
                raise StackError(
                    f"{title} wants port {port} on {LOOPBACK}, but {describe_holder(port)}. Stop that, or "
                    "choose another port: "
                    f"{setting}=<port>, or {setting}=0 for any free one."
                )
        taken.add(port)
        return port

    kafka_port = choose("kafka", "The broker (Kafka)", kafka, KAFKA_PORT, "LOOMLOG_KAFKA_PORT")
    postgres_port = choose("postgres", "Postgres", postgres, POSTGRES_PORT, "LOOMLOG_POSTGRES_PORT")
    # Never a default: other stacks may start next to this one in the same moment, and none knows this port.
    controller = remembered.get("controller", 0)
    if "kafka" in local_servers and not (controller and free(controller)):
        controller = any_free()
    return Ports(kafka=kafka_port, controller=controller, postgres=postgres_port)


def is_port_free(port: int) -> bool:
    """Return whether the port is free. SO_REUSEADDR as the servers themselves do, so a just closed
    one counts as free.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind((LOOPBACK, port))
            attempt.listen(1)
        except OSError:
            return False
    return True


def pick_port() -> int:
    """Return a free port outside the system's ephemeral range, from which any connection may get it a moment later."""
    for _ in range(PICK_ATTEMPTS):
        port = random.choice(PICK_RANGE)
        if is_port_free(port):
            return port
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as attempt:
        attempt.bind((LOOPBACK, 0))
        return int(attempt.getsockname()[1])


def describe_port_holder(port: int) -> str:
    """Describe the process that listens there, as the middle of a sentence."""
    try:
        for connection in psutil.net_connections(kind="tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr[1:2] == (port,) and connection.pid:
                command = " ".join(psutil.Process(connection.pid).cmdline())
                return f"process {connection.pid} ({command[:80]}) has it"
    except psutil.Error:
        pass  # not visible to us (another user's process, or macOS without root): then without the name
    return "another process has it"


def load_ports(path: Path) -> dict[str, int]:
    """Return the remembered ports; empty when there are none or the file is damaged (defaults are as good a start)."""
    try:
        ports = json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    if not isinstance(ports, dict):
        return {}
    return {
        name: port
        for name, port in ports.items()
        if name in Ports.__slots__ and isinstance(port, int) and 0 < port <= 65535
    }


def save_ports(path: Path, ports: Ports) -> None:
    write_atomically(path, json.dumps(asdict(ports), indent=2) + "\n")
