"""The hooks and the credentials of a runtime, opened together with their connections.

Before: services/runtime/main.py. After: hooks.py and services/runtime/content/run_credentials.py, for tool calls.
"""

from collections.abc import Callable
from contextlib import AsyncExitStack

from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.connectors.http.signed_callbacks import CallbackClient
from loomlog.connectors.storage.run_credentials import PostgresCredentialRows, RunCredentials
from loomlog.services.families.hook.state import HookTable
from loomlog.services.runtime.content.run_credentials import Credentials
from loomlog.services.runtime.settings import RuntimeSettings
from loomlog.services.runtime.tools.hooks import HookRunner


class HookSetup:
    """Hooks of one process; `runner` calls those that `table` returns."""

    def __init__(
        self,
        loaded: ProcessConfiguration,
        settings: RuntimeSettings,
        *,
        table: Callable[[], HookTable],
        clock_ms: Callable[[], int],
    ) -> None:
        self.callbacks = CallbackClient(private_hosts=loaded.settings.http_private_host_allowlist)
        self.runner = HookRunner(
            table,
            self.callbacks,
            clock_ms=clock_ms,
            permitted_owners=(*settings.host_widening_owners, *loaded.configuration.hooks.permit_host_widen.owners),
            secret=settings.installation_secret,
        )

    def open(self, stack: AsyncExitStack) -> None:
        """Have the connections closed with the stack."""
        stack.push_async_callback(self.callbacks.close)


def open_credentials(stack: AsyncExitStack, settings: RuntimeSettings) -> Credentials:
    """Return the credentials of runs; without a key there are none. Connects when the first one is needed."""
    if settings.installation_secret is None:
        return Credentials()
    rows = PostgresCredentialRows(settings.postgres)
    stack.push_async_callback(rows.close)
    return Credentials(RunCredentials(rows, settings.installation_secret))
