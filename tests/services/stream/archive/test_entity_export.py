"""What a state file needs besides the events of entities."""

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import DIGEST_BYTES
from loomlog.schemas.generated.definition_events import DefVersionCreated
from loomlog.schemas.generated.values import BlobRef, Envelope
from loomlog.services.stream.archive.entity_export import EntityExport
from tests.services.stream.given import CODEC, claim_record

TOPIC = "loom.entity.events"
LONG = BlobRef(sha256="a" * 64, size_bytes=20_000, media_type="application/json")


async def test_the_payloads_of_long_definitions_are_named() -> None:
    name = "definition:acme/agent/helper"
    created = DefVersionCreated(kind="agent", name="helper", version=1, def_id="def_1", content_blob=LONG)
    envelope = Envelope(term=0, seq=1, aggregate=name, tenant="acme", at_ms=1, prev=bytes(DIGEST_BYTES))
    log = MemoryLog({TOPIC: 1})
    created_record = ProducerRecord(key=b"acme/agent/helper", value=CODEC.encode_event(envelope, created))
    log.put(TOPIC, 0, [claim_record(), created_record])
    with EntityExport(CODEC, {}) as export:
        await export.read(log, TOPIC, 0, 2)
        assert [one.aggregate for one in export.aggregates()] == [name]
        assert list(export.blobs.values()) == [LONG]
