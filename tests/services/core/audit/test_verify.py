import pytest

from loomlog.connectors.crypto.signatures import generate_key
from loomlog.schemas.codec import FRAME_BYTES, local_codec, read_envelope
from loomlog.schemas.generated.stream_records import AuditCheckpoint
from loomlog.schemas.records import replace
from loomlog.services.core.audit import alignment
from loomlog.services.core.audit.checkpoints import SIGNATURE_BYTES, read_signed, sign
from loomlog.services.core.audit.findings import FindingKind
from loomlog.services.core.audit.verify import VerificationStart
from tests.projections.stories import a3x2, asked, completed, replied, requested, returned, started
from tests.services.core.audit.written import (
    CHECKPOINTS,
    KEY,
    PARTITION,
    START_MS,
    TOPIC,
    Log,
    Record,
    flipped,
    renumbered,
    run_audit,
    verify,
    violations,
)

E, R, O, I, T = (  # noqa: E741
    FindingKind.EDITED,
    FindingKind.REMOVED,
    FindingKind.REORDERED,
    FindingKind.INSERTED,
    FindingKind.TRUNCATED,
)


def story() -> Log:
    """Three runs under two terms with a zombie's record; four checkpoints and a tail nobody signed.

    0 claim  1-4 r_a1..4  5 r_b1  6 claim  7 r_a5 (stale)  8-9 r_b2..3  10-11 r_a5..6 | 12-23 r_c1..12 | 24-27 r_b4..7 |
    28 claim  29 r_d1 | 30-33 r_d2..5 (nobody signed them)
    """
    log = Log()
    first = log.claim()
    log.add("r_a", started("r_a"), requested(1), replied(1, "A"), requested(2))
    log.add("r_b", started("r_b"))
    log.claim()
    log.add("r_a", requested(2, 2), term=first)
    log.add("r_b", requested(1), replied(1, "B"))
    log.add("r_a", replied(2, "done"), completed())
    log.sign()
    log.add("r_c", *a3x2("r_c"))
    log.sign()
    log.add("r_b", requested(2), replied(2, "x"), requested(3), replied(3, "end"))
    log.sign()
    log.claim()
    log.add("r_d", started("r_d"))
    log.sign()
    log.add("r_d", requested(1), replied(1, "D"), asked(1, 0, "c"), returned(1, 0, "c"))
    return log


STORY = story()
SIGNED = 30
"""Offset up to which it is signed."""


def altered(log: Log, offset: int, **changes: object) -> list[Record]:
    return [replace(r, **changes) if r.offset == offset else r for r in log.records]


def test_a_log_as_it_was_written_is_clean_and_its_stale_record_is_listed():
    report = verify(STORY.records, STORY.checkpoints, watch="r_a")
    assert report.is_clean
    assert [(f.kind, f.offset, f.run_id, f.seq, f.count) for f in report.findings] == [
        (FindingKind.STALE, 7, "r_a", 5, 1),
        (FindingKind.UNSIGNED, 30, "", -1, 4),
    ]
    assert (report.records, report.signed_records, report.events, report.claims) == (34, 30, 30, 3)
    assert (report.stale, report.live_runs, report.covered, report.next_offset) == (1, 2, 30, 34)
    assert report.watched is not None
    assert (report.watched.first_offset, report.watched.last_offset, report.watched.seq) == (1, 11, 6)
    assert report.watched.ended
    (signed,) = report.ranges
    assert (signed.key_id, signed.first_offset, signed.next_offset, signed.checkpoints) == (KEY.key_id, 0, 30, 4)


# --- flip every kind of byte -----------------------------------------------------------------------------------------


