"""What memory is evaluated on: chats, the facts in them, and questions about the facts.

Before: generator.py, dataset.py, and everything that measures. After: nothing.
"""

from loomlog.schemas.records import Value

SINGLE, SEVERAL, TIME, UPDATES, ABSTENTION = "single", "several", "time", "updates", "abstention"
QUESTION_TYPES = (SINGLE, SEVERAL, TIME, UPDATES, ABSTENTION)
"""One fact; facts of several chats; what was before or after; the newest value; a question without an answer."""


class ChatMessage(Value, frozen=True, kw_only=True):
    """What was said. `ability`: what it asks of an extractor; empty: it is the assistant's, or says no fact."""

    role: str
    """user or assistant."""
    text: str
    ability: str = ""


class Chat(Value, frozen=True, kw_only=True):
    """A conversation of one person with an assistant."""

    id: str
    at_ms: int
    messages: tuple[ChatMessage, ...]

    @property
    def text(self) -> str:
        """All messages, one a line."""
        return "\n".join(message.text for message in self.messages)


class Fact(Value, frozen=True, kw_only=True):
    """A fact as the consolidation writes it.

    `about` and `answer` are words that an extraction of it must have: whom or what it is about, and its value.
    `replaces`: ids of facts that it retires, which are not found any more.
    """

    id: str
    fact_class: str = "fact"
    subject: str
    text: str
    at_ms: int = 0
    chat: str = ""
    """Id of its chat; empty: it was said in none."""
    message: int = 0
    """Number of the message in the chat."""
    about: str = ""
    answer: str = ""
    replaces: tuple[str, ...] = ()


class Question(Value, frozen=True, kw_only=True):
    """A question. Without `answers`, ids of facts, nothing answers it; `outdated` answered it once."""

    id: str
    type: str
    text: str
    answers: tuple[str, ...] = ()
    outdated: tuple[str, ...] = ()


class Corpus(Value, frozen=True, kw_only=True):
    """Everything that one evaluation is about; all facts are of one scope."""

    chats: tuple[Chat, ...] = ()
    facts: tuple[Fact, ...] = ()
    questions: tuple[Question, ...] = ()
