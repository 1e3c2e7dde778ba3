"""wiring.json in the state folder: addresses and folders of the running stack, for other terminals.

stack.json (stack/record.py) has the processes; this has their purpose: the API's address, the reviewed folder, the
number of runtimes. It is written when everything is ready and removed when the stack stops, so it also marks the end of
`up`.

Before: services.py writes it. After: services/cli/settings.py reads it for every command.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from loomlog.services.cli.stack.home import write_atomically

FILE = "wiring.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicesRecord:
    """Addresses and folders of a running stack. `source` and `out` are those of the volumes of these names."""

    supervisor_pid: int
    api_url: str
    insights_url: str
    """Empty without insights."""
    source: str
    out: str
    """Both empty when the configuration has no such volume."""
    open_mode: bool
    runtimes: int
    configuration: tuple[str, ...]
    """The files, lowest precedence first."""
    ready_after_s: float
    spares: int = 0
    """Runtimes that wait without partitions."""


def save_services_record(root: Path, record: ServicesRecord) -> None:
    write_atomically(root / FILE, json.dumps(asdict(record), indent=2) + "\n")


def remove_services_record(root: Path) -> None:
    (root / FILE).unlink(missing_ok=True)


def load_services_record(root: Path) -> ServicesRecord | None:
    """Return the record; None when there is none, or it cannot be read: defaults are used then."""
    try:
        return msgspec.json.decode((root / FILE).read_bytes(), type=ServicesRecord)
    except (OSError, msgspec.MsgspecError):
        return None
