import pytest

from loomlog.connectors.crypto.signatures import generate_key
from loomlog.schemas.codec import local_codec
from loomlog.schemas.records import replace
from loomlog.services.core.audit import ledger as module
from loomlog.services.core.audit.checkpoints import SignedCheckpoint, read_signed, sign
from loomlog.services.core.audit.hashes import START_CHAIN
from loomlog.services.core.audit.ledger import SigningContradiction, SigningCursor
from loomlog.services.core.audit.tail import CheckpointTail
from tests.services.core.audit.test_verify import story
from tests.services.core.audit.written import KEY, PARTITION, TOPIC, Log, Record, verify


def ledger() -> SigningCursor:
    return SigningCursor(topic=TOPIC, partition=PARTITION, codec=local_codec())


def signed(log: Log, number: int) -> SignedCheckpoint:
    return read_signed(log.checkpoints[number].value, number, local_codec())


def test_a_signer_that_resumes_goes_on_where_the_last_one_stopped():
    log = story()
    resumed = ledger()
    resumed.resume(signed(log, 3), 0, 34)
    for record in log.records[resumed.next_offset :]:
        assert resumed.waiting == 0 or record.offset > 30
        resumed.read(record)
    draft = resumed.draft(key_id="k", at_ms=5)
    assert draft is not None
    log.sign()
    theirs = signed(log, 4).checkpoint
    assert replace(draft, key_id=theirs.key_id, at_ms=theirs.at_ms, signature=theirs.signature) == theirs


def test_nothing_new_is_nothing_to_sign():
    log = story()
    resumed = ledger()
    resumed.resume(signed(log, 3), 0, 30)
    for record in log.records[resumed.next_offset : 30]:
        resumed.read(record)
    assert (resumed.signed_offset, resumed.waiting) == (30, 0)
    assert resumed.draft(key_id="k", at_ms=5) is None


@pytest.mark.parametrize("offset", range(28, 30))
def test_a_log_that_contradicts_the_last_checkpoint_is_not_signed(offset: int):
    log = story()
    resumed = ledger()
    resumed.resume(signed(log, 3), 0, 34)
    resumed.read(replace(log.records[28], timestamp=1) if offset == 28 else log.records[28])
    with pytest.raises(SigningContradiction, match="offsets 28 to 29 are not what the checkpoint"):
        resumed.read(replace(log.records[29], timestamp=1) if offset == 29 else log.records[29])


def test_a_hole_where_a_record_was_signed_is_a_contradiction_too():
    log = story()
    resumed = ledger()
    resumed.resume(signed(log, 3), 0, 34)
    resumed.read(log.records[28])
    with pytest.raises(SigningContradiction):
        resumed.read(log.records[30])


def test_a_log_that_was_cut_off_is_not_signed():
    with pytest.raises(SigningContradiction, match="ends at offset 29, but it was signed up to 30"):
        ledger().resume(signed(story(), 3), 0, 29)
    with pytest.raises(SigningContradiction, match="begins at offset 29, but it was signed from 28 on"):
        ledger().resume(signed(story(), 3), 29, 40)


def test_another_signers_checkpoint_is_taken_over_when_it_agrees():
    log = story()
    other = ledger()
    for record in log.records:
        other.read(record)
    for number in range(4):
        other.adopt(signed(log, number))
        assert other.signed_offset == signed(log, number).checkpoint.next_offset
    assert other.waiting == 4
    other.adopt(signed(log, 1))
    assert other.signed_offset == 30, "one that says less changes nothing"


def test_another_signer_that_saw_another_log_is_a_contradiction():
    log = story()
    other = ledger()
    for record in log.records:
        other.read(replace(record, key=b"x") if record.offset == 3 else record)
    with pytest.raises(SigningContradiction, match="offsets 0 to 11"):
        other.adopt(signed(log, 0))


