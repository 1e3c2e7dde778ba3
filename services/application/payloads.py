"""Moves large texts and images of a request to the blob store; the command keeps their hash, size and type.

A block over INLINE_BYTES always goes there. If many smaller ones together are too much for one command, the largest go
too, until it fits. System texts stay inline, because a run is pinned to them and they are small; a request whose system
texts alone are too large is refused.

The store is content-addressed, so a blob whose command is never sent, or sent twice, does no harm. Before:
services/application/runs/requests.py has checked the blocks. After: services/application/runs/start.py builds the
command.
"""

from dataclasses import dataclass

from loomlog.connectors.protocols import Blobs
from loomlog.schemas.generated.values import BlobRef, ContentBlock, Segment
from loomlog.schemas.records import replace
from loomlog.services.application.errors import reaching
from loomlog.services.application.limits import COMMAND_BYTES_MAX, INLINE_BYTES
from loomlog.services.core.refusals import Refused

COMMAND_OVERHEAD_BYTES = 150_000
"""Maximum bytes of a command without its blocks: metadata, narrowing lists, ids."""
REF_BYTES = 150
"""Approximate bytes of a block whose payload is in the blob store."""


@dataclass(frozen=True, slots=True)
class _BlockLocation:
    segment: int
    block: int
    size: int


async def offload_payloads(segments: tuple[Segment, ...], blobs: Blobs) -> tuple[Segment, ...]:
    """Return the segments with large payloads replaced by references. Raises Refused."""
    sizes = [[_block_size(block) for block in segment.content] for segment in segments]
    room = COMMAND_BYTES_MAX - COMMAND_OVERHEAD_BYTES
    total = sum(map(sum, sizes))
    if total <= INLINE_BYTES:
        return segments  # the usual case: nothing can be over the limit
    movable = sorted(
        (
            _BlockLocation(number, place, size)
            for number, (segment, segment_sizes) in enumerate(zip(segments, sizes, strict=True))
            if segment.role == "user"
            for place, size in enumerate(segment_sizes)
            if size > REF_BYTES
        ),
        key=lambda place: -place.size,
    )
    moved = []
    for place in movable:
        if place.size <= INLINE_BYTES and total <= room:
            break
        moved.append(place)
        total -= place.size - REF_BYTES
    if total > room:
        raise Refused(
            "payload_too_large",
            f"system texts and blocks that stay in the command have {total} bytes together, at most {room} fit; "
            "put long material into user blocks",
        )
    contents = [list(segment.content) for segment in segments]
    for place in moved:
        contents[place.segment][place.block] = await _offload_block(contents[place.segment][place.block], blobs)
    return tuple(
        Segment(role=segment.role, content=tuple(content)) for segment, content in zip(segments, contents, strict=True)
    )


async def store_text(text: str, blobs: Blobs) -> tuple[str, BlobRef | None]:
    """Return a text for a command: the text itself when short, otherwise a blob reference. Raises Refused."""
    data = text.encode()
    return (text, None) if len(data) <= INLINE_BYTES else ("", await _store_blob(data, blobs))


def _block_size(block: ContentBlock) -> int:
    return len(block.data) if block.type == "image" else len(block.text.encode())


async def _offload_block(block: ContentBlock, blobs: Blobs) -> ContentBlock:
    # Of an image the base64 text is stored: what a provider receives.
    return replace(block, text="", data="", blob=await _store_blob((block.data or block.text).encode(), blobs))


async def _store_blob(data: bytes, blobs: Blobs) -> BlobRef:
    with reaching("blobs"):
        return await blobs.put(data)
