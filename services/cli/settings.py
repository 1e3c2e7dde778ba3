"""Settings of the command line: the environment, the state folder, and the stack that runs in it.

Addresses are resolved in this order: the environment, the stack that runs in this state folder (stack.json and
wiring.json), the default. So every command works without any setting next to `loomlog up`, and against an installation
elsewhere with LOOMLOG_BASE_URL, LOOMLOG_KAFKA and LOOMLOG_POSTGRES.

LOOMLOG_TOKEN belongs to the command line: the token it sends. It is not a setting of the services and not passed to
them. Without it the token of `loomlog login` is sent, and without that the shared one.

Before: every command, once. After: services/cli/http/api.py, log.py, stack/.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from loomlog.connectors.configuration.environment import read_settings
from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.configuration.settings import Settings
from loomlog.services.cli.errors import Unreachable, UsageError
from loomlog.services.cli.http.stored_tokens import tokens_path, usable_bearer
from loomlog.services.cli.stack.home import Home
from loomlog.services.cli.stack.record import StackRecord
from loomlog.services.cli.stack.services_record import ServicesRecord, load_services_record
from loomlog.services.cli.stack.status import StackStatus, read_stack_status

TOKEN_VARIABLE = "LOOMLOG_TOKEN"
CLIENT_ID = "loomlog-cli"
"""Client id of a command at the broker and Postgres."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CliSettings:
    """All settings of a command. `environ` is the environment without the command line's own settings."""

    settings: Settings
    home: Home
    stack: StackStatus
    services_record: ServicesRecord | None
    """Addresses and folders of the running stack; None when none runs or it is still starting."""
    environ: Mapping[str, str] = field(repr=False)
    token: str = field(repr=False)

    @property
    def api_url(self) -> str:
        if self.settings.base_url:
            return self.settings.base_url
        return self.services_record.api_url if self.services_record is not None else self.settings.api_url

    @property
    def insights_url(self) -> str:
        """URL of insights; empty when it is not served here."""
        return self.services_record.insights_url if self.services_record is not None else ""

    @property
    def record(self) -> StackRecord | None:
        """The running stack; None also when only the record of a dead stack is left."""
        return self.stack.record if self.stack.is_supervised or self.stack.running_children else None

    def kafka(self) -> str:
        """Bootstrap servers. Raises Unreachable when nothing runs here and none are configured."""
        text = self.settings.kafka or (self.record.kafka if self.record is not None else "")
        if not text:
            raise Unreachable(self._not_running_message("LOOMLOG_KAFKA"))
        return text

    def postgres(self) -> str:
        """Connection string of the read models. Raises Unreachable."""
        text = self.settings.postgres or (self.record.postgres if self.record is not None else "")
        if not text:
            raise Unreachable(self._not_running_message("LOOMLOG_POSTGRES"))
        return text

    def _not_running_message(self, variable: str) -> str:
        return f"Nothing runs in {self.home.root}: start it with `loomlog up`, or set {variable} to use one elsewhere."


def current_settings() -> CliSettings:
    """Load the settings of this process, of its environment and its working directory. Raises UsageError."""
    return load_cli_settings(os.environ, working_directory=Path.cwd())


def load_cli_settings(environ: Mapping[str, str], *, working_directory: Path) -> CliSettings:
    """Load the settings. Raises UsageError with every setting that cannot be used."""
    own = {name: value for name, value in environ.items() if name != TOKEN_VARIABLE}
    try:
        settings, _ = read_settings(own, working_directory=working_directory)
    except ConfigurationError as problem:
        raise UsageError(str(problem)) from problem
    root = settings.home.expanduser().absolute()
    home = Home(root=root, cache=root / "cache")
    stack = read_stack_status(home)
    wiring = load_services_record(home.root) if stack.is_supervised else None
    # A record left behind by a killed supervisor describes another stack.
    is_current = wiring is not None and stack.supervisor is not None and wiring.supervisor_pid == stack.supervisor.pid
    loaded = CliSettings(
        settings=settings,
        home=home,
        stack=stack,
        services_record=wiring if is_current else None,
        environ=own,
        token=environ.get(TOKEN_VARIABLE, "").strip(),
    )
    if loaded.token:
        return loaded
    return replace(loaded, token=usable_bearer(tokens_path(environ), loaded.api_url) or settings.auth_token)