def parts(value: bytes) -> dict[str, int]:
    """A position in each field of an event's bytes."""
    envelope, body = read_envelope(value)
    text = value.index(envelope.aggregate.encode())
    term_bytes = 1 if envelope.term < 64 else 2
    return {
        "magic": 0,
        "schema id": FRAME_BYTES - 1,
        "term": FRAME_BYTES,
        "seq": FRAME_BYTES + term_bytes,
        "aggregate": text + 2,
        "tenant": value.index(b"acme") + 1,
        "time": value.index(b"acme") + 5,
        "cause": value.index(b"c_1") + 1,
        "prev": body - 1,
        "body": body,
        "last byte": len(value) - 1,
    }


PLACES = tuple(parts(STORY.records[9].value or b""))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("offset", [1, 3, 9, 11, 13, 23, 27, 29])
def test_a_flipped_byte_of_a_signed_event_is_found_and_nothing_else_is_blamed(offset: int, place: str):
    value = STORY.records[offset].value or b""
    envelope, _ = read_envelope(value)
    report = verify(altered(STORY, offset, value=flipped(value, parts(value)[place], 2)), STORY.checkpoints)
    ((kind, at, run_id, seq),) = violations(report)
    assert (kind, at) == (E, offset)
    if offset not in (11, 23, 27) or place not in ("magic", "term", "seq", "aggregate"):
        # The last event of a run has none behind it that would tell what the bytes do not say any more.
        assert (run_id, seq) == (envelope.aggregate, envelope.seq)


@pytest.mark.parametrize("offset", range(SIGNED))
def test_every_single_byte_of_a_signed_record_is_covered(offset: int):
    value = STORY.records[offset].value or b""
    for at in range(0, len(value), 7):
        report = verify(altered(STORY, offset, value=flipped(value, at, 16)), STORY.checkpoints)
        assert [(kind, actual) for kind, actual, _, _ in violations(report)] == [(E, offset)], at


@pytest.mark.parametrize("offset", [0, 6, 7, 28])
def test_a_changed_claim_or_stale_record_is_named_and_what_follows_it_keeps_its_meaning(offset: int):
    value = STORY.records[offset].value or b""
    for at in (0, FRAME_BYTES - 1, FRAME_BYTES, len(value) - 1):
        report = verify(altered(STORY, offset, value=flipped(value, at)), STORY.checkpoints)
        assert [(kind, actual) for kind, actual, _, _ in violations(report)] == [(E, offset)], at


@pytest.mark.parametrize("offset", [0, 7, 9, 23])
def test_key_headers_and_time_are_covered_too(offset: int):
    record = STORY.records[offset]
    headers = tuple(record.headers)
    changes: list[dict[str, object]] = [
        {"key": flipped(record.key or b"", 0)},
        {"key": None},
        {"timestamp": record.timestamp + 1},
        {"headers": (*headers, ("x", b"y"))},
    ]
    if headers:
        changes += [
            {"headers": headers[1:]},
            {"headers": (headers[1], headers[0], *headers[2:])},
            {"headers": ((headers[0][0], b"1.1"), *headers[1:])},
            {"headers": (("ce_specversiom", headers[0][1]), *headers[1:])},
        ]
    for change in changes:
        report = verify(altered(STORY, offset, **change), STORY.checkpoints)
        assert [(kind, at) for kind, at, _, _ in violations(report)] == [(E, offset)], change


def test_an_emptied_value_is_an_edit():
    assert violations(verify(altered(STORY, 9, value=None), STORY.checkpoints)) == [(E, 9, "r_b", 3)]


# --- remove, insert, reorder, truncate -------------------------------------------------------------------------------


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("offset", [2, 8, 9, 13, 14, 25])
def test_a_removed_event_is_named_with_its_run_and_seq(offset: int, copied: bool):
    records = [r for r in STORY.records if r.offset != offset]
    envelope, _ = read_envelope(STORY.records[offset].value or b"")
    report = verify(renumbered(records) if copied else records, STORY.checkpoints)
    assert violations(report) == [(R, offset, envelope.aggregate, envelope.seq)]
    assert report.stale == 1


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("offset", [0, 6, 7, 11, 23, 28])
def test_a_removed_claim_or_stale_record_or_last_event_is_named_by_its_offset(offset: int, copied: bool):
    records = [r for r in STORY.records if r.offset != offset]
    report = verify(renumbered(records) if copied else records, STORY.checkpoints)
    assert [(kind, at) for kind, at, _, _ in violations(report)] == [(R, offset)]