def test_a_hole_in_the_offsets_is_signed_as_a_hole():
    log = story()
    holed = Log(records=[record for record in log.records if record.offset not in (7, 33)])
    holed.sign()
    checkpoint = signed(holed, 0).checkpoint
    assert (checkpoint.first_offset, checkpoint.next_offset, checkpoint.records) == (0, 33, 32)
    assert checkpoint.fingerprints[7 * 8 : 8 * 8] == bytes(8)
    assert verify(holed.records, holed.checkpoints).is_clean


def test_a_checkpoint_covers_a_bounded_number_of_offsets(monkeypatch):
    monkeypatch.setattr(module, "MAX_RECORDS", 10)
    log = story()
    bounded = ledger()
    for record in log.records[:15]:
        bounded.read(record)
    assert bounded.is_full
    draft = bounded.draft(key_id=KEY.key_id, at_ms=1)
    assert draft is not None
    assert (draft.next_offset, draft.term, draft.start_chain) == (10, 6, START_CHAIN)
    bounded.adopt(read_signed(sign(draft, KEY.sign, local_codec()), 0, local_codec()))
    assert (bounded.signed_offset, bounded.waiting) == (10, 5)


def test_a_log_that_begins_late_is_signed_from_its_first_record_on():
    log = story()
    late = ledger()
    late.begin(12)
    for record in log.records[12:]:
        late.read(record)
    draft = late.draft(key_id="k", at_ms=1)
    assert draft is not None
    assert (draft.first_offset, draft.records, draft.prev) == (12, 22, b"")


# --- the line of checkpoints a signer goes on with -------------------------------------------------------------------


def tail(*keys: object) -> CheckpointTail:
    known = {KEY.key_id: KEY.public.verify}
    return CheckpointTail(topic=TOPIC, partition=PARTITION, keys=known, codec=local_codec())


def read_all(line: CheckpointTail, checkpoints: list[Record]) -> CheckpointTail:
    for record in checkpoints:
        line.read(record)
    return line


def test_the_newest_checkpoint_is_the_one_that_reaches_farthest():
    line = read_all(tail(), story().checkpoints)
    assert line.newest is not None
    assert (line.newest.at_offset, line.next_offset) == (3, 4)


def test_a_line_that_does_not_hold_is_a_contradiction():
    log = story()
    c = log.checkpoints
    value = c[1].value or b""
    for broken, why in (
        ([c[0], replace(c[1], value=value[:-1] + bytes([value[-1] ^ 1]))], "wrong signature"),
        ([c[0], c[2]], "names a checkpoint before it that is not there"),
        ([c[1]], "is the first one there is, but names one before it"),
    ):
        with pytest.raises(SigningContradiction, match=why):
            read_all(tail(), broken)


@pytest.mark.parametrize("value", [None, b"", b"\1garbage"])
def test_a_record_that_is_no_checkpoint_does_not_end_signing(value):
    c = story().checkpoints
    stray = replace(c[3], offset=4, value=value)
    line = read_all(tail(), [*c, stray])
    assert line.newest is not None
    assert (line.newest.at_offset, line.next_offset) == (3, 5)
    replaced = read_all(tail(), [c[0], replace(c[1], value=value), c[2], c[3]])
    assert replaced.newest is not None
    assert replaced.newest.at_offset == 3
    with pytest.raises(SigningContradiction, match="is not there"):
        read_all(tail(), [c[0], stray, c[1], c[3]])


def test_a_key_nobody_listed_is_a_contradiction_that_says_what_to_do():
    log = story()
    log.sign(generate_key())
    with pytest.raises(SigningContradiction, match="LOOMLOG_AUDIT_PUBLIC_KEYS"):
        read_all(tail(), log.checkpoints)


def test_a_checkpoint_of_another_partition_is_a_contradiction():
    log = story()
    other = CheckpointTail(topic=TOPIC, partition=4, keys={KEY.key_id: KEY.public.verify}, codec=local_codec())
    with pytest.raises(SigningContradiction, match=r"was signed for loom\.run\.events/3"):
        other.read(log.checkpoints[0])
