"""A person's answer made ready for the core: masked, compared with what is offered, and encrypted again.

The log holds the options as tokens, which nobody can compare, and the answer goes into a JSON text, where a token has
to open to a JSON value. Both need the clear text, so both are done here, while the command is prepared.

Before: desk.py. After: services/core/run/interrupts/interruptions.py.
"""

import json
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from loomlog.connectors.errors import Permanent
from loomlog.schemas.generated.run_commands import ResolveInterruption
from loomlog.services.core.run.commands import AnswerInterruptionCommand
from loomlog.services.core.run.interrupts.interruptions import answer_error, open_questions
from loomlog.services.core.run.interrupts.questions import DECLINED
from loomlog.services.core.run.state import State
from loomlog.services.runtime.content.encryption import IN_CLEAR, Secrecy
from loomlog.services.runtime.content.payloads import storable

Answering = Callable[[int], AnswerInterruptionCommand]
"""Gives the order for the time at which it is decided, UTC milliseconds."""


class Responses:
    """`mask` hides secrets in what goes to the log."""

    def __init__(self, secrecy: Secrecy = IN_CLEAR, *, mask: Callable[[str], str] = str) -> None:
        self._secrecy = secrecy
        self._mask = mask

    def prepared(
        self, command: ResolveInterruption, state: State, tenant: str, subject: str
    ) -> Answering | Coroutine[Any, Any, Answering]:
        """The order, to be awaited when content is encrypted. Raises Transient then."""
        asked = [q for q in open_questions(state) if q.interrupt_id == command.interrupt_id]
        options = asked[0].options if asked else ()
        if self._secrecy.is_on:
            return self._opened(command, options, tenant, subject)
        return self._answering(command, command.answer, options, str)

    async def _opened(
        self, command: ResolveInterruption, options: Sequence[str], tenant: str, subject: str
    ) -> Answering:
        sealer = await self._secrecy.sealer(tenant, subject)
        try:
            answer = await self._secrecy.text(command.answer, tenant)
            offered = [await self._secrecy.text(option, tenant) for option in options]
        except Permanent as error:
            problem = f"the answer cannot be compared with what is offered: {error}"
            return lambda at_ms: AnswerInterruptionCommand(at_ms=at_ms, command=command, problem=problem)
        return self._answering(command, answer, offered, sealer.text)

    def _answering(
        self, command: ResolveInterruption, answer: str, options: Sequence[str], seal: Callable[[str], str]
    ) -> Answering:
        problem = "" if command.disposition == DECLINED else answer_error(answer, options)
        kept = "" if problem else storable(self._mask(answer))

        def at(at_ms: int) -> AnswerInterruptionCommand:
            as_json = seal(json.dumps(kept, ensure_ascii=False))
            return AnswerInterruptionCommand(
                at_ms=at_ms, command=command, answer=seal(kept), answer_json=as_json, problem=problem
            )

        return at