@pytest.mark.parametrize("copied", [False, True])
def test_a_removed_stretch_is_named_record_by_record(copied: bool):
    records = [r for r in STORY.records if not 12 <= r.offset < 26]
    report = verify(renumbered(records) if copied else records, STORY.checkpoints)
    assert [(kind, at) for kind, at, _, _ in violations(report)] == [(R, at) for at in range(12, 26)]


def test_an_inserted_record_is_named_where_it_lies():
    forged = Log(term=6, seqs={"r_c": 1}, digests=dict(STORY.digests))
    forged.add("r_c", requested(9))
    records = renumbered([*STORY.records[:13], forged.records[0], *STORY.records[13:]])
    assert violations(verify(records, STORY.checkpoints)) == [(I, 13, "r_c", 2)]


def test_a_record_that_is_there_twice_was_inserted():
    records = renumbered([*STORY.records[:14], STORY.records[13], *STORY.records[14:]])
    assert violations(verify(records, STORY.checkpoints)) == [(I, 14, "r_c", 2)]


def test_neighbours_that_changed_places_are_one_record_that_moved():
    records = [*STORY.records]
    records[14], records[15] = records[15], records[14]
    # That 15 lies before 14 and that 14 lies behind 15 are one and the same.
    assert violations(verify(renumbered(records), STORY.checkpoints)) == [(O, 15, "r_c", 4)]


def test_records_of_two_runs_that_changed_places_are_both_named():
    records = [*STORY.records]
    records[8], records[25] = records[25], records[8]
    report = verify(renumbered(records), STORY.checkpoints)
    assert violations(report) == [(O, 8, "r_b", 2), (O, 25, "r_b", 5)]
    assert [f.detail for f in report.findings if f.kind is O] == [
        "it is at offset 25 now",
        "it is at offset 8 now",
    ]


def test_a_record_that_was_moved_far_is_named():
    records = [*STORY.records[:2], *STORY.records[3:20], STORY.records[2], *STORY.records[20:]]
    assert violations(verify(renumbered(records), STORY.checkpoints)) == [(O, 2, "r_a", 2)]


@pytest.mark.parametrize("kept", [0, 1, 11, 12, 20, 29])
def test_a_log_that_was_cut_off_says_from_where_on_and_how_much(kept: int):
    report = verify(STORY.records[:kept], STORY.checkpoints)
    (finding,) = [f for f in report.findings if f.kind.is_violation]
    assert (finding.kind, finding.offset, finding.count) == (T, kept, SIGNED - kept)


def test_a_log_whose_beginning_is_gone_says_which_records():
    report = verify(STORY.records[5:], STORY.checkpoints)
    assert [(kind, at) for kind, at, _, _ in violations(report)] == [(R, at) for at in range(5)]


def test_a_record_that_was_replaced_by_another_history_of_its_run_is_named_with_all_that_follows_from_it():
    forged = Log(clock_ms=STORY.records[23].timestamp)
    forged.term, forged.seqs = 6, {"r_b": 3}
    forged.digests = {"r_b": bytes(16)}
    records = [*STORY.records]
    forged.records = [*records[:24]]
    forged.digests = {"r_b": _digest_of(records[9])}
    forged.add("r_b", requested(2), replied(2, "other"), requested(3), replied(3, "other end"))
    report = verify([*forged.records, *records[28:]], STORY.checkpoints)
    # The forger kept the chain of the run whole and did not change its first event; what was signed contradicts.
    assert violations(report) == [(E, 24 + n, "r_b", 4 + n) for n in (1, 2, 3)]


def _digest_of(record: Record) -> bytes:
    from loomlog.schemas.codec import digest

    return digest(record.value or b"")


