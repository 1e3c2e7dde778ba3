"""The credentials that came with a run's request, for the calls of the run.

They are outside the log (connectors/storage/run_credentials.py), sealed, under the id of the run they came with, so
that every owner of the run has them, and every run of its tree. A process reads them when the first call of a run needs
them and keeps them while the run lives; it deletes them when the end of the run is in the log. What is left behind (its
runtime died in between) goes when its time is over.

Before: services/runtime/tools/tool_calls.py, and services/runtime/models/model_calls.py for keys of providers. After:
connectors/storage/run_credentials.py.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Protocol

from loomlog.connectors.errors import ConnectorError
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.subagents.children import root_of

log = logging.getLogger(__name__)

CACHE_MAX = 10_000
"""Runs whose credentials a process keeps in memory; the longest unused go first and are read again."""
ENDED_MAX = 100_000
"""Ended runs whose credentials wait to be deleted; more are left to their lifetime."""
SWEEP_INTERVAL_S = 300.0
"""Between two looks for credentials whose time is over."""
RETRY_S = 5.0
NO_VALUES: Mapping[str, str] = {}


class CredentialStore(Protocol):
    """loomlog.connectors.storage.run_credentials.RunCredentials. Raises ConnectorError."""

    async def get(self, tenant: str, run_id: str) -> Mapping[str, str]: ...
    async def delete(self, run_ids: Sequence[str]) -> None: ...
    async def sweep(self) -> int: ...


class Credentials:
    """`store` None: there are none, whatever a request says."""

    def __init__(self, store: CredentialStore | None = None) -> None:
        self._store = store
        self._cache: OrderedDict[str, Mapping[str, str]] = OrderedDict()
        self._ended: set[str] = set()
        self._wakeup = asyncio.Event()

    async def load_values(self, facts: RunFacts, tenant: str) -> Mapping[str, str]:
        """By name; empty when they are gone. Raises ConnectorError."""
        if not facts.options.credentials or self._store is None:
            return NO_VALUES
        run_id = root_of(facts)
        found = self._cache.get(run_id)
        if found is None:
            found = await self._store.get(tenant, run_id)
            self._cache[run_id] = found
            if len(self._cache) > CACHE_MAX:
                self._cache.popitem(last=False)
        else:
            self._cache.move_to_end(run_id)
        return found

    def on_run_ended(self, facts: RunFacts) -> None:
        """The end of that run is in the log. Those of a tree are there until the run it began with is over."""
        if not facts.options.credentials or facts.parent is not None:
            return
        self._cache.pop(facts.run_id, None)
        if len(self._ended) < ENDED_MAX:
            self._ended.add(facts.run_id)
            self._wakeup.set()

    async def run(self) -> None:
        """Deletes what is over until cancelled."""
        if self._store is None:
            return
        loop = asyncio.get_running_loop()
        swept_at = loop.time()
        while True:
            try:
                async with asyncio.timeout_at(swept_at + SWEEP_INTERVAL_S):
                    await self._wakeup.wait()
            except TimeoutError:
                swept_at = loop.time()
                await self._try_to_sweep(self._store)
            self._wakeup.clear()
            if self._ended and not await self._try_to_delete(self._store):
                await asyncio.sleep(RETRY_S)
                self._wakeup.set()

    async def _try_to_delete(self, store: CredentialStore) -> bool:
        over = list(self._ended)
        try:
            await store.delete(over)
        except ConnectorError as error:
            log.warning("credentials of %d ended runs could not be deleted yet: %s", len(over), error)
            return False
        self._ended.difference_update(over)
        return True

    async def _try_to_sweep(self, store: CredentialStore) -> None:
        try:
            count = await store.sweep()
        except ConnectorError as error:
            log.warning("could not look for credentials whose time is over: %s", error)
            return
        if count:
            log.info("deleted the credentials of %d runs whose time was over", count)


NO_CREDENTIALS = Credentials()
