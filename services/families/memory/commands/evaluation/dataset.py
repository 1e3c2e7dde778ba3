"""Corpora of files: JSON lines, each a fact, a question or a chat, in any order.

    {"fact": "f1", "text": "Ada lives in Porto.", "subject": "Ada's home town", "class": "identity",
     "at": "2026-01-31T12:00:00Z", "chat": "c1", "message": 0, "about": "Ada", "answer": "Porto", "replaces": ["f0"]}
    {"question": "q1", "type": "single", "text": "Where does Ada live?", "answers": ["f1"], "outdated": ["f0"]}
    {"chat": "c1", "at": "...", "messages": [{"role": "user", "text": "I live in Porto now.", "ability": "plain"}]}

A fact needs `text`, a question `text`; without `answers` nothing answers it. `subject` is the text without one.

Before: offline.py. After: corpus.py.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from loomlog.services.cli.errors import NotFound, UsageError
from loomlog.services.families.memory.commands.evaluation.corpus import (
    ABSTENTION,
    SINGLE,
    Chat,
    ChatMessage,
    Corpus,
    Fact,
    Question,
)

FILE_BYTES_MAX = 64 * 1024 * 1024
FACTS_MAX, QUESTIONS_MAX = 20_000, 20_000
"""Facts and questions of a file: more take hours to compare."""
FIELDS: Mapping[str, frozenset[str]] = {
    "fact": frozenset({"fact", "text", "subject", "class", "at", "chat", "message", "about", "answer", "replaces"}),
    "question": frozenset({"question", "type", "text", "answers", "outdated"}),
    "chat": frozenset({"chat", "at", "messages"}),
}


def read_json_lines(path: Path, option: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield number and object of each line that is not empty. Raises NotFound, UsageError."""
    try:
        if not path.is_file():
            raise NotFound(f"{option}: there is no file {path}.")
        if path.stat().st_size > FILE_BYTES_MAX:
            raise UsageError(f"{option}: {path} has more than {FILE_BYTES_MAX:,} bytes.")
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"{option}: {path} cannot be read: {error.strerror}.") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise UsageError(f"{path}:{number}: is not JSON: {error}.") from error
        if not isinstance(value, dict):
            raise UsageError(f"{path}:{number}: expected a JSON object.")
        yield number, value


def read_corpus(path: Path) -> Corpus:
    """Return the corpus of a file. Raises NotFound, UsageError with the line that cannot be used."""
    facts: dict[str, Fact] = {}
    questions: dict[str, Question] = {}
    chats: dict[str, Chat] = {}
    for number, line in read_json_lines(path, "--dataset"):
        try:
            match _kind(line):
                case "fact":
                    _add(facts, _fact(line))
                case "question":
                    _add(questions, _question(line))
                case _:
                    _add(chats, _chat(line))
        except ValueError as problem:
            raise UsageError(f"{path}:{number}: {problem}.") from problem
    corpus = Corpus(chats=tuple(chats.values()), facts=tuple(facts.values()), questions=tuple(questions.values()))
    _check(corpus, path)
    return corpus


def text_in(line: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """Return a text of a line. Raises ValueError."""
    value = line.get(name, default)
    if not isinstance(value, str) or (default is None and not value.strip()):
        raise ValueError(f'"{name}" must be a text')
    return value


def check_fields(line: Mapping[str, Any], known: frozenset[str]) -> None:
    """Raise ValueError for an unknown field."""
    if unknown := sorted(line.keys() - known):
        raise ValueError(f'"{unknown[0][:60]}" is unknown, expected are {", ".join(sorted(known))}')


def _kind(line: Mapping[str, Any]) -> str:
    kinds = ["fact"] if "fact" in line else ["question"] if "question" in line else ["chat"] if "chat" in line else []
    if not kinds:
        raise ValueError('expected a line with "fact", "question" or "chat", its id')
    check_fields(line, FIELDS[kinds[0]])
    return kinds[0]


def _add(entries: dict[str, Any], entry: Any) -> None:
    if entry.id in entries:
        raise ValueError(f"there are two with the id {entry.id[:60]}")
    entries[entry.id] = entry


def _fact(line: Mapping[str, Any]) -> Fact:
    text = text_in(line, "text")
    return Fact(
        id=text_in(line, "fact"),
        fact_class=text_in(line, "class", "fact"),
        subject=text_in(line, "subject", text),
        text=text,
        at_ms=_time(line),
        chat=text_in(line, "chat", ""),
        message=_count(line, "message"),
        about=text_in(line, "about", ""),
        answer=text_in(line, "answer", ""),
        replaces=_ids(line, "replaces"),
    )


def _question(line: Mapping[str, Any]) -> Question:
    answers = _ids(line, "answers")
    return Question(
        id=text_in(line, "question"),
        type=text_in(line, "type", SINGLE if answers else ABSTENTION),
        text=text_in(line, "text"),
        answers=answers,
        outdated=_ids(line, "outdated"),
    )


def _chat(line: Mapping[str, Any]) -> Chat:
    messages = line.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
        raise ValueError('"messages" must be a list of objects with role and text')
    for one in messages:
        check_fields(one, frozenset({"role", "text", "ability"}))
        if one.get("role") not in ("user", "assistant"):
            raise ValueError('"role" of a message must be user or assistant')
    return Chat(
        id=text_in(line, "chat"),
        at_ms=_time(line),
        messages=tuple(
            ChatMessage(role=one["role"], text=text_in(one, "text"), ability=text_in(one, "ability", ""))
            for one in messages
        ),
    )


def _ids(line: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = line.get(name, [])
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError(f'"{name}" must be a list of ids of facts')
    return tuple(dict.fromkeys(value))


def _count(line: Mapping[str, Any], name: str) -> int:
    value = line.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f'"{name}" must be a number from 0 on')
    return value


def _time(line: Mapping[str, Any]) -> int:
    text = text_in(line, "at", "1970-01-01T00:00:00Z")
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError('"at" must be a time like 2026-01-31T12:00:00Z') from error
    return int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1_000)


def _check(corpus: Corpus, path: Path) -> None:
    """Raise UsageError when an id names nothing, or when there is nothing to measure."""
    if not corpus.facts or not corpus.questions:
        raise UsageError(f"--dataset: {path} needs at least one fact and one question.")
    if len(corpus.facts) > FACTS_MAX or len(corpus.questions) > QUESTIONS_MAX:
        raise UsageError(f"--dataset: {path} has more than {FACTS_MAX:,} facts or {QUESTIONS_MAX:,} questions.")
    facts = {fact.id for fact in corpus.facts}
    chats = {chat.id for chat in corpus.chats}
    retired = {fact_id for fact in corpus.facts for fact_id in fact.replaces}
    for fact in corpus.facts:
        if fact.chat and fact.chat not in chats:
            raise UsageError(f"{path}: the fact {fact.id} is of the chat {fact.chat}, which is not there.")
        if missing := [one for one in fact.replaces if one not in facts or one == fact.id]:
            raise UsageError(f"{path}: the fact {fact.id} replaces {missing[0]}, which is no other fact.")
    for question in corpus.questions:
        if missing := [one for one in (*question.answers, *question.outdated) if one not in facts]:
            raise UsageError(f"{path}: the question {question.id} names the fact {missing[0]}, which is not there.")
        if missing := [one for one in question.answers if one in retired]:
            raise UsageError(f"{path}: the question {question.id} is answered by {missing[0]}, which is replaced.")