# --- what nobody signed yet ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [place for place in PLACES if place not in ("term",)])
def test_a_flipped_byte_in_the_unsigned_tail_is_found_by_the_chain_of_its_run(place: str):
    value = STORY.records[31].value or b""
    report = verify(altered(STORY, 31, value=flipped(value, parts(value)[place], 2)), STORY.checkpoints)
    ((kind, at, run_id, seq),) = violations(report)
    assert (kind, at, run_id, seq) == (FindingKind.UNREADABLE if place == "magic" else E, 31, "r_d", 3) or (
        place in ("schema id", "body", "last byte") and (kind, at, seq) == (FindingKind.UNREADABLE, 31, 3)
    )


def test_a_term_that_names_no_claim_is_an_edit_in_the_unsigned_tail():
    value = STORY.records[31].value or b""
    report = verify(altered(STORY, 31, value=flipped(value, FRAME_BYTES, 2)), STORY.checkpoints)
    assert violations(report) == [(E, 31, "r_d", 3)]


def test_key_and_headers_that_contradict_the_event_are_found_without_a_signature():
    record = STORY.records[33]
    headers = tuple(record.headers)
    for change in (
        {"key": b"other"},
        {"headers": (headers[0], ("ce_id", b"other"), *headers[2:])},
        {"headers": (*headers[:2], ("ce_type", b"other"), headers[3])},
    ):
        assert violations(verify(altered(STORY, 33, **change), STORY.checkpoints)) == [(E, 33, "r_d", 5)]


def test_removed_reordered_and_inserted_events_are_found_by_seq_in_the_unsigned_tail():
    removed = [r for r in STORY.records if r.offset != 31]
    assert violations(verify(removed, STORY.checkpoints)) == [(R, -1, "r_d", 3)]
    swapped = [*STORY.records]
    swapped[31], swapped[32] = swapped[32], swapped[31]
    assert violations(verify(renumbered(swapped), STORY.checkpoints)) == [(O, 32, "r_d", 3)]
    twice = [*STORY.records, replace(STORY.records[31], offset=34)]
    assert violations(verify(twice, STORY.checkpoints)) == [(I, 34, "r_d", 3)]


def test_a_removed_claim_in_the_unsigned_tail_does_not_make_everything_behind_it_stale():
    log = story()
    log.claim()
    log.add("r_e", *a3x2("r_e"))
    report = verify([r for r in log.records if r.offset != 34], log.checkpoints)
    assert violations(report) == [(R, 34, "", -1)]
    assert report.stale == 1


def test_without_any_checkpoint_the_chains_of_the_runs_are_verified():
    assert verify(STORY.records, []).is_clean
    value = STORY.records[13].value or b""
    report = verify(altered(STORY, 13, value=flipped(value, len(value) - 3)), [])
    assert violations(report) == [(E, 13, "r_c", 2)]
    assert report.unsigned == 34


def test_a_tail_nobody_signed_for_too_long_is_a_violation_when_asked_for():
    since = STORY.records[30].timestamp
    late = verify(STORY.records, STORY.checkpoints, now_ms=since + 61_000, max_unsigned_s=60)
    assert [kind for kind, *_ in violations(late)] == [FindingKind.UNSIGNED_TOO_LONG]
    assert verify(STORY.records, STORY.checkpoints, now_ms=since + 59_000, max_unsigned_s=60).is_clean


# --- checkpoints -----------------------------------------------------------------------------------------------------


def in_checkpoints(report) -> list[tuple[FindingKind, int]]:
    return [(f.kind, f.offset) for f in report.findings if f.kind.is_violation and f.topic == CHECKPOINTS]


