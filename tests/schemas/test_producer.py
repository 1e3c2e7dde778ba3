import pytest

from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.generated.values import ContentBlock, Segment
from loomlog.schemas.ids import hashed_token, partition_key
from loomlog.schemas.producer import CommandRecord, start_run_record
from loomlog.schemas.sticky_partitioner import STICKY_RUNS, StickyPartitioner
from loomlog.services.application.runs.run_ids import continuation_names, new_run_names
from loomlog.services.runtime.run.start_handler import KEY_PATTERN


def command(record: CommandRecord) -> StartRun:
    actual = local_codec().decode(record.value).record
    assert isinstance(actual, StartRun)
    return actual


def test_a_new_run_has_an_id_of_its_own_under_its_own_key() -> None:
    first, second = (start_run_record(agent="assistant", prompt="hello", subject="billing") for _ in range(2))
    assert first.run_id != second.run_id
    assert first.run_id == f"r_{first.key.decode()}"
    assert KEY_PATTERN.match(first.key.decode())
    started = command(first)
    assert (started.run_id, started.envelope.command_id) == (first.run_id, first.run_id)
    assert (started.agent, started.prompt, started.envelope.subject) == ("assistant", "hello", "billing")
    assert started.envelope.issued_at_ms > 1_700_000_000_000


def test_runs_of_one_placer_lie_side_by_side_and_sessions_where_they_are() -> None:
    placer = StickyPartitioner(8)
    records = [start_run_record(agent="a", prompt="p", partitioner=placer) for _ in range(2 * STICKY_RUNS)]
    places = [partition_of(record.key, 8) for record in records]
    assert len(set(places)) < 8
    assert all(record.run_id == f"r_{record.key.decode()}" for record in records)
    further = start_run_record(agent="a", prompt="p", session_id="s_abc", partitioner=placer)
    assert further.key == b"abc"


def test_an_idempotency_key_gives_the_run_the_api_would_give_it() -> None:
    record = start_run_record(agent="a", prompt="p", tenant="t", subject="s", idempotency_key="k")
    names = new_run_names(fresh_token="x", tenant="t", subject="s", agent_id="", idempotency_key="k")
    assert (record.run_id, record.key.decode()) == (names.run_id, names.key)
    assert command(record).idempotency_key == "k"


def test_a_run_of_a_session_lies_in_the_sessions_partition() -> None:
    record = start_run_record(agent="a", prompt="p", session_id="s_abc", tenant="t", subject="s", idempotency_key="k")
    names = continuation_names(
        fresh_token="x", session_id="s_abc", tenant="t", subject="s", agent_id="", idempotency_key="k"
    )
    assert (record.run_id, record.key) == (names.run_id, b"abc")
    fresh = start_run_record(agent="a", prompt="p", session_id="s_abc")
    assert fresh.run_id.startswith("r_abc-")
    assert command(fresh).session_id == "s_abc"


def test_a_chosen_run_id_decides_the_key() -> None:
    record = start_run_record(agent="a", prompt="p", run_id="r_abc-1")
    assert (record.run_id, record.key) == ("r_abc-1", b"abc")
    assert partition_key(record.run_id) == "abc"


def test_headers_are_cloudevents_and_the_trace() -> None:
    trace = "00-0123456789abcdef0123456789abcdef-00000000000000aa-01"
    record = start_run_record(agent="a", prompt="p", subject="billing", traceparent=trace)
    assert dict(record.headers) == {
        "ce_specversion": b"1.0",
        "ce_id": record.run_id.encode(),
        "ce_type": b"loom.run.commands.StartRun",
        "ce_source": b"/billing",
        "traceparent": trace.encode(),
    }
    assert "traceparent" not in dict(start_run_record(agent="a", prompt="p").headers)


def test_segments_go_instead_of_a_prompt() -> None:
    segments = (Segment(role="user", content=(ContentBlock(type="trusted-text", text="x"),)),)
    record = start_run_record(agent="a", segments=segments, metadata={"order": "17"})
    assert (command(record).segments, command(record).options.metadata) == (segments, {"order": "17"})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"agent": "", "prompt": "p"}, "needs an agent"),
        ({"agent": "a"}, "a prompt or segments"),
        ({"agent": "a", "prompt": "p", "run_id": "r_1", "session_id": "s_1"}, "derived from"),
        ({"agent": "a", "prompt": "p", "run_id": "no spaces"}, "expected 1 to 128"),
        ({"agent": "a", "prompt": "p", "session_id": "s_" + "x" * 128}, "expected 1 to 128"),
    ],
)
def test_what_cannot_be_a_run_is_refused_before_it_is_sent(arguments: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        start_run_record(**arguments)  # type: ignore[arg-type]  # texts only


def test_tokens_are_what_the_ids_module_says() -> None:
    record = start_run_record(agent="a", prompt="p", idempotency_key="k")
    assert record.run_id == f"r_{hashed_token('idempotency', 'default', '', 'k')}"
