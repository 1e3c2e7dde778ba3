"""The hooks and the credentials of a runtime, opened together with their connections.

Before: services/runtime/main.py. After: hooks.py and services/runtime/content/run_credentials.py, for tool calls.
"""

from collections.abc import Callable
from contextlib import AsyncExitStack

from loomlog.connectors.configuration import ProcessConfiguration
from loomlog.connectors.http.signed_callbacks import CallbackClient
from loomlog.connectors.storage.run_credentials import PostgresCredentialRows, RunCredentials
from loomlog.schemas.codec import Codec
from loomlog.services.runtime.content.run_credentials import Credentials
from loomlog.services.runtime.settings import RuntimeSettings
from loomlog.services.runtime.tools.hooks import HookRunner
from loomlog.services.stream.global_tables.global_table import GlobalTables
from loomlog.services.stream.global_tables.hooks import HookGlobalTable


class HookSetup:
    """Hooks of one process; `runner` calls the hooks in the global table."""

    def __init__(
        self,
        loaded: ProcessConfiguration,
        settings: RuntimeSettings,
        *,
        codec: Codec,
        clock_ms: Callable[[], int],
        topic: str,
    ) -> None:
        self.global_table = HookGlobalTable(codec, topic)
        self.callbacks = CallbackClient(private_hosts=loaded.settings.http_private_host_allowlist)
        self.runner = HookRunner(
            lambda: self.global_table.table,
            self.callbacks,
            clock_ms=clock_ms,
            permitted_owners=(*settings.host_widening_owners, *loaded.configuration.hooks.permit_host_widen.owners),
            secret=settings.installation_secret,
        )

    async def open(self, stack: AsyncExitStack, tables: GlobalTables) -> None:
        """Read the registrations, so that no call bypasses them. Raises Transient."""
        stack.push_async_callback(self.callbacks.close)
        await tables.open(self.global_table)


def open_credentials(stack: AsyncExitStack, settings: RuntimeSettings) -> Credentials:
    """Return the credentials of runs; without a key there are none. Connects when the first one is needed."""
    if settings.installation_secret is None:
        return Credentials()
    rows = PostgresCredentialRows(settings.postgres)
    stack.push_async_callback(rows.close)
    return Credentials(RunCredentials(rows, settings.installation_secret))
