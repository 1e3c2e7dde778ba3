"""Taking in a run that happened elsewhere, from its bundle.

    checked     the bundle is whole, every run in it folds without drift, and where content is encrypted nothing in it
                is new and in clear, unless that is wanted; nothing is written before that is known
    kept        payloads go to the blob store, where the same bytes are the same blob
    published   the runs in their order, oldest first, each in parts that fit one append
    told        the owner has appended the end of each; a run that is here already is left as it is

Runs keep their ids, so the same file again adds nothing. They belong to the caller's tenant, whatever the bundle says;
a caller who is confined to its own subject may not, because the runs name other users. An id that another tenant has is
refused.

Before: a transport has spooled the file. After: telling.py, and the owner of each partition decides.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO

from connectors.sealing import has_tokens
from schemas.codec import Undecodable, digest, read_envelope
from schemas.ids import ID_PATTERN
from schemas.values import ImportOrigin
from services.commands import limits
from services.commands.authentication import demand
from services.commands.declined import RETRY_LATER_S, Declined, bad_request
from services.commands.follow import Sources
from services.commands.publisher import Publisher
from services.commands.subscription import Subscription
from services.commands.telling import WHY_IN_CLEAR, Part, Telling, written_here
from services.core.access.decide import Caller
from services.core.access.scopes import RUNS_CREATE, TENANT
from services.stream.bundle import BlobPart, BrokenBundle, BundledEvent, BundleReader, Header, blob_refs
from services.stream.bundle_replay import replay_bundle
from services.stream.sealed_content import is_in_clear


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRun:
    """A run of a bundle, here now. `added` is false when it was here before."""

    run_id: str
    added: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A bundle that was taken in; its own run is the last. `position` is that of its newest event here."""

    runs: tuple[ImportedRun, ...]
    position: str


@dataclass(slots=True)
class _Known:
    """What the first pass learnt of a run: how many events it has, and the first and last of them."""

    first_offset: int
    tenant: str
    events: int = 0
    tail_digest: str = ""
    is_in_clear: bool = False
    """Anything was said in it in clear."""
    payloads: set[str] = field(default_factory=set)
    """Hashes of what it has in the blob store, while that is looked at."""


@dataclass(frozen=True, slots=True)
class _Checked:
    header: Header
    sha256: str
    runs: dict[str, _Known]


