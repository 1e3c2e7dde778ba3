"""An indexer without the key of an installation that encrypts: it waits, and indexes no ciphertext."""

import pytest

from loomlog.connectors.crypto.content_encryption import KeyEncryptionKeys, key_encryption_key_id
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.schemas.codec import local_codec
from loomlog.services.core.refusals import StartProblem
from loomlog.services.projector.memory_indexing import KEYS_TOPIC, unencrypted
from loomlog.services.stream.encryption.subject_keys import SubjectKeys
from tests.services.application.world import KEK


async def test_ciphertext_is_not_indexed_as_if_it_were_text() -> None:
    log = MemoryLog({KEYS_TOPIC: 1})
    read = unencrypted(log.end_offset)
    elsewhere = MemoryLog({KEYS_TOPIC: 1})
    wrapping = KeyEncryptionKeys(current=key_encryption_key_id(KEK), keys={key_encryption_key_id(KEK): KEK})

    def keys_of(of: MemoryLog) -> SubjectKeys:
        return SubjectKeys(local_codec(), of, of, wrapping, topic=KEYS_TOPIC, clock_ms=lambda: 1)

    token = (await keys_of(elsewhere).cipher_for("acme", "ivy")).text('"tea"')
    assert await read('"tea"', "acme") == '"tea"'
    assert await read(token, "acme") == token, "nobody encrypts here: a user has written it"
    await keys_of(log).cipher_for("acme", "ivy")
    assert await read('"tea"', "acme") == '"tea"', "written before encryption was switched on"
    with pytest.raises(StartProblem, match="set it and restart the projector"):
        await read(token, "acme")
