"""Answers made ready: compared in clear, kept masked, and as JSON that is JSON also when it is encrypted."""

import json
from typing import Any

import pytest

from loomlog.connectors.crypto.content_encryption import KeyEncryptionKeys, has_tokens, key_encryption_key_id
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.run_commands import ResolveInterruption
from loomlog.services.core.run.commands import AnswerInterruptionCommand
from loomlog.services.core.run.interrupts.questions import Question
from loomlog.services.core.run.state import AwaitingTools, State
from loomlog.services.runtime.content.encryption import ContentEncryption
from loomlog.services.runtime.run.interrupt_responses import InterruptionAnswers
from loomlog.services.stream.encryption.subject_keys import ContentCipher, SubjectKeys
from tests.services.core.run.asking import asking, question
from tests.services.core.run.given import ENVELOPE, NOW, RUN

KEK = b"k" * 32
TRICKY = 'He said "no",\nthen {"yes"}'


def state_that_offers(*options: str) -> State:
    state = asking().state
    assert isinstance(state, AwaitingTools)
    [asked] = state.questions
    fields = {name: getattr(asked, name) for name in Question.__slots__}
    return AwaitingTools(
        facts=state.facts,
        turn=state.turn,
        requested_calls=state.requested_calls,
        questions=(Question(**{**fields, "options": options}),),
    )


def command(answer: str, **more: Any) -> ResolveInterruption:
    return ResolveInterruption(envelope=ENVELOPE, run_id=RUN, interrupt_id=question(), answer=answer, **more)


async def order(responses: InterruptionAnswers, given: ResolveInterruption, state: State) -> AnswerInterruptionCommand:
    answer = await responses.prepare(given, state, "t", "ada")
    return answer(NOW)


async def sealed() -> tuple[SubjectKeys, ContentCipher]:
    keys = SubjectKeys(
        local_codec(),
        log := MemoryLog({"keys": 1}),
        log,
        KeyEncryptionKeys(current=key_encryption_key_id(KEK), keys={key_encryption_key_id(KEK): KEK}),
        topic="keys",
        clock_ms=lambda: NOW,
    )
    return keys, await keys.cipher_for("t", "ada")


@pytest.mark.parametrize(("answer", "problem"), [("yes", False), ("maybe", True), ("", True)])
async def test_an_answer_is_compared_with_what_is_offered(answer: str, problem: bool) -> None:
    answer_interruption_command = await order(InterruptionAnswers(), command(answer), state_that_offers("yes", "no"))
    assert bool(answer_interruption_command.problem) is problem
    assert (answer_interruption_command.at_ms, answer_interruption_command.answer) == (NOW, "" if problem else answer)


async def test_a_decline_needs_no_answer() -> None:
    answer_interruption_command = await order(
        InterruptionAnswers(), command("", disposition="declined"), state_that_offers("yes")
    )
    assert answer_interruption_command.problem == ""


async def test_secrets_in_an_answer_are_masked() -> None:
    responses = InterruptionAnswers(mask=lambda text: text.replace("hunter2", "[redacted:PASSWORD]"))
    answer_interruption_command = await order(responses, command("it is hunter2"), state_that_offers())
    assert answer_interruption_command.answer == "it is [redacted:PASSWORD]"
    assert json.loads(answer_interruption_command.answer_json) == answer_interruption_command.answer


@pytest.mark.parametrize("answer", ["yes", TRICKY])
async def test_an_encrypted_answer_is_compared_and_opens_to_json_wherever_it_stands(answer: str) -> None:
    keys, sealer = await sealed()
    state = state_that_offers(sealer.text(answer), sealer.text("no"))
    for text in (answer, sealer.text(answer)):  # from a microservice in clear, or sealed by the command layer
        answer_interruption_command = await order(InterruptionAnswers(ContentEncryption(keys)), command(text), state)
        assert answer_interruption_command.problem == ""
        assert has_tokens(answer_interruption_command.answer)
        assert answer not in answer_interruption_command.answer_json
        opened = keys.decrypt(f'{{"answer": {answer_interruption_command.answer_json}}}', "t")
        assert json.loads(opened) == {"answer": answer}


async def test_an_encrypted_answer_that_is_not_offered_is_refused_and_not_kept() -> None:
    keys, sealer = await sealed()
    answer_interruption_command = await order(
        InterruptionAnswers(ContentEncryption(keys)),
        command(sealer.text("maybe")),
        state_that_offers(sealer.text("yes")),
    )
    assert answer_interruption_command.problem
    assert answer_interruption_command.answer == ""


async def test_what_nobody_can_read_here_is_refused_and_does_not_wait_for_ever() -> None:
    _, foreign = await sealed()
    keys, _ = await sealed()
    answer_interruption_command = await order(
        InterruptionAnswers(ContentEncryption(keys)), command(foreign.text("yes")), state_that_offers()
    )
    assert "cannot be compared" in answer_interruption_command.problem
