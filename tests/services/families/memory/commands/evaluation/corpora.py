"""Small corpora, and a model that answers what a test says."""

from collections.abc import AsyncIterator, Callable

import yaml

from loomlog.connectors.configuration.presets import load_presets
from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.protocols import Capabilities, ModelItem, ModelRequest, Reply
from loomlog.schemas.generated.values import Usage
from loomlog.services.families.memory.commands.evaluation.corpus import Chat, ChatMessage, Corpus, Fact, Question

DAY_MS = 86_400_000


def fact(fact_id: str, text: str, subject: str = "", /, **more) -> Fact:
    return Fact(id=fact_id, text=text, subject=subject or text, **more)


def chat(chat_id: str, *texts: str, abilities: tuple[str, ...] = ()) -> Chat:
    named = (*abilities, *[""] * (len(texts) - len(abilities)))
    messages = [ChatMessage(role="user", text=text, ability=one) for text, one in zip(texts, named, strict=True)]
    return Chat(id=chat_id, at_ms=0, messages=tuple(messages))


def question(text: str, *answers: str, kind: str = "single", outdated: tuple[str, ...] = ()) -> Question:
    return Question(id=text, type=kind, text=text, answers=answers, outdated=outdated)


TOWNS = Corpus(
    chats=(chat("c1", "I live in Porto."), chat("c2", "I have moved to Ghent."), chat("c3", "I like kayaks.")),
    facts=(
        fact("old", "Ada lives in Porto.", "Ada's home", chat="c1", at_ms=0),
        fact("new", "The town where Ada has a flat is Ghent.", "Ada's place", chat="c2", at_ms=400 * DAY_MS),
        fact("boat", "Ada paddles kayaks on the river.", chat="c3", at_ms=0),
        fact("ben", "Ben lives in Turin.", "Ben's home", at_ms=0),
    ),
    questions=(),
)


class ScriptedModel:
    """Provider `mock`; `answer` gets the request and returns a text, or an error that is raised."""

    provider = "mock"
    capabilities = Capabilities()

    def __init__(self, answer: Callable[[ModelRequest], str | ConnectorError]) -> None:
        self.answer = answer
        self.requests: list[ModelRequest] = []
        self.is_closed = False

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelItem]:
        self.requests.append(request)
        answer = self.answer(request)
        if isinstance(answer, ConnectorError):
            raise answer
        yield Reply(text=answer, stop_reason="end_turn", usage=Usage(input_tokens=10, output_tokens=5))

    async def list_models(self) -> list[str]:
        return []

    async def close(self) -> None:
        self.is_closed = True


def asked_text(request: ModelRequest) -> str:
    return request.messages[0].blocks[0].text


def preset_prompt(agent: str) -> str:
    return yaml.safe_load(load_presets()["memory"].content)["agents"][agent]["system_prompt"]
