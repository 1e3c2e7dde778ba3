"""Credentials for the calls of a run: those that came with its request, and stored ones that the calls refer to.

They are stored outside the log (connectors/storage/run_credentials.py), encrypted, under the id of the run they came
with, so that every owner of the run and every run of its tree has them. A process reads them when the first call of a
run needs them and keeps them until the run ends; it deletes them when the end of the run is in the log. What is left
over (its runtime died in between) is deleted when it expires. Every value that a run has read is masked in what its
tools return and, by the plugin `redact`, in what models receive.

Before: services/runtime/tools/tool_calls.py, and services/runtime/models/model_calls.py for keys of providers. After:
connectors/storage/run_credentials.py.
"""

import asyncio
import itertools
import logging
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from loomlog.connectors.errors import ConnectorError, Permanent
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.subagents.children import root_of
from loomlog.services.families.ports.credentials import CredentialUser, CredentialValue, CredentialValues

log = logging.getLogger(__name__)

CACHE_MAX = 10_000
"""Runs whose credentials a process keeps in memory; the least recently used are dropped and read again."""
READ_MAX = 1_000
"""Values of stored credentials that are kept for the runs of a tree; tokens that are renewed have many."""
ENDED_MAX = 100_000
"""Ended runs whose credentials wait to be deleted; those of further runs are left to expire."""
SWEEP_INTERVAL_S = 300.0
"""Seconds between two sweeps for expired credentials."""
RETRY_S = 5.0
NO_VALUES: Mapping[str, str] = {}


def user_of(facts: RunFacts, tenant: str, purpose: str) -> CredentialUser:
    """Return whom the credentials of a run are for."""
    return CredentialUser(
        tenant=tenant, user=facts.user_id, agent=facts.definition.name, purpose=purpose, run_id=root_of(facts)
    )


class CredentialStore(Protocol):
    """Protocol of loomlog.connectors.storage.run_credentials.RunCredentials. Raises ConnectorError."""

    async def put(self, tenant: str, run_id: str, credentials: Mapping[str, str]) -> None: ...
    async def get(self, tenant: str, run_id: str) -> Mapping[str, str]: ...
    async def delete(self, run_ids: Sequence[str]) -> None: ...
    async def sweep(self) -> int: ...


class Credentials:
    """Credentials of runs, with a cache. `store` None: there are none, whatever a request contains."""

    stored: CredentialValues | None = None
    """The stored credentials of tenants, users and agents, once they are read."""

    def __init__(self, store: CredentialStore | None = None) -> None:
        self._store = store
        self._read: OrderedDict[str, dict[str, str]] = OrderedDict()
        """Values of stored credentials that the runs of a tree have read, under names that no reference has."""
        self._cache: OrderedDict[str, Mapping[str, str]] = OrderedDict()
        self._numbers = itertools.count()
        self._ended: set[str] = set()
        self._wakeup = asyncio.Event()

    async def put(self, tenant: str, run_id: str, values: Mapping[str, str]) -> None:
        """Store the credentials of a run that is about to be started, durably. Raises ConnectorError."""
        if self._store is None:
            raise Permanent("credentials cannot be kept for a run: LOOMLOG_SECRET_KEY is not set here", kind="refused")
        if values:
            await self._store.put(tenant, run_id, values)

    async def load_values(
        self, facts: RunFacts, tenant: str, stored: Collection[str] = (), purpose: str = ""
    ) -> Mapping[str, str]:
        """Return the credentials of the run's tree by name, without those that are deleted. Raises ConnectorError.

        `stored`: references to stored credentials that are needed too; the values are by them. Those that name nothing
        are left out. All that were read for the tree are among the values, so that they are masked. `purpose`: what
        the log says that they are used for.
        """
        values = await self._load_own(facts, tenant)
        needed = {}
        if self.stored is not None:
            for reference, one in (await self.stored.resolve_known(stored, user_of(facts, tenant, purpose))).items():
                needed[reference] = self._note_read(facts, one).value
        read = self._read.get(root_of(facts), NO_VALUES)
        return {**values, **read, **needed} if read else values

    async def read_stored(self, facts: RunFacts, tenant: str, name: str, purpose: str) -> CredentialValue | None:
        """Return the value of a stored credential; None: there is none. Raises ConnectorError."""
        if self.stored is None:
            return None
        value = await self.stored.find_value(name, user_of(facts, tenant, purpose))
        return None if value is None else self._note_read(facts, value)

    def _note_read(self, facts: RunFacts, credential: CredentialValue) -> CredentialValue:
        """Keep a value as long as the run's tree, whose results are masked."""
        read = self._read.setdefault(root_of(facts), {})
        if credential.value not in read.values():
            if len(read) >= READ_MAX:
                del read[next(iter(read))]
            read[f"read:{credential.key.name}:{next(self._numbers)}"] = credential.value
        if len(self._read) > CACHE_MAX:
            self._read.popitem(last=False)
        return credential

    async def _load_own(self, facts: RunFacts, tenant: str) -> Mapping[str, str]:
        """Return the credentials that came with the request."""
        if not facts.options.credentials or self._store is None:
            return NO_VALUES
        run_id = root_of(facts)
        values = self._cache.get(run_id)
        if values is None:
            values = await self._store.get(tenant, run_id)
            self._cache[run_id] = values
            if len(self._cache) > CACHE_MAX:
                self._cache.popitem(last=False)
        else:
            self._cache.move_to_end(run_id)
        return values

    def on_run_ended(self, facts: RunFacts) -> None:
        """Schedule the deletion; the end of the run is in the log. A tree keeps its own until its root run ends."""
        if facts.parent is not None:
            return
        self._read.pop(facts.run_id, None)
        if not facts.options.credentials:
            return
        self._cache.pop(facts.run_id, None)
        if len(self._ended) < ENDED_MAX:
            self._ended.add(facts.run_id)
            self._wakeup.set()

    async def run(self) -> None:
        """Delete credentials of ended runs and expired ones until cancelled."""
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
            log.warning("could not look for expired credentials: %s", error)
            return
        if count:
            log.info("deleted expired credentials of %d runs", count)


NO_CREDENTIALS = Credentials()
