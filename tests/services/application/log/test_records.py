import base64
import json
from hashlib import sha256

import pytest

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import HERE, Codec, local_codec
from loomlog.schemas.generated.run_commands import CancelRun
from loomlog.schemas.generated.stream_records import ClientLeft, ModelDelta, SubjectKeyMade
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.application.log.records import (
    CHUNK_RECORDS,
    CLAIM,
    EVENTS_TOPIC,
    HIDDEN,
    LEGAL,
    PLAIN,
    STALE,
    UNREADABLE,
    RecordClassifier,
    find_term_before,
    read_record,
    record_json,
    to_json_value,
)
from loomlog.services.core.refusals import Refused
from tests.projections.stories import Partition, completed, replied, requested, started

COMMANDS, SUBJECTS, CLIENTS = "loom.run.commands", "loom.subject.keys", "loom.client.events"
LOCK = HERE / "ids.json"


def log_of(partition: Partition) -> MemoryLog:
    log = MemoryLog({EVENTS_TOPIC: 1, COMMANDS: 1})
    log.put(EVENTS_TOPIC, 0, partition.outgoing())
    return log


def registry_codec() -> Codec:
    """Another table of ids than the committed lock."""
    return Codec(
        {1000 + found["id"]: (name, found["version"]) for name, (found,) in json.loads(LOCK.read_text()).items()}
    )


def two_owners(codec: Codec | None = None) -> Partition:
    """Claim, a run, a second Claim, a stale record of the first owner, the run's end."""
    partition = Partition(codec=codec or local_codec())
    partition.claim("first")
    partition.add("r_1", started("r_1"), requested(1))
    partition.claim("second")
    partition.add("r_1", requested(1, 2), term=0)
    partition.add("r_1", replied(1, "Hi!"), completed())
    return partition


def kinds(partition: Partition, *, start: int = 0, term: int = -1) -> list[str]:
    judge = RecordClassifier(EVENTS_TOPIC, term=term, next_offset=start)
    records = log_of(partition).records[EVENTS_TOPIC, 0]
    return [judge.classify(record).kind for record in records[start:]]


def test_every_record_is_legal_a_claim_or_stale():
    assert kinds(two_owners()) == [CLAIM, LEGAL, LEGAL, CLAIM, STALE, LEGAL, LEGAL]


async def test_a_log_written_with_the_ids_of_a_registry_is_read_with_them():
    codec = registry_codec()
    log = log_of(two_owners(codec))
    assert await find_term_before(log, EVENTS_TOPIC, 0, 5, codec) == 3
    assert await find_term_before(log, EVENTS_TOPIC, 0, 5) == -1
    shown = await read_record(log, EVENTS_TOPIC, 0, 4, codec)
    assert (shown.kind, shown.type, shown.term, shown.term_in_force) == (STALE, "ModelCallRequested", 0, 3)
    assert (await read_record(log, EVENTS_TOPIC, 0, 4)).kind == UNREADABLE


def test_bytes_nobody_can_read_are_told_and_do_not_change_the_term():
    partition = two_owners()
    partition.records.insert(5, b"\x00\x00\x00\x00\x63garbage")
    found = kinds(partition)
    assert found[5] == UNREADABLE
    assert found[6] == LEGAL
    judge = RecordClassifier(EVENTS_TOPIC, term=3, next_offset=5)
    view = judge.classify(log_of(partition).records[EVENTS_TOPIC, 0][5])
    assert view.error
    assert view.position == "loom.run.events/0:5"


@pytest.mark.parametrize(("offset", "term"), [(0, -1), (1, 0), (3, 0), (4, 3), (7, 3)])
async def test_the_term_in_force_is_the_nearest_claim_before(offset, term):
    assert await find_term_before(log_of(two_owners()), EVENTS_TOPIC, 0, offset) == term


async def test_a_claim_is_found_however_far_back():
    partition = Partition()
    partition.claim()
    partition.add("r_1", started("r_1"))
    for _ in range(CHUNK_RECORDS * 2 + 7):
        partition.records.append(partition.records[-1])
    assert await find_term_before(log_of(partition), EVENTS_TOPIC, 0, len(partition.records)) == 0


async def test_a_record_in_the_middle_is_judged_by_the_term_in_force_there():
    log = log_of(two_owners())
    stale = await read_record(log, EVENTS_TOPIC, 0, 4)
    assert (stale.kind, stale.term, stale.term_in_force) == (STALE, 0, 3)
    legal = await read_record(log, EVENTS_TOPIC, 0, 5)
    assert (legal.kind, legal.term, legal.seq, legal.run_id, legal.type) == (LEGAL, 3, 3, "r_1", "ModelReplied")
    claim = await read_record(log, EVENTS_TOPIC, 0, 3)
    assert (claim.kind, claim.payload["owner"], claim.term_in_force) == (CLAIM, "second", 3)


