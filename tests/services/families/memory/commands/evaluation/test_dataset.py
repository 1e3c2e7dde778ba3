import json

import pytest

from loomlog.services.cli.errors import NotFound, UsageError
from loomlog.services.families.memory.commands.evaluation.dataset import read_corpus

FACT = {"fact": "f1", "text": "Ada lives in Porto."}
QUESTION = {"question": "q1", "text": "Where does Ada live?", "answers": ["f1"]}
CHAT = {"chat": "c1", "at": "2026-01-31T12:00:00Z", "messages": [{"role": "user", "text": "I live in Porto."}]}


def read(tmp_path, *lines):
    path = tmp_path / "facts.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return read_corpus(path)


def test_a_corpus_is_read_in_any_order_with_defaults(tmp_path):
    new = {"fact": "f2", "text": "Ada lives in Ghent.", "subject": "home", "chat": "c1", "replaces": ["f1"]}
    vain = {"question": "q2", "text": "Who is Ben?"}
    now = QUESTION | {"answers": ["f2"], "type": "updates", "outdated": ["f1"]}
    corpus = read(tmp_path, now, new, "", FACT, vain, CHAT)
    first, second = corpus.questions
    assert (first.type, first.outdated, second.type, second.answers) == ("updates", ("f1",), "abstention", ())
    assert corpus.facts[1].subject == "Ada lives in Porto."
    assert corpus.facts[0].replaces == ("f1",)
    assert corpus.chats[0].at_ms == 1_769_860_800_000


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([FACT, "{"], "facts.jsonl:2: is not JSON"),
        ([FACT, "[]"], "facts.jsonl:2: expected a JSON object"),
        ([{"x": 1}], 'expected a line with "fact", "question" or "chat"'),
        ([FACT | {"colour": "red"}], '"colour" is unknown'),
        ([{"fact": "f1"}], '"text" must be a text'),
        ([{"fact": " ", "text": "x"}], '"fact" must be a text'),
        ([FACT, FACT], "there are two with the id f1"),
        ([FACT | {"at": "yesterday"}], '"at" must be a time'),
        ([FACT | {"message": -1}], '"message" must be a number'),
        ([FACT | {"message": True}], '"message" must be a number'),
        ([FACT | {"replaces": "f0"}], '"replaces" must be a list'),
        ([CHAT | {"messages": []}], '"messages" must be a list'),
        ([CHAT | {"messages": [{"role": "tool", "text": "x"}]}], '"role" of a message'),
        ([CHAT | {"messages": [{"role": "user", "text": 5}]}], '"text" must be a text'),
        ([FACT], "needs at least one fact and one question"),
        ([FACT | {"chat": "c9"}, QUESTION], "the chat c9, which is not there"),
        ([FACT | {"replaces": ["f1"]}, QUESTION], "replaces f1, which is no other fact"),
        ([FACT, QUESTION | {"answers": ["f7"]}], "names the fact f7"),
        ([FACT, {"fact": "f2", "text": "x", "replaces": ["f1"]}, QUESTION], "is answered by f1, which is replaced"),
    ],
)
def test_what_cannot_be_used_is_named_with_its_line(tmp_path, lines, problem):
    with pytest.raises(UsageError) as refused:
        read(tmp_path, *lines)
    assert problem in str(refused.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(NotFound, match=r"there is no file .*nowhere"):
        read_corpus(tmp_path / "nowhere")