@pytest.mark.parametrize("number", range(4))
def test_every_flipped_byte_of_a_checkpoint_is_found_and_blames_no_record(number: int):
    record = STORY.checkpoints[number]
    value = record.value or b""
    kinds = set()
    for at in range(len(value)):
        changed = [*STORY.checkpoints]
        changed[number] = replace(record, value=flipped(value, at))
        report = verify(STORY.records, changed)
        (finding,) = [f for f in report.findings if f.kind.is_violation]
        assert (finding.topic, finding.partition, finding.offset) == (CHECKPOINTS, PARTITION, number), at
        if at >= len(value) - SIGNATURE_BYTES:
            assert finding.kind is FindingKind.BAD_SIGNATURE
        kinds.add(finding.kind)
    assert kinds == {FindingKind.BAD_SIGNATURE, FindingKind.UNKNOWN_KEY, FindingKind.EDITED}


def test_every_field_of_a_checkpoint_is_signed():
    signed = read_signed(STORY.checkpoints[1].value, 1, local_codec()).checkpoint
    for field, change in {
        "topic": "loom.run.other",
        "partition": 4,
        "start_term": 3,
        "term": 3,
        "start_chain": bytes(32),
        "chain": bytes(32),
        "fingerprints": bytes([7]) + signed.fingerprints[1:],
        "prev": bytes(32),
        "previous_key_id": "other",
        "at_ms": 5,
    }.items():
        other = replace(signed, **{field: change})
        value = local_codec().encode(other)
        changed = [*STORY.checkpoints]
        changed[1] = replace(changed[1], value=value)
        assert in_checkpoints(verify(STORY.records, changed)) == [(FindingKind.BAD_SIGNATURE, 1)], field


def test_the_key_and_headers_of_a_checkpoint_record_are_looked_at():
    for change in ({"key": b"4"}, {"key": None}, {"headers": (("a", b"b"),)}):
        changed = [replace(STORY.checkpoints[0], **change), *STORY.checkpoints[1:]]
        assert in_checkpoints(verify(STORY.records, changed)) == [(E, 0)]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_removed_checkpoint_is_found_and_blames_no_record(number: int):
    report = verify(STORY.records, [c for c in STORY.checkpoints if c.offset != number])
    assert violations(report) == [(R, number + 1, "", -1)]
    assert in_checkpoints(report) == [(R, number + 1)]


def test_a_repeated_and_a_moved_checkpoint_are_found():
    c = STORY.checkpoints
    assert in_checkpoints(verify(STORY.records, renumbered([c[0], c[1], c[1], c[2], c[3]]))) == [(I, 2)]
    assert in_checkpoints(verify(STORY.records, renumbered([c[0], c[2], c[1], c[3]]))) == [(O, 2)]


def test_a_checkpoint_of_another_partition_does_not_count():
    signed = read_signed(STORY.checkpoints[1].value, 1, local_codec()).checkpoint
    value = sign(replace(signed, partition=4), KEY.sign, local_codec())
    changed = [STORY.checkpoints[0], replace(STORY.checkpoints[1], value=value), *STORY.checkpoints[2:]]
    assert in_checkpoints(verify(STORY.records, changed)) == [(I, 1)]


def test_behind_a_checkpoint_that_does_not_count_an_edit_is_still_found_by_the_running_hash():
    """The record is the last of its run, so no chain covers it; only the next checkpoint's running hash does."""
    value = STORY.records[23].value or b""
    changed = [*STORY.checkpoints]
    changed[1] = replace(changed[1], value=flipped(changed[1].value or b"", -1 % len(changed[1].value or b"")))
    report = verify(altered(STORY, 23, timestamp=1, value=value), changed)
    finding = next(f for f in report.findings if f.topic == TOPIC and f.kind.is_violation)
    assert (finding.kind, finding.offset, finding.count) == (E, 12, 12)


def test_an_unknown_key_is_one_finding_however_much_it_signed():
    report = verify(STORY.records, STORY.checkpoints, keys=[generate_key().public])
    assert in_checkpoints(report) == [(FindingKind.UNKNOWN_KEY, 0)]
    assert dict(report.unknown_keys) == {KEY.key_id: 4}
    assert report.signed_records == 0