@pytest.mark.parametrize("offset", [7, 99])
async def test_an_offset_that_does_not_exist_says_what_does(offset):
    with pytest.raises(Refused, match="it holds 0 to 6"):
        await read_record(log_of(two_owners()), EVENTS_TOPIC, 0, offset)


async def test_topics_without_terms_are_plain():
    log = log_of(two_owners())
    envelope = CommandEnvelope(command_id="c_1", tenant="acme", issued_at_ms=5)
    cancel = local_codec().encode(CancelRun(envelope=envelope, run_id="r_1", reason="enough"))
    delta = local_codec().encode(ModelDelta(term=0, run_id="r_1", turn=1, attempt=1, start=0, text="Hi"))
    log.put(COMMANDS, 0, [ProducerRecord(key=b"1", value=cancel), ProducerRecord(key=b"1", value=delta)])
    log.put(COMMANDS, 0, [ProducerRecord(key=b"1", value=None)])
    command = await read_record(log, COMMANDS, 0, 0)
    assert (command.kind, command.type, command.run_id, command.cause_id, command.tenant) == (
        PLAIN,
        "CancelRun",
        "r_1",
        "c_1",
        "acme",
    )
    assert command.payload == {"run_id": "r_1", "reason": "enough"}
    assert (await read_record(log, COMMANDS, 0, 1)).type == "ModelDelta"
    assert (await read_record(log, COMMANDS, 0, 2)).type == "(tombstone)"


async def test_as_json_a_record_has_the_names_of_the_api_and_says_when_it_is_stale():
    shown = record_json(await read_record(log_of(two_owners()), EVENTS_TOPIC, 0, 4))
    assert shown["position"] == "loom.run.events/0:4"
    assert (shown["stale"], shown["kind"], shown["term"], shown["term_in_force"]) == (True, STALE, 0, 3)
    assert shown["payload"]["attempt"] == 2
    assert shown["at"].endswith("Z")


def test_bytes_become_the_text_they_are_or_hex():
    assert to_json_value({"a": (b"text", b"\xff\x00"), "b": [{"c": b"two\nlines"}]}) == {
        "a": ["text", "ff00"],
        "b": [{"c": "two\nlines"}],
    }


async def test_a_record_that_cannot_be_decoded_is_shown_by_its_bytes_and_the_reason():
    log = log_of(two_owners())
    log.put(COMMANDS, 0, [ProducerRecord(key=b"1", value=b"\x07rubbish")])
    shown = record_json(await read_record(log, COMMANDS, 0, 0))
    assert (shown["kind"], shown["type"], shown["size_bytes"]) == (UNREADABLE, None, 8)
    assert base64.b64decode(shown["value_base64"] or "") == b"\x07rubbish"
    assert "not framed" in (shown["error"] or "")


async def test_an_event_names_the_hash_of_the_one_before_and_a_claim_has_none():
    log = log_of(two_owners())
    first, second, claim = [record_json(await read_record(log, EVENTS_TOPIC, 0, offset)) for offset in (1, 2, 3)]
    assert first["prev_hash"] == "00" * 16
    assert second["prev_hash"] == sha256(log.records[EVENTS_TOPIC, 0][1].value or b"").hexdigest()[:32]
    assert claim["prev_hash"] is None


async def test_wrapped_keys_are_not_shown():
    made = SubjectKeyMade(tenant="acme", subject="ann", key_id="0a", wrapped=b"sealed", wrapped_by="0b", at_ms=1)
    log = MemoryLog({SUBJECTS: 1})
    log.put(SUBJECTS, 0, [ProducerRecord(key=b"0a", value=local_codec().encode(made))])
    payload = record_json(await read_record(log, SUBJECTS, 0, 0))["payload"]
    assert (payload["subject"], payload["wrapped"]) == ("ann", HIDDEN)


async def test_topics_with_many_writers_have_no_terms():
    left = ClientLeft(connection_id="c_1", host="h_1", at_ms=1)
    log = MemoryLog({CLIENTS: 1})
    log.put(CLIENTS, 0, [ProducerRecord(key=b"c", value=local_codec().encode(left))])
    assert (await read_record(log, CLIENTS, 0, 0)).kind == PLAIN
