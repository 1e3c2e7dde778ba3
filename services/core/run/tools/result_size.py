"""How much of a model's window the result of a tool call takes: a share of it, and the model is told what is missing.

Without a bound one result fills the window, and the run, and every run that continues its session, ends with the
provider's refusal. The whole result is kept, and can be read in parts.

Not chosen: the bound of the tool alone. A megabyte of output is nothing for a model of a million tokens and eight times
the window of a small one.

Before: services/runtime/tools/tool_result.py, which has the text in plaintext. After: ToolReturned, with the part that
the model sees and a reference to the whole.
"""

from collections.abc import Callable

from loomlog.services.core.run import limits
from loomlog.services.core.run.conversation.prompt import CUT_MARK
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.turns.code_agents import is_code_agent

OFFSET = "{offset}"
HEAD_PCT = 75
"""Percent of the part that is the beginning; the rest is the end, where a command says how it ended."""


def result_bytes_max(facts: RunFacts, calls: int) -> int:
    """Return the most bytes of UTF-8 that the result of one of so many calls of a turn may have; 0: any number. A
    script has no window, and the window of a model is known from its first answer on, where it is known at all.
    """
    if not facts.max_context_tokens or is_code_agent(facts.definition):
        return 0
    share = min(limits.RESULT_WINDOW_PCT, limits.RESULTS_WINDOW_PCT / max(1, calls))
    tokens = int(facts.max_context_tokens * share / 100)
    return max(tokens * limits.CHARACTERS_PER_TOKEN, limits.RESULT_BYTES_MIN)


def shorten(text: str, bytes_max: int, hint: Callable[[], str]) -> str | None:
    """Return the beginning and the end of a text that is longer than `bytes_max`, with a note of what is missing and a
    hint, in which OFFSET is where that begins; None when the text is short enough, for which no hint is made.
    """
    if not bytes_max or len(text) * 4 <= bytes_max:
        return None
    data = text.encode()
    if len(data) <= bytes_max:
        return None
    head = data[: bytes_max * HEAD_PCT // 100].decode(errors="ignore")
    tail = data[len(data) - bytes_max * (100 - HEAD_PCT) // 100 :].decode(errors="ignore")
    offset = len(head.encode())
    missing = len(data) - offset - len(tail.encode())
    note = f"{CUT_MARK}{missing} of {len(data)} bytes are left out here; {hint().replace(OFFSET, str(offset))}]"
    return f"{head}{note}\n{tail}"