def test_after_a_rotation_both_keys_count_and_say_what_they_signed():
    second = generate_key()
    log = story()
    log.sign(second)
    report = verify(log.records, log.checkpoints, keys=[KEY.public, second.public])
    assert report.is_clean
    assert [(r.key_id, r.first_offset, r.next_offset) for r in report.ranges] == [
        (KEY.key_id, 0, 30),
        (second.key_id, 30, 34),
    ]
    last = read_signed(log.checkpoints[-1].value, 4, local_codec()).checkpoint
    assert last.previous_key_id == KEY.key_id
    without_old = verify(log.records, log.checkpoints, keys=[second.public])
    assert in_checkpoints(without_old) == [(FindingKind.UNKNOWN_KEY, 0)]


def test_two_signers_at_once_are_harmless():
    one, other = story(), story()
    other.checkpoints.clear()
    lines = Log(records=one.records)
    lines.sign()  # all of it, in one
    report = verify(one.records, renumbered([*one.checkpoints[:2], *lines.checkpoints, *one.checkpoints[2:]]))
    assert report.is_clean, report.findings
    assert report.covered == 34


def test_a_forged_checkpoint_that_covers_an_edit_needs_the_key():
    forger = generate_key()
    log = Log()
    log.records = altered(STORY, 9, timestamp=1)
    log.sign(forger)
    assert in_checkpoints(verify(log.records, log.checkpoints)) == [(FindingKind.UNKNOWN_KEY, 0)]
    claimed = read_signed(log.checkpoints[0].value, 0, local_codec()).checkpoint
    named = sign(replace(claimed, key_id=KEY.key_id), forger.sign, local_codec())
    changed = [replace(log.checkpoints[0], value=named)]
    assert in_checkpoints(verify(log.records, changed)) == [(FindingKind.BAD_SIGNATURE, 0)]


# --- from the middle, blobs, many records ----------------------------------------------------------------------------


def test_verifying_may_begin_at_any_checkpoint():
    second = read_signed(STORY.checkpoints[1].value, 1, local_codec()).checkpoint
    report = verify(STORY.records[12:], STORY.checkpoints[1:], start=VerificationStart.at(second))
    assert report.is_clean, report.findings
    assert (report.first_offset, report.records, report.signed_records) == (12, 22, 18)
    value = STORY.records[25].value or b""
    changed = altered(STORY, 25, value=flipped(value, len(value) - 1))[12:]
    assert violations(verify(changed, STORY.checkpoints[1:], start=VerificationStart.at(second))) == [(E, 25, "r_b", 5)]


def test_every_blob_an_event_names_is_handed_over():
    from loomlog.schemas.generated.values import BlobRef, ContentBlock, Segment

    log = Log()
    log.claim()
    blobs = [BlobRef(sha256=f"{n:064x}", size_bytes=n) for n in range(3)]
    inside = Segment(role="user", content=(ContentBlock(type="trusted-text", blob=blobs[0]),))
    log.add("r_a", started("r_a", segments=(inside,)), requested(1), replied(1, text_blob=blobs[1]))
    log.add("r_a", asked(1, 0, "c"), returned(1, 0, "c", text="", text_blob=blobs[2]))
    log.sign()
    report, references = run_audit(log.records, log.checkpoints)
    assert report.is_clean
    assert [(r.blob, r.offset, r.run_id, r.seq) for r in references] == [
        (blobs[0], 1, "r_a", 1),
        (blobs[1], 3, "r_a", 3),
        (blobs[2], 5, "r_a", 5),
    ]


def test_a_copy_in_which_everything_differs_ends_and_names_everything():
    log = Log()
    log.claim()
    for number in range(200):
        log.add(f"r_{number}", *a3x2(f"r_{number}"))
        if number % 40 == 39:
            log.sign()
    report = verify([replace(r, timestamp=r.timestamp + 1) for r in log.records], log.checkpoints)
    assert len(violations(report)) == len(log.records)
    assert {kind for kind, *_ in violations(report)} == {E}