class Imports:
    """The use case. `clock_ms` brings the time in."""

    def __init__(
        self,
        sources: Sources,
        publisher: Publisher,
        *,
        clock_ms: Callable[[], int],
        wait_s: float = limits.DECISION_WAIT_S,
    ) -> None:
        self._sources = sources
        self._telling = Telling(sources, publisher, clock_ms=clock_ms, wait_s=wait_s)
        self._busy = 0

    async def take_in(self, caller: Caller, file: IO[bytes], *, in_clear: bool = False) -> Imported:
        """Everything in the bundle. `file` can be read from its beginning more than once. Raises Declined, also
        content_in_clear: runs in clear are taken in where content is encrypted only with `in_clear`.
        """
        demand(caller, RUNS_CREATE)
        if caller.is_isolated:
            raise Declined(
                "insufficient_scope", f"an import needs the scope {TENANT}: it names users", details={"scope": TENANT}
            )
        if self._busy >= limits.IMPORTS_MAX:
            raise Declined("backpressure", f"{self._busy} imports are under way here", retry_after_s=RETRY_LATER_S)
        self._busy += 1
        try:
            looks = self._sources.content.keys is not None and not in_clear
            checked = await asyncio.to_thread(_checked, file, looks_for_clear=looks)
            wanted = [run.run_id for run in checked.header.runs]
            here = {run_id: position for run_id in wanted if (position := await self._here(caller, run_id))}
            missing = [run_id for run_id in wanted if run_id not in here]
            in_clear_here = [run_id for run_id in missing if checked.runs[run_id].is_in_clear]
            if in_clear_here:
                found = f"{len(in_clear_here)} of the {len(wanted)} runs of the bundle, {in_clear_here[0]} first"
                raise Declined("content_in_clear", f"{found}, {WHY_IN_CLEAR}")
            if missing:
                await self._keep_blobs(file)
                here |= await self._publish(caller, file, checked, frozenset(missing))
        except BrokenBundle as error:
            raise bad_request(f"the bundle cannot be taken in: {error}") from error
        except Undecodable as error:
            raise bad_request(f"the bundle has a record nobody here can read: {error}") from error
        finally:
            self._busy -= 1
        return Imported(
            runs=tuple(ImportedRun(run_id=run_id, added=run_id in missing) for run_id in wanted),
            position=here[wanted[-1]],
        )

    async def _here(self, caller: Caller, run_id: str) -> str:
        """The position of the newest event of the run here; empty while there is none, or it is being taken in.

        Raises Declined(run_id_taken) when it is another tenant's.
        """
        if not ID_PATTERN.match(run_id):
            raise bad_request(f"the bundle names a run {run_id[:80]!r}, which is no id")
        return await self._telling.here(caller.tenant, run_id)

    async def _keep_blobs(self, file: IO[bytes]) -> None:
        file.seek(0)
        gathered = bytearray()
        for item in BundleReader(file):
            if isinstance(item, BlobPart):
                gathered += item.data
                if len(gathered) > limits.BLOB_BYTES_MAX:
                    raise BrokenBundle(f"the payload {item.ref.sha256} is over {limits.BLOB_BYTES_MAX} bytes")
                if item.is_last:
                    await self._telling.keep(item.ref, bytes(gathered))
                    gathered.clear()

    async def _publish(
        self, caller: Caller, file: IO[bytes], checked: _Checked, missing: frozenset[str]
    ) -> dict[str, str]:
        """The events of the missing runs in parts, and after each run the wait for its end; where that lies."""
        done: dict[str, str] = {}
        file.seek(0)
        reader = BundleReader(file)
        part: Part | None = None
        run_id = ""
        subscription: Subscription | None = None
        try:
            for item in reader:
                if isinstance(item, BlobPart):
                    break
                if item.run_id not in missing:
                    continue
                if isinstance(item, BundledEvent):
                    run_id = item.run_id
                    subscription = subscription or self._sources.hub.subscribe(run_id)
                    value = written_here(reader.codec, item.event.value)
                    if part is not None and part.size + len(value) > limits.IMPORT_PART_BYTES:
                        await self._send(caller, run_id, checked, part)
                        part = None
                    part = part or Part(item.event.seq)
                    part.add(value)
                elif part is not None and subscription is not None:
                    await self._send(caller, run_id, checked, part)
                    done[run_id] = await self._telling.ended(
                        caller.tenant, run_id, checked.runs[run_id].events, subscription
                    )
                    subscription.close()
                    part = subscription = None
        finally:
            if subscription is not None:
                subscription.close()
        return done

    async def _send(self, caller: Caller, run_id: str, checked: _Checked, part: Part) -> None:
        known = checked.runs[run_id]
        origin = ImportOrigin(
            topic=checked.header.topic,
            partition=checked.header.partition,
            first_offset=known.first_offset,
            tenant=known.tenant,
            events=known.events,
            tail_digest=known.tail_digest,
            bundle_sha256=checked.sha256,
        )
        await self._telling.send(caller.tenant, caller.subject, run_id, origin, part)


def _checked(file: IO[bytes], *, looks_for_clear: bool) -> _Checked:
    """The first pass: everything is folded and nothing may differ. Raises BrokenBundle."""
    runs: dict[str, _Known] = {}
    last: list[BundleReader] = []
    looked_at: set[str] = set()

    def seen(item: BundledEvent | BlobPart, reader: BundleReader) -> None:
        last[:] = [reader]
        if isinstance(item, BundledEvent):
            envelope, _ = read_envelope(item.event.value)
            known = runs.setdefault(item.run_id, _Known(first_offset=item.event.offset, tenant=envelope.tenant))
            known.events += 1
            known.tail_digest = digest(item.event.value).hex()
            if looks_for_clear and not known.is_in_clear:
                event = reader.codec.decode(item.event.value).record
                known.is_in_clear = is_in_clear(event)
                known.payloads |= {ref.sha256 for ref in blob_refs(event)}
        elif looks_for_clear and item.ref.sha256 not in looked_at:
            # A sealed payload is one token from its first byte on.
            looked_at.add(item.ref.sha256)
            if not has_tokens(item.data.decode("latin-1")):
                for known in runs.values():
                    known.is_in_clear = known.is_in_clear or item.ref.sha256 in known.payloads

    file.seek(0)
    found = replay_bundle(file, through_bytes=False, bytes_max=limits.IMPORT_BYTES_MAX, seen=seen)
    if found.drift:
        more = f" (and {len(found.drift) - 1} more)" if len(found.drift) > 1 else ""
        raise BrokenBundle(f"its history does not hold: {found.drift[0]}{more}")
    return _Checked(found.header, last[0].sha256, runs)
