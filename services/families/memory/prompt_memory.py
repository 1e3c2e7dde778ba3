"""Memory in the system prompt of a run, read before the run starts.

What is read becomes part of RunStarted, encrypted for the user of the run, so a replay, a take-over and a fork with the
same prompt send what the first call sent. A start waits until memory can be read; a run with a time limit is refused
when that takes longer. A search that fails is not waited for: the prompt says so.

Before: services/families/ports/prompts.py. After: prompt.py, prompt_entries.py.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence

from loomlog.connectors.crypto.content_encryption import is_token
from loomlog.connectors.models.untrusted_json import repair_text
from loomlog.connectors.process.logs import about
from loomlog.connectors.protocols import Blobs
from loomlog.schemas.generated.values import AgentDefinition, AgentGrants, MemoryContext
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.core.run.commands import CommandRefusal
from loomlog.services.core.run.lifecycle.fork import is_long
from loomlog.services.core.run.turns.code_agents import is_code_agent
from loomlog.services.families.memory.author import TENANT, USER, Author, grants_of_run
from loomlog.services.families.memory.entry_operations import Finder
from loomlog.services.families.memory.prompt import (
    CONSOLIDATION_BANDS,
    CORE_BLOCKS,
    INDEX,
    NO_GRANTS,
    ONTOLOGY,
    SEARCH_REQUEST,
    TENANT_INFO,
    USER_INFO,
    PromptEntry,
    entry_parts,
    fill_prompt,
    index_part,
    needs_memory,
    prompt_parts,
)
from loomlog.services.families.memory.prompt_entries import PromptEntries
from loomlog.services.families.memory.store import Backend
from loomlog.services.families.operation import Decrypt, Encrypt, plain_text, plaintext
from loomlog.services.families.ports.isolation import Isolation
from loomlog.services.families.ports.prompts import DefinitionTextReader, PromptRun

log = logging.getLogger(__name__)

READ_WAIT_S = 2.0
"""Seconds of one attempt to read everything."""
SEARCH_WAIT_S = 1.0
"""Seconds of the search in it, of which a slow embedder must not hold back the start."""
RETRY_S = 0.5
QUERY_CHARACTERS_MAX = 2_000
"""Characters of a request that are searched for: what is asked is near its beginning."""
NOT_SEARCHED = "(Memory could not be searched when this run started.)"


class PromptMemory:
    """Protocol PromptAdditions of ports/prompts.py: fills the prompts of the runs of this process."""

    def __init__(
        self,
        backend: Callable[[Author], Awaitable[Backend]],
        *,
        texts: DefinitionTextReader,
        blobs: Blobs,
        bands: str,
        decrypt: Decrypt = plaintext,
        encrypt: Encrypt = plain_text,
        finder: Finder | None = None,
        is_isolated: Isolation = lambda tenant, subject: False,
        wait_s: float = READ_WAIT_S,
    ) -> None:
        """`backend` returns that of the author's agent, or raises Refused, Unavailable.

        `bands` is the text of {{memory:consolidation_bands}}. `finder` None: there is no search here.
        """
        self._backend = backend
        self._texts = texts
        self._blobs = blobs
        self._bands = bands
        self._decrypt = decrypt
        self._encrypt = encrypt
        self._finder = finder
        self._is_isolated = is_isolated
        self._wait_s = wait_s

    @staticmethod
    def is_needed(definition: AgentDefinition) -> bool:
        """Return whether `read` may have something for runs with this definition."""
        if is_code_agent(definition):
            return False  # a script has no prompt
        prompt = definition.system_prompt
        is_legible = definition.system_prompt_blob is None and not is_token(prompt)
        return not is_legible or needs_memory(prompt, definition.grants)

    async def read(self, run: PromptRun) -> MemoryContext | CommandRefusal | None:
        """Return what the prompt has of memory; None when it has nothing. Raises ConnectorError.

        Waits until memory can be read. Refused is a run with a time limit, when that takes longer, and an agent whose
        backend does not exist.
        """
        clock, definition = asyncio.get_running_loop().time, run.definition
        began = clock()
        while True:
            try:
                async with asyncio.timeout(self._wait_s):
                    return await self._read(run)
            except (Unavailable, TimeoutError) as error:
                reason = str(error) or f"no answer in {self._wait_s:g} s"
            except Refused as refused:
                return CommandRefusal(code="memory_unavailable", message=f"{definition.name}: {refused}")
            log.warning(
                "the start of %s waits for the memory of its prompt: %s",
                run.run_id,
                reason,
                extra=about(run.run_id, run.tenant),
            )
            if 0 < run.run_timeout_s < clock() - began:
                message = f"the memory of the prompt of {definition.name} cannot be read: {reason}; try again later"
                return CommandRefusal(code="memory_unavailable", message=message)
            await asyncio.sleep(RETRY_S)

    async def _read(self, run: PromptRun) -> MemoryContext | None:
        definition, grants = run.definition, run.definition.grants or NO_GRANTS
        blob = definition.system_prompt_blob
        prompt = definition.system_prompt if blob is None else await self._texts.load(blob)
        prompt = await self._decrypt(prompt, run.tenant)
        if not needs_memory(prompt, definition.grants):
            return None
        author = self._author(run)
        entries = PromptEntries(await self._backend(author), author, grants)
        parts = await self._parts(run, prompt_parts(prompt, grants), entries, grants)
        text, is_replaced = fill_prompt(prompt, parts)
        if not text and not is_replaced:
            return None
        stored, blob = await self._encrypt(repair_text(text), run.tenant, run.user_id), None
        if is_long(stored):
            stored, blob = "", await self._blobs.put(stored.encode())
        return MemoryContext(text=stored, text_blob=blob, replaces_prompt=is_replaced, positions=entries.positions)

    async def _parts(
        self, run: PromptRun, names: Collection[str], entries: PromptEntries, grants: AgentGrants
    ) -> dict[str, str]:
        """Return the texts of the parts that the prompt has."""
        shown: dict[str, Sequence[PromptEntry]] = {}
        if CORE_BLOCKS in names:
            shown[CORE_BLOCKS] = await entries.core_blocks()
        for name, scope in ((USER_INFO, USER), (TENANT_INFO, TENANT)):
            if name in names:
                shown[name] = await entries.info(scope)
        is_searched = True
        if SEARCH_REQUEST in names:
            try:
                async with asyncio.timeout(SEARCH_WAIT_S):
                    shown[SEARCH_REQUEST] = await self._search(run, entries)
            except (Refused, Unavailable, TimeoutError) as error:
                log.warning(
                    "the request of %s is not searched for: %s", run.run_id, error, extra=about(run.run_id, run.tenant)
                )
                is_searched = False
        parts = entry_parts(shown, grants)
        if not is_searched:
            parts[SEARCH_REQUEST] = NOT_SEARCHED
        if ONTOLOGY in names:
            parts[ONTOLOGY] = await entries.ontology()
        if CONSOLIDATION_BANDS in names:
            parts[CONSOLIDATION_BANDS] = self._bands
        if INDEX in names:
            parts[INDEX] = index_part(await entries.indexes(), grants)
        return parts

    async def _search(self, run: PromptRun, entries: PromptEntries) -> Sequence[PromptEntry]:
        texts = await self._decrypt(list(run.request), run.tenant)
        query = "\n".join(filter(None, texts))[:QUERY_CHARACTERS_MAX].strip()
        if not query:
            return ()
        if self._finder is None:
            raise Refused("search_unavailable", "there is no search index here")
        return await entries.search(self._finder, query)

    def _author(self, run: PromptRun) -> Author:
        return Author(
            tenant=run.tenant,
            subject=run.subject,
            command_id=run.run_id,
            issued_at_ms=0,
            user_id=run.user_id,
            agent=run.definition.name,
            run_id=run.run_id,
            root_run_id=run.root_run_id,
            session_id=run.session_id,
            grants=grants_of_run(run.definition),
            is_isolated=self._is_isolated(run.tenant, run.subject),
            positions=run.positions,
        )
