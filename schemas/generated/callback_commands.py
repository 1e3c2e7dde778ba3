"""Records of the namespace loom.callback.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import ClassVar

from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.records import Record


class RequestCallback(Record, frozen=True, kw_only=True):
    """Send a request to an address of others after the end of a run."""

    SCHEMA: ClassVar[str] = "loom.callback.commands.RequestCallback"
    CONTENT: ClassVar[Mapping[str, str]] = {"url": "text", "body": "text"}

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    run_id: str
    """The run that has ended."""
    hook: int
    """Place of the hook in on_complete of the run."""
    url: str
    """The address."""
    body: str
    """The body, JSON; user content."""
    secret_env: str = ''
    """Environment variable with the secret that signs it; empty: it is not signed."""


class SettleCallback(Record, frozen=True, kw_only=True):
    """Tell how an attempt has ended."""

    SCHEMA: ClassVar[str] = "loom.callback.commands.SettleCallback"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    run_id: str
    """The run that has ended."""
    hook: int
    """Place of the hook in on_complete of the run."""
    attempt: int
    """The attempt, from 1."""
    status: int = 0
    """HTTP status of the answer; 0: there was none."""
    error: str = ''
    """What went wrong; empty: it was delivered."""
    is_final: bool = False
    """A further attempt cannot succeed."""


RECORDS = (
    RequestCallback,
    SettleCallback,
)
Command = RequestCallback | SettleCallback
