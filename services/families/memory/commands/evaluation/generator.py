"""Generator of chats, facts and questions: the same seed always makes the same ones.

Thirty people and fourteen projects of a firm; a chat is one person's. What is said of one of them is said of others
too, with other values, so that a search has to tell them apart. Some values change: in half of these the consolidation
has retired the former fact, in the other half both are there, in different words. Some questions are misspelt, many use
other words than the fact.

Before: offline.py, live.py, pairs.py. After: themes.py.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from random import Random

from loomlog.services.families.memory.commands.evaluation.corpus import (
    ABSTENTION,
    SEVERAL,
    SINGLE,
    TIME,
    UPDATES,
    Chat,
    ChatMessage,
    Corpus,
    Fact,
    Question,
)
from loomlog.services.families.memory.commands.evaluation.themes import (
    ABOUT_PROJECTS,
    ACKNOWLEDGEMENTS,
    CHATTER,
    CORRECTION,
    INTRODUCTION,
    OFFERS,
    PEOPLE,
    PERIODS,
    PERSONAL,
    PROJECT_INTRODUCTION,
    PROJECTS,
    SECRETS,
    STRANGERS,
    TEAM_AFTER,
    TEAM_BEFORE,
    TEAM_FACT,
    TEAM_FACT_LAST,
    TEAM_SAID,
    TEAM_SAID_LAST,
    TEAM_SUBJECT,
    TEAMS,
    THIRD_PERIOD,
    UNKNOWN_PROJECTS,
    Theme,
)

PLAIN, JOINED, CORRECTED, DATED = "plain", "joined", "corrected", "dated"
NOISE, SECRET, OFFER = "noise", "secret", "offer"
ABILITIES = (PLAIN, JOINED, CORRECTED, DATED, NOISE, SECRET, OFFER)
"""What a message asks of an extractor: one fact; two in one message; the correction alone; a period; and nothing of
chatter, of secrets and of what the assistant offers.
"""
DAY_MS = 86_400_000
FIRST_DAY_MS = int(datetime(2025, 3, 3, 9, tzinfo=UTC).timestamp() * 1_000)
CHATS_OF_PERSON, CHATS_OF_PROJECT = 4, 2
DAYS_BETWEEN = 45
THEMES_OF_PERSON, THEMES_OF_PROJECT = 9, 5
CHANGED_SHARE, CORRECTED_SHARE, JOINED_SHARE, MISSPELT_SHARE = 0.4, 0.12, 0.25, 0.1
PEOPLE_WITH_TEAMS = 20
QUESTIONS = {SINGLE: 160, SEVERAL: 50, TIME: 40, UPDATES: 60, ABSTENTION: 60}
"""Most questions of each type."""
SEVERAL_MAX = 5
"""Most facts that a question asks for."""


def generate(seed: int = 1) -> Corpus:
    """Return the corpus of a seed."""
    return _Generator(Random(seed)).corpus()


def format_phrase(phrase: str, owner: str, value: str = "", **more: str) -> str:
    """Return a phrase of themes.py about a person or a project."""
    return phrase.format(name=owner, first=owner.split()[0], value=value, **more)


def topic(theme: Theme) -> str:
    """Return what a theme is about, without its owner: `seat on trains`."""
    return theme.subject.removeprefix("{first}").removeprefix("'s").strip()


class _Statement:
    """Something that a chat says."""

    def __init__(self, sentence: str, *facts: dict[str, str], ability: str = PLAIN, mistaken: str = "") -> None:
        self.sentence, self.facts, self.ability, self.mistaken = sentence, facts, ability, mistaken


class _Generator:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.chats: list[Chat] = []
        self.facts: list[Fact] = []
        self.questions: dict[str, list[Question]] = {kind: [] for kind in QUESTIONS}
        self.current: dict[tuple[str, str], Fact] = {}
        """The newest fact of (owner, theme)."""
        self.former: dict[tuple[str, str], Fact] = {}

    def corpus(self) -> Corpus:
        for number, name in enumerate(PEOPLE):
            self._person(number, name)
        for number, name in enumerate(PROJECTS):
            self._project(number, name)
        self._ask()
        questions: list[Question] = []
        for kind, most in QUESTIONS.items():
            asked = self.questions[kind]
            questions += self.random.sample(asked, min(most, len(asked)))
        return Corpus(chats=tuple(self.chats), facts=tuple(self.facts), questions=tuple(questions))

    # --- chats ---------------------------------------------------------------------------------------------------

    def _person(self, number: int, name: str) -> None:
        themes = self.random.sample(PERSONAL, THEMES_OF_PERSON)
        chats = self._statements(name, number, themes, CHATS_OF_PERSON)
        if number < PEOPLE_WITH_TEAMS:
            self._add_teams(name, chats)
        self._write(name, number, format_phrase(INTRODUCTION, name), chats)

    def _project(self, number: int, name: str) -> None:
        themes = self.random.sample(ABOUT_PROJECTS, THEMES_OF_PROJECT)
        speaker = self.random.choice(PEOPLE)
        chats = self._statements(name, number, themes, CHATS_OF_PROJECT)
        self._write(name, number, PROJECT_INTRODUCTION.format(name=speaker, first=name), chats)

    def _statements(self, owner: str, number: int, themes: Sequence[Theme], count: int) -> list[list[_Statement]]:
        """Return what each chat of an owner says; a changed value is in a later chat than the former one."""
        chats: list[list[_Statement]] = [[] for _ in range(count)]
        for theme in themes:
            value, newer = self._values(theme, number, owner)
            is_changed = theme.changes and self.random.random() < CHANGED_SHARE
            place = 0 if is_changed else self.random.randrange(count)
            mistaken = newer if not is_changed and self.random.random() < CORRECTED_SHARE else ""
            chats[place].append(self._statement(owner, theme, value, mistaken=mistaken))
            if is_changed:
                is_retired = self.random.random() < 0.5
                later = self.random.randrange(1, count)
                chats[later].append(
                    self._statement(owner, theme, newer, is_other=not is_retired, is_retired=is_retired)
                )
        return chats

    def _values(self, theme: Theme, number: int, owner: str) -> tuple[str, str]:
        """Return a value and another one. What identifies has a value for each owner."""
        if len(theme.values) >= len(PROJECTS) and theme.values[0][-1].isdigit():
            return theme.values[number % len(theme.values)], theme.values[(number + 1) % len(theme.values)]
        value, newer = self.random.sample([one for one in theme.values if one != owner], 2)
        return value, newer

    def _statement(
        self,
        owner: str,
        theme: Theme,
        value: str,
        *,
        mistaken: str = "",
        is_other: bool = False,
        is_retired: bool = False,
    ) -> _Statement:
        fact = {
            "theme": theme.name,
            "fact_class": theme.fact_class,
            "subject": format_phrase(theme.other_subject if is_other else theme.subject, owner),
            "text": format_phrase(theme.other_fact if is_other else theme.fact, owner, value),
            "answer": value,
            "change": "retires" if is_retired else "beside" if is_other else "",
        }
        return _Statement(
            format_phrase(theme.sentence, owner, value),
            fact,
            ability=CORRECTED if mistaken else PLAIN,
            mistaken=format_phrase(theme.sentence, owner, mistaken) if mistaken else "",
        )

    def _add_teams(self, name: str, chats: list[list[_Statement]]) -> None:
        teams = self.random.sample(TEAMS, len(PERIODS) + 1)
        periods = [*PERIODS, (THIRD_PERIOD, "")]
        for number, (team, (start, end)) in enumerate(zip(teams, periods, strict=True)):
            words = {"start": start, "end": end}
            fact = {
                "theme": f"team {number}",
                "fact_class": "identity",
                "subject": format_phrase(TEAM_SUBJECT, name, team),
                "text": format_phrase(TEAM_FACT if end else TEAM_FACT_LAST, name, team, **words),
                "answer": team,
                "change": "",
            }
            sentence = format_phrase(TEAM_SAID if end else TEAM_SAID_LAST, name, team, **words)
            chats[number % len(chats)].append(_Statement(sentence, fact, ability=DATED))

    def _write(self, owner: str, number: int, introduction: str, chats: Sequence[Sequence[_Statement]]) -> None:
        """Add the chats, their facts, and what else is said in them."""
        for place, statements in enumerate(chats):
            chat_id = f"c{len(self.chats) + 1}"
            at_ms = FIRST_DAY_MS + (place * DAYS_BETWEEN + number) * DAY_MS
            messages = [ChatMessage(role="user", text=introduction), self._acknowledgement()]
            for statement in self._joined(statements):
                if statement.mistaken:
                    messages += [ChatMessage(role="user", text=statement.mistaken, ability=CORRECTED)]
                    messages += [self._acknowledgement()]
                sentence = CORRECTION.format(sentence=statement.sentence) if statement.mistaken else statement.sentence
                for fact in statement.facts:
                    self._add_fact(owner, fact, chat_id, len(messages), at_ms)
                messages += [
                    ChatMessage(role="user", text=sentence, ability=statement.ability),
                    self._acknowledgement(),
                ]
                if self.random.random() < 0.3:
                    text = self.random.choice(CHATTER)
                    messages += [ChatMessage(role="user", text=text, ability=NOISE), self._acknowledgement()]
            messages += self._extras()
            self.chats.append(Chat(id=chat_id, at_ms=at_ms, messages=tuple(messages)))

    def _joined(self, statements: Sequence[_Statement]) -> list[_Statement]:
        """Return the statements, some of them two in one message."""
        rest, joined = list(statements), list[_Statement]()
        while rest:
            one = rest.pop(0)
            if rest and one.ability == rest[0].ability == PLAIN and self.random.random() < JOINED_SHARE:
                other = rest.pop(0)
                one = _Statement(f"{one.sentence} {other.sentence}", *one.facts, *other.facts, ability=JOINED)
            joined.append(one)
        return joined

    def _extras(self) -> list[ChatMessage]:
        extras = [ChatMessage(role="user", text=self.random.choice(CHATTER), ability=NOISE)]
        extras += [ChatMessage(role="assistant", text=self.random.choice(OFFERS), ability=OFFER)]
        if self.random.random() < 0.3:
            text = self.random.choice(SECRETS).format(number=self.random.randrange(100, 1_000))
            extras += [ChatMessage(role="user", text=text, ability=SECRET), self._acknowledgement()]
        return extras

    def _acknowledgement(self) -> ChatMessage:
        return ChatMessage(role="assistant", text=self.random.choice(ACKNOWLEDGEMENTS))

    def _add_fact(self, owner: str, fields: dict[str, str], chat_id: str, message: int, at_ms: int) -> None:
        place = (owner, fields["theme"])
        former = self.current.get(place) if fields["change"] else None
        fact = Fact(
            id=f"f{len(self.facts) + 1}",
            fact_class=fields["fact_class"],
            subject=fields["subject"],
            text=fields["text"],
            at_ms=at_ms,
            chat=chat_id,
            message=message,
            about=owner.split()[0] if owner in PROJECTS else "",
            answer=fields["answer"],
            replaces=(former.id,) if former is not None and fields["change"] == "retires" else (),
        )
        self.facts.append(fact)
        self.current[place] = fact
        if former is not None:
            self.former[place] = former

    # --- questions -----------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        for owners, themes, unknown in (
            (PEOPLE, PERSONAL, STRANGERS),
            (PROJECTS, ABOUT_PROJECTS, UNKNOWN_PROJECTS),
        ):
            for theme in themes:
                for owner in owners:
                    self._ask_one(owner, theme)
                self._ask_who(theme, owners)
                self._ask_in_vain(self.random.choice(unknown), theme)
            for owner in owners:
                self._ask_two(owner, [theme for theme in themes if (owner, theme.name) in self.current])
        for name in PEOPLE[:PEOPLE_WITH_TEAMS]:
            self._ask_times(name)

    def _ask_one(self, owner: str, theme: Theme) -> None:
        fact, former = self.current.get((owner, theme.name)), self.former.get((owner, theme.name))
        if fact is None:
            self._ask_in_vain(owner, theme)
            return
        text = format_phrase(self.random.choice(theme.asked), owner, fact.answer)
        if former is not None:
            self._add(UPDATES, text, (fact,), (former,))
            return
        if self.random.random() < MISSPELT_SHARE:
            text = self._misspell(text)
        self._add(SINGLE, text, (fact,))

    def _ask_who(self, theme: Theme, owners: Sequence[str]) -> None:
        if not theme.who:
            return
        facts = [self.current[owner, theme.name] for owner in owners if (owner, theme.name) in self.current]
        former = [self.former[owner, theme.name] for owner in owners if (owner, theme.name) in self.former]
        for value in theme.values:
            answers = [fact for fact in facts if fact.answer == value]
            if 2 <= len(answers) <= SEVERAL_MAX:
                outdated = [fact for fact in former if fact.answer == value]
                self._add(SEVERAL, theme.who.format(value=value), answers, outdated)

    def _ask_two(self, owner: str, themes: Sequence[Theme]) -> None:
        places = [(owner, theme.name) for theme in themes]
        steady = [theme for theme, place in zip(themes, places, strict=True) if place not in self.former]
        if len(steady) < 2:
            return
        first, second = self.random.sample(steady, 2)
        text = f"Tell me the {topic(first)} and the {topic(second)} of {owner}."
        self._add(SEVERAL, text, (self.current[owner, first.name], self.current[owner, second.name]))

    def _ask_times(self, name: str) -> None:
        facts = [self.current[name, f"team {number}"] for number in range(len(PERIODS) + 1)]
        earlier = self.random.randrange(len(PERIODS))
        _, end = PERIODS[earlier]
        later_start = PERIODS[earlier + 1][0] if earlier + 1 < len(PERIODS) else THIRD_PERIOD
        before, after = facts[earlier], facts[earlier + 1]
        words = {"before": before.answer, "after": after.answer}
        text = format_phrase(self.random.choice(TEAM_BEFORE), name, start=later_start, month=end, **words)
        self._add(TIME, text, (before,))
        text = format_phrase(self.random.choice(TEAM_AFTER), name, month=later_start, **words)
        self._add(TIME, text, (after,))

    def _ask_in_vain(self, owner: str, theme: Theme) -> None:
        phrases = [phrase for phrase in theme.asked if "{value}" not in phrase]
        self._add(ABSTENTION, format_phrase(self.random.choice(phrases), owner), ())

    def _misspell(self, text: str) -> str:
        """Return the text with two letters of its longest word exchanged."""
        word = max(text.split(), key=len)
        at = self.random.randrange(1, len(word) - 2)
        return text.replace(word, word[:at] + word[at + 1] + word[at] + word[at + 2 :], 1)

    def _add(self, kind: str, text: str, answers: Sequence[Fact], outdated: Sequence[Fact] = ()) -> None:
        self.questions[kind].append(
            Question(
                id=f"{kind}-{len(self.questions[kind]) + 1}",
                type=kind,
                text=text,
                answers=tuple(fact.id for fact in answers),
                outdated=tuple(fact.id for fact in outdated),
            )
        )
