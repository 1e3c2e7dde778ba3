"""The split of a compaction: which messages stay, and the resulting list.

    before   u1  a1  u2  a2 (calls)  r2  a3  u3  a4 (calls)  r4
             |   '----- left out -----'  '------ kept ------'
             pinned
    after    u1 + summary   "understood"   u3  a4 (calls)  r4

The first user text is pinned (keep_first). The kept tail begins with a user text where possible, and is at most half
the window. A run that works long on one text has no second one: its tail begins with an answer, whose calls keep their
results; then the summary is the text that is answered, and "understood" is not needed. So no call is separated from its
result, roles alternate, and a message that awaits an answer still ends the list.

A summary and its acknowledgement are marked (TextBlock.is_summary) as text of no speaker: a later compaction neither
pins nor counts them, and compacting twice changes nothing.

Before: a conversation (services/core/run/state.py). After: compaction.py decides with it, services/core/run/state.py
folds with it.
"""

from collections.abc import Sequence

from loomlog.schemas.conversation import Block, ImageBlock, Message, TextBlock, ToolResultBlock, ToolUseBlock
from loomlog.schemas.generated.values import BlobRef
from loomlog.schemas.records import Value, replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.conversation.prompt import fence

OVERFLOW = "overflow"
"""Trigger of a compaction: the provider refused a call because the conversation is longer than the model's window."""
SUMMARY = "summary"
"""Label of a fenced summary: a model wrote it, possibly from untrusted text."""
HEADING = "What was said and done before, in a summary:"
ACKNOWLEDGEMENT = "Understood. I have taken in the summary and go on from there."


class CompactionSplit(Value, frozen=True, kw_only=True):
    """Messages that stay: the last `keep_n`, and before them the first user text."""

    keep_n: int
    keep_first: bool


def plan_split(
    messages: Sequence[Message],
    *,
    keep_last_n: int,
    keep_first: bool,
    tail_tokens_max: int = 0,
    is_over: bool = False,
) -> CompactionSplit | None:
    """Plan a compaction; None if nothing can be left out. `tail_tokens_max` 0: no limit of the tail.

    The limit yields to the last group of messages that belong together: a message must remain to be answered, unless
    the conversation `is_over`, whose last run ended with results that no turn follows. Few messages are not worth a
    summary, unless they are long ones.
    """
    count = len(messages)
    is_short = estimate_tokens(messages) < limits.COMPACTION_TOKENS_MIN
    if count < limits.COMPACTION_MESSAGES_MIN and (is_short or not messages):
        return None
    fresh = [at for at, message in enumerate(messages) if is_user_input(message)]
    answers = [
        at for at, message in enumerate(messages) if message.role == "assistant" and not is_summary_only(message)
    ]
    is_answered = is_over or (messages[-1].role == "assistant" and not _calls(messages[-1]))
    end = [count] if is_answered else []
    places = sorted({*fresh, *answers, *end})
    latest = max(0, count - max(0, keep_last_n))
    earliest = _earliest_cut(messages, places, tail_tokens_max)
    start = fresh[0] if keep_first and fresh else 0
    cut = max((at for at in (*fresh, *end) if earliest <= at <= latest), default=-1)
    if cut <= start:
        cut = max((at for at in (*answers, *end) if earliest <= at <= latest), default=-1)
    if cut < 0 and earliest > latest:
        cut = earliest  # more was requested to stay than allowed: keep as much of its end as allowed
    is_pinned = keep_first and bool(fresh)
    if not any(not is_summary_only(messages[at]) for at in range(cut) if not (is_pinned and at == fresh[0])):
        return None
    return CompactionSplit(keep_n=count - cut, keep_first=is_pinned and fresh[0] < cut)


def apply_split(messages: Sequence[Message], summary: str, split_plan: CompactionSplit) -> tuple[Message, ...]:
    """Return the conversation with a summary in place of what is left out."""
    cut = len(messages) - split_plan.keep_n
    tail = tuple(messages[cut:])
    pinned = (
        next((message for message in messages[:cut] if is_user_input(message)), None) if split_plan.keep_first else None
    )
    first: list[Block] = [] if pinned is None else [block for block in pinned.blocks if not _is_summary_block(block)]
    # An encrypted summary is escaped for its fence when it is decrypted.
    first.append(TextBlock(text=f"{HEADING}\n{fence(summary, SUMMARY)}", is_summary=True))
    head = Message(role="user", blocks=tuple(first))
    if tail and tail[0].role == "assistant":
        return (head, *tail)
    taken_in = Message(role="assistant", blocks=(TextBlock(text=ACKNOWLEDGEMENT, is_summary=True),))
    return (head, taken_in, *tail)


def omitted_messages(messages: Sequence[Message], split_plan: CompactionSplit) -> tuple[Message, ...]:
    """Return what a summary stands for, earlier summaries included, without the pinned text."""
    omitted: list[Message] = []
    pins = split_plan.keep_first
    for message in messages[: len(messages) - split_plan.keep_n]:
        if pins and is_user_input(message):
            pins = False
            marks = tuple(block for block in message.blocks if _is_summary_block(block))
            if marks:
                omitted.append(replace(message, blocks=marks))
        else:
            omitted.append(message)
    return tuple(omitted)


def is_user_input(message: Message) -> bool:
    """Whether it has a user text: not only results, and not only a summary."""
    if message.role != "user":
        return False
    if any(isinstance(block, ToolResultBlock) for block in message.blocks):
        return False
    return any(not _is_summary_block(block) for block in message.blocks)


def is_summary_only(message: Message) -> bool:
    """Whether it consists of a summary only."""
    return all(_is_summary_block(block) for block in message.blocks)


def estimate_tokens(messages: Sequence[Message]) -> int:
    """Estimate the tokens of messages by their characters; of encrypted content a third too many."""
    return sum(_tokens(block) for message in messages for block in message.blocks) + sum(
        len(message.reasoning) // limits.CHARACTERS_PER_TOKEN for message in messages
    )


def estimate_text(text: str | BlobRef) -> int:
    """Estimate the tokens of a text by its characters."""
    size = len(text) if isinstance(text, str) else text.size_bytes
    return -(-size // limits.CHARACTERS_PER_TOKEN)


def _earliest_cut(messages: Sequence[Message], cut_points: Sequence[int], tail_tokens_max: int) -> int:
    """Return the first cut point whose tail is within the limit; the last one if none is."""
    if not tail_tokens_max:
        return 0
    earliest, tail, at = cut_points[-1], 0, len(messages)
    for place in reversed(cut_points):
        tail += estimate_tokens(messages[place:at])
        at = place
        if tail > tail_tokens_max:
            break
        earliest = place
    return earliest


def _is_summary_block(block: Block) -> bool:
    return isinstance(block, TextBlock) and block.is_summary


def _calls(message: Message) -> bool:
    return any(isinstance(block, ToolUseBlock) for block in message.blocks)


def _tokens(block: Block) -> int:
    match block:
        case TextBlock(text=text, blob=blob) | ToolResultBlock(text=text, blob=blob):
            size = len(text) if blob is None else blob.size_bytes
        case ToolUseBlock(name=name, input=arguments):
            size = len(name) + len(arguments)
        case ImageBlock():
            return limits.IMAGE_TOKENS
    return -(-size // limits.CHARACTERS_PER_TOKEN)
