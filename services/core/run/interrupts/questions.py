"""Open and closed questions of a run to people, as its state holds them. They occupy no task and no slot.

Before: services/core/run/state.py folds the events of interruptions.py into these. After: interruptions.py,
services/core/run/lifecycle/timers.py.
"""

from loomlog.schemas.generated.run_events import InterruptionOpened
from loomlog.schemas.generated.values import ApprovalVote, CallVerdict, ToolCall
from loomlog.schemas.records import Value, copy_as

RESOLVED, DECLINED, TIMED_OUT, CANCELLED = "resolved", "declined", "timed_out", "cancelled"
"""Final statuses of a question; of an approval: approved, denied, and the same two."""
QUESTION, APPROVAL, CALL_QUESTION = "question", "approval", "elicitation"
"""Kinds: the agent asks, a rule of the run asks about a call (approvals.py), or the tool of a call asks
(services/core/run/tools/call_questions.py).
"""


class CallDecision(Value, frozen=True, kw_only=True):
    """What the rules of a run have said about a call of the turn, and what the call needs once it is due."""

    index: int
    call_id: str
    verdict: CallVerdict
    arguments_sha256: str
    effect_class: str
    reconcilable: bool
    is_permitted: bool = False
    """Whether it may be made: allowed by the rules, or approved."""


class CallAnswer(Value, frozen=True, kw_only=True):
    """What a person has said to a question of a call. `answer` is as it is stored in the log; empty unless resolved."""

    interrupt_id: str
    status: str
    call_state: str
    answer: str = ""
    is_held: bool = False


class Question(Value, frozen=True, kw_only=True):
    """A call that waits for a person until `expires_at_ms` (UTC milliseconds). Without options any
    answer is accepted.
    """

    index: int
    call: ToolCall
    interrupt_id: str
    kind: str
    question: str
    options: tuple[str, ...]
    context: str
    priority: str
    expires_at_ms: int
    group: int = 0
    """Place of the group of approvers that is asked now."""
    votes: tuple[ApprovalVote, ...] = ()
    """Votes of that group."""
    attempt: int = 0
    """Attempt that asked, of a call whose tool asks; the next five are of such calls too."""
    effect_class: str = ""
    reconcilable: bool = False
    call_state: str = ""
    is_held: bool = False
    answers: tuple[CallAnswer, ...] = ()
    """Answers to the questions of the call before this one."""


class ClosedQuestion(Value, frozen=True, kw_only=True):
    """A question that has ended, kept to reply to further answers. `resolution_id` is the command that ended it."""

    interrupt_id: str
    status: str
    resolution_id: str = ""
    kind: str = QUESTION


def question_of(event: InterruptionOpened, call: ToolCall) -> Question:
    """Return the question that the event opens for that call."""
    return copy_as(Question, event, call=call)
