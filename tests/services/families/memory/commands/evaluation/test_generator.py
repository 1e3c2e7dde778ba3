from collections import Counter

import pytest

from loomlog.services.families.memory.commands.evaluation.corpus import QUESTION_TYPES, Corpus
from loomlog.services.families.memory.commands.evaluation.generator import ABILITIES, CORRECTED, generate
from loomlog.services.families.memory.commands.evaluation.level_chats import MEMBER, PART, WHOLE, generate_levels
from loomlog.services.families.memory.commands.evaluation.words import stems


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return generate(1)


def test_the_same_seed_makes_the_same_corpus_and_another_one_another(corpus):
    assert generate(1) == corpus
    assert generate(2).questions != corpus.questions


def test_a_corpus_has_several_hundred_facts_and_every_type_of_question(corpus):
    assert len(corpus.facts) > 400
    assert len(corpus.chats) > 100
    counts = Counter(one.type for one in corpus.questions)
    assert set(counts) == set(QUESTION_TYPES)
    assert min(counts.values()) >= 30
    assert len({one.id for one in corpus.questions}) == len(corpus.questions)


def test_every_fact_is_said_where_it_says(corpus):
    chats = {one.id: one for one in corpus.chats}
    for fact in corpus.facts:
        message = chats[fact.chat].messages[fact.message]
        assert message.role == "user"
        assert message.ability
        assert stems(fact.answer) <= stems(message.text), fact
        assert stems(f"{fact.answer} {fact.about}") <= stems(fact.text), fact


def test_every_answer_is_there_and_newer_than_what_is_outdated(corpus):
    facts = {one.id: one for one in corpus.facts}
    retired = {old for one in corpus.facts for old in one.replaces}
    for question in corpus.questions:
        assert not retired & {*question.answers}, question
        assert bool(question.answers) == (question.type != "abstention")
        assert len(question.answers) > 1 or question.type != "several"
        if question.type == "updates":
            assert facts[question.outdated[0]].at_ms < facts[question.answers[0]].at_ms


def test_changed_values_are_retired_or_stay_beside_the_new_one(corpus):
    retired = {old for one in corpus.facts for old in one.replaces}
    updates = [one for one in corpus.questions if one.type == "updates"]
    assert 10 < sum(one.outdated[0] in retired for one in updates) < len(updates) - 10


def test_what_was_corrected_is_no_fact(corpus):
    corrected = [
        (chat, number)
        for chat in corpus.chats
        for number, message in enumerate(chat.messages)
        if message.ability == CORRECTED and not message.text.startswith("Sorry")
    ]
    assert corrected
    places = {(one.chat, one.message) for one in corpus.facts}
    for chat, number in corrected:
        assert (chat.id, number) not in places
        assert (chat.id, number + 2) in places


def test_nothing_answers_a_question_in_vain(corpus):
    for question in corpus.questions:
        if question.type == "abstention":
            same = [one for one in corpus.questions if one.text == question.text and one.answers]
            assert not same, question


def test_chats_have_every_ability(corpus):
    assert {message.ability for chat in corpus.chats for message in chat.messages} == {*ABILITIES, ""}


def test_chats_of_levels_say_one_thing_of_each_level_with_another_value():
    corpus = generate_levels(3)
    assert generate_levels(3) == corpus
    for chat in corpus.chats:
        facts = [one for one in corpus.facts if one.chat == chat.id]
        assert [chat.messages[one.message].ability for one in facts] == [WHOLE, PART, MEMBER]
        assert len({one.answer for one in facts}) == 3
        for one in facts:
            assert stems(f"{one.answer} {one.about}") <= stems(chat.messages[one.message].text)
            assert stems(f"{one.answer} {one.about}") <= stems(one.text)
