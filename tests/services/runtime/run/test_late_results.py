"""A result as a command and back: what the new owner decides on is what the call gave."""

from typing import Any

import pytest

from loomlog.connectors.errors import UnknownOutcome
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.generated.run_commands import HandOverModelReply, HandOverToolResult
from loomlog.schemas.generated.values import BlobRef, ChannelUse, HookAct, LeaseRef, SkillPin
from loomlog.schemas.ids import partition_key
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import HAPPENED, ModelAnswered, ToolCompleted
from loomlog.services.runtime.run import late_results
from loomlog.services.runtime.run.late_results import ResultForwarder, decode_result, encode_result
from tests.services.core.run.given import ENVELOPE, NOW, RUN, answered, at_tools, begun, calls, erred, recover, returned
from tests.services.core.run.given import reconciled as found_out
from tests.services.core.run.waiting import QUEUE, waits
from tests.services.runtime.given import values
from tests.services.stream.given import CODEC

COMMANDS = "commands"
PAID: dict[str, Any] = {"credential_source": "run", "credential_scope": RUN}
BLOB = BlobRef(sha256="ab" * 32, size_bytes=70_000, media_type="text/plain")


def model_result() -> ModelAnswered:
    order = answered(begun().state, "let me", *calls("A", "B"), classes=("read", "unsafe"), reconcilable=(False, True))
    return replace(order, text_blob=BLOB, reasoning="hm", reasoning_signature="sig", traceparent="00-x", **PAID)


def test_a_result_is_the_same_after_the_journey() -> None:
    act = HookAct(hook_id="h1", owner="ops", name="guard", phase="pre", act="widened_hosts", hosts_added=("a.com",))
    tool = returned(at_tools("A").state, 0, "found", is_error=True, outcome="timeout", text_blob=BLOB, hook_acts=(act,))
    pin = SkillPin(name="tidy", def_id="sdf_1", version=3, content_sha256="sha256:ab")
    use = ChannelUse(kind="publish", channel="news", scope="user", message_id="msg_1", preview="hi")
    lease = LeaseRef(queue=QUEUE, lease_id="l1", taken=2)
    tool = replace(tool, positions=("loom.entity.events/1:7",), skill_pin=pin, channels=(use,), leases=(lease,))
    for order in (model_result(), tool):
        command = encode_result(ENVELOPE, RUN, order)
        assert command is not None
        assert decode_result(CODEC.decode(CODEC.encode(command)).record, NOW) == order


def test_every_field_of_a_model_result_travels() -> None:
    # The totals of the tree are those of the moment in which it is decided.
    assert set(ModelAnswered.__struct_fields__) - {"at_ms", "tree"} == set(HandOverModelReply.__struct_fields__) - {
        "envelope",
        "run_id",
    }


def test_every_field_of_a_tool_result_travels() -> None:
    assert set(ToolCompleted.__struct_fields__) - {"at_ms"} == set(HandOverToolResult.__struct_fields__) - {
        "envelope",
        "run_id",
    }


def test_failures_and_what_can_be_asked_again_stay() -> None:
    assert encode_result(ENVELOPE, RUN, erred(begun().state)) is None
    assert encode_result(ENVELOPE, RUN, waits()) is None, "the next attempt asks its queue under the same key"
    run = at_tools("A", classes=("unsafe",), reconcilable=(True,))
    run.give(recover())
    assert encode_result(ENVELOPE, RUN, found_out(run.state, 0, HAPPENED)) is None


@pytest.mark.parametrize("wrong", [{"effect_classes": ()}, {"reconcilable": (True,)}])
def test_a_result_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    command = encode_result(ENVELOPE, RUN, model_result())
    assert isinstance(command, HandOverModelReply)
    with pytest.raises(ValueError, match="tool calls"):
        decode_result(replace(command, **wrong), NOW)


async def test_a_result_is_appended_again_until_it_is_known_to_be_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_results, "RETRY_S", 0.0)
    log, tried = MemoryLog({COMMANDS: 1}), 0

    class Shaky:
        async def append(self, topic: str, partition: int, records: list[ProducerRecord]) -> int:
            nonlocal tried
            tried += 1
            if tried < 3:
                raise UnknownOutcome("no answer")
            return await log.append(topic, partition, records)

    late = ResultForwarder(CODEC, Shaky(), topic=COMMANDS, partitions=1, clock_ms=lambda: NOW, name="old")  # type: ignore[arg-type]  # one method is used
    await late.forward(RUN, "t", model_result())
    (command,) = values(log, COMMANDS)
    assert log.records[COMMANDS, 0][0].key == partition_key(RUN).encode()
    assert (command.envelope.tenant, command.envelope.subject, command.run_id) == ("t", "old", RUN)
    assert late.forwarded == 1