def test_damage_in_many_places_of_a_long_log_is_named_exactly(monkeypatch):
    monkeypatch.setattr(alignment, "WINDOWS", (4, 16, 512))
    log = Log()
    log.claim()
    for number in range(100):
        log.add(f"r_{number}", *a3x2(f"r_{number}"))
        if number % 7 == 6:
            log.sign()
    log.sign()
    gone = {50, 51, 52, 300, 700, 701, 1100}
    edited = {90, 91, 400, 900}
    records = [replace(r, timestamp=0) if r.offset in edited else r for r in log.records if r.offset not in gone]
    for copy in (records, renumbered(records)):
        report = verify(copy, log.checkpoints)
        assert {(kind, at) for kind, at, *_ in violations(report)} == {(R, at) for at in gone} | {
            (E, at) for at in edited
        }


def test_a_stretch_longer_than_what_is_held_back_is_named_by_its_offsets(monkeypatch):
    monkeypatch.setattr(alignment, "WINDOWS", (4, 8, 16))
    log = Log()
    log.claim()
    for number in range(30):
        log.add(f"r_{number}", *a3x2(f"r_{number}"))
        if number % 5 == 4:
            log.sign()
    for gone in (range(100), range(100, 300), range(100, 120)):
        report = verify([r for r in log.records if r.offset not in gone], log.checkpoints)
        assert [(kind, at) for kind, at, *_ in violations(report)] == [(R, at) for at in gone]


def test_a_signed_checkpoint_is_no_bigger_than_it_says():
    value = STORY.checkpoints[1].value or b""
    signed = read_signed(value, 1, local_codec())
    assert isinstance(signed.checkpoint, AuditCheckpoint)
    assert len(signed.checkpoint.fingerprints) == 8 * 12
    assert len(value) < 400
    assert signed.checkpoint.at_ms > START_MS


def test_records_held_back_at_the_end_wait_for_the_checkpoints_that_cover_them():
    """64 signed records are known when the log ends with 63 held back; the last one is in the next checkpoint."""
    log = Log()
    log.claim()
    for number in range(5):
        log.add(f"r_{number}", *a3x2(f"r_{number}"))
    log.add("r_x", started("r_x"), requested(1), replied(1))
    log.sign()
    log.add("r_x", requested(2))
    log.sign()
    assert len(log.records) == 65
    report = verify([r for r in log.records if r.offset not in (0, 48)], log.checkpoints)
    assert [(kind, at) for kind, at, *_ in violations(report)] == [(R, 0), (R, 48)]


def test_a_stale_record_stays_stale_when_the_claim_of_its_term_is_gone():
    log = Log()
    log.claim()
    second = log.claim()
    log.claim()
    log.add("r_a", started("r_a"))
    log.add("r_a", requested(1), term=second)
    log.add("r_a", requested(1, 2))
    log.sign()
    report = verify([r for r in log.records if r.offset != second], log.checkpoints)
    assert violations(report) == [(R, second, "", -1)]
    assert report.stale == 1


def test_changed_stale_records_do_not_hide_the_events_they_look_like():
    log = Log()
    first = log.claim()
    log.add("r_a", started("r_a"))
    log.claim()
    stale = log.add("r_a", requested(1), replied(1), term=first)
    log.add("r_a", requested(1, 2), replied(1))
    log.sign()
    report = verify([replace(r, timestamp=0) if r.offset in stale else r for r in log.records], log.checkpoints)
    assert [(kind, at) for kind, at, *_ in violations(report)] == [(E, at) for at in stale]


def test_a_claim_says_that_the_damaged_record_before_it_was_one():
    log = Log()
    first = log.claim()
    log.add("r_a", started("r_a"))
    second = log.claim()
    log.add("r_a", requested(1), term=first)
    log.claim()
    log.add("r_a", requested(1, 2))
    log.sign()
    report = verify([r for r in log.records if r.offset != second], log.checkpoints)
    assert violations(report) == [(R, second, "", -1)]
    assert report.stale == 1
