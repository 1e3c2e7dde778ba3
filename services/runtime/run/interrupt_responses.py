"""Preparation of a person's answer for the core: masked, compared with the options, and encrypted again.

The log holds the options encrypted, as tokens that cannot be compared, and the answer goes into a JSON text, where a
token has to decrypt to a JSON value. Both need the plain text, so both are done here, while the command is prepared.

Before: command_handler.py. After: services/core/run/interrupts/interruptions.py.
"""

import json
from collections.abc import Callable, Sequence

from loomlog.connectors.errors import Permanent
from loomlog.connectors.mcp.elicitation import read_answer
from loomlog.schemas.generated.run_commands import ResolveInterruption
from loomlog.services.core.run.commands import AnswerInterruptionCommand
from loomlog.services.core.run.interrupts.interruptions import answer_error, open_questions
from loomlog.services.core.run.interrupts.questions import CALL_QUESTION, DECLINED
from loomlog.services.core.run.state import State
from loomlog.services.runtime.content.encryption import PLAINTEXT, ContentEncryption
from loomlog.services.runtime.content.payloads import make_storable
from loomlog.services.stream.partition.lookups import continue_in_task

AnswerFactory = Callable[[int], AnswerInterruptionCommand]
"""Builds the command for the time at which it is decided, UTC milliseconds."""


class InterruptionAnswers:
    """Prepares answers to interruptions; `mask` hides secrets in what is appended."""

    def __init__(self, encryption: ContentEncryption = PLAINTEXT, *, mask: Callable[[str], str] = str) -> None:
        self._encryption = encryption
        self._mask = mask

    async def prepare(self, command: ResolveInterruption, state: State, tenant: str, subject: str) -> AnswerFactory:
        """Return the factory of the command. Raises Transient when content is encrypted and a key cannot be read."""
        asked = [q for q in open_questions(state) if q.interrupt_id == command.interrupt_id]
        options = asked[0].options if asked else ()
        form = asked[0].context if asked and asked[0].kind == CALL_QUESTION else ""
        if not self._encryption.is_enabled:
            return self._build_answer_factory(command, command.answer, options, form, str)
        await continue_in_task()
        sealer = await self._encryption.cipher(tenant, subject)
        try:
            answer = await self._encryption.decrypt_text(command.answer, tenant)
            form = await self._encryption.decrypt_text(form, tenant)
            offered = [await self._encryption.decrypt_text(option, tenant) for option in options]
        except Permanent as error:
            problem = f"the answer cannot be compared with what is offered: {error}"
            return lambda at_ms: AnswerInterruptionCommand(at_ms=at_ms, command=command, problem=problem)
        return self._build_answer_factory(command, answer, offered, form, sealer.text)

    def _build_answer_factory(
        self,
        command: ResolveInterruption,
        answer: str,
        options: Sequence[str],
        form: str,
        encrypt: Callable[[str], str],
    ) -> AnswerFactory:
        problem = "" if command.disposition == DECLINED else answer_error(answer, options)
        if form and not problem and command.disposition != DECLINED:
            answer, problem = read_answer(form, answer)
        kept = "" if problem else make_storable(self._mask(answer))

        def at(at_ms: int) -> AnswerInterruptionCommand:
            as_json = encrypt(json.dumps(kept, ensure_ascii=False))
            return AnswerInterruptionCommand(
                at_ms=at_ms, command=command, answer=encrypt(kept), answer_json=as_json, problem=problem
            )

        return at
