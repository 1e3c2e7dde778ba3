"""A blob store in memory that counts what it is asked for, and can be out of order."""

from loomlog.connectors.errors import Transient
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.schemas.generated.values import BlobRef


class CountingBlobs(MemoryBlobs):
    """Counts writes and reads. While `is_down` it refuses writes."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = self.reads = self.refused = 0
        self.is_down = False

    async def put(self, data: bytes, media_type: str = "text/plain") -> BlobRef:
        if self.is_down:
            self.refused += 1
            raise Transient("no room", kind="unavailable")
        self.writes += 1
        return await super().put(data, media_type)

    async def get(self, ref: BlobRef) -> bytes:
        self.reads += 1
        return await super().get(ref)
