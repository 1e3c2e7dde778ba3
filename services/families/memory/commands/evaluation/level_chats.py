"""Chats about things in levels: a site, a department of it, a member of that. The same is said of each level with
another value, so a fact is right only if it is about the level that was meant.

Before: live.py. After: corpus.py.
"""

from random import Random

from loomlog.services.families.memory.commands.evaluation.corpus import Chat, ChatMessage, Corpus, Fact
from loomlog.services.families.memory.commands.evaluation.generator import DAY_MS, FIRST_DAY_MS, NOISE
from loomlog.services.families.memory.commands.evaluation.themes import (
    ACKNOWLEDGEMENTS,
    CHATTER,
    CONSTRAINT,
    FACT,
    PEOPLE,
)

WHOLE, PART, MEMBER = "whole", "part", "member"
CHATS = 24
SITES = ("Lyon", "Turin", "Gdansk", "Bristol", "Antwerp", "Bilbao")
DEPARTMENTS = ("purchasing", "laboratory", "warehouse", "canteen", "reception", "workshop")
RULES = (
    (CONSTRAINT, "closing time", "closes at {value}", ("16:00", "17:30", "18:15", "19:45", "20:30", "22:00")),
    (CONSTRAINT, "invoice form", "takes invoices as {value} only", ("paper", "PDF", "XML", "fax")),
    (FACT, "budget line", "books costs on the line {value}", ("K-110", "K-220", "K-345", "K-460")),
    (FACT, "emergency number", "has the emergency number {value}", ("7001", "7112", "7255", "7310")),
)
"""Class, subject, what is said, and its values."""
TERMS = ("site", "department of a site", "member of a department")
"""Types of things in these chats, for --ontology-terms."""


def generate_levels(seed: int = 1) -> Corpus:
    """Return chats with facts about three levels."""
    random = Random(seed)
    chats: list[Chat] = []
    facts: list[Fact] = []
    for number in range(CHATS):
        fact_class, subject, phrase, values = random.choice(RULES)
        site, department, member = random.choice(SITES), random.choice(DEPARTMENTS), random.choice(PEOPLE)
        speaker = random.choice([name for name in PEOPLE if name != member])
        chosen = random.sample(values, 3)
        levels = (
            (WHOLE, site, f"the {site} site", f"The whole {site} site {phrase}."),
            (PART, department, f"the {department} of {site}", f"But the {department} in {site} {phrase}."),
            (MEMBER, member.split()[0], member, f"And {member}, who works in that {department}, {phrase}."),
        )
        chat_id = f"l{number + 1}"
        messages = [ChatMessage(role="user", text=f"Hello, {speaker} here, with a few rules of our sites.")]
        messages += [ChatMessage(role="assistant", text=random.choice(ACKNOWLEDGEMENTS))]
        at_ms = FIRST_DAY_MS + number * DAY_MS
        for (ability, about, name, sentence), value in zip(levels, chosen, strict=True):
            facts.append(
                Fact(
                    id=f"{chat_id}-{ability}",
                    fact_class=fact_class,
                    subject=f"{subject} of {name}",
                    text=f"{name[0].upper()}{name[1:]} {phrase.format(value=value)}.",
                    at_ms=at_ms,
                    chat=chat_id,
                    message=len(messages),
                    about=about,
                    answer=value,
                )
            )
            messages += [ChatMessage(role="user", text=sentence.format(value=value), ability=ability)]
            messages += [ChatMessage(role="assistant", text=random.choice(ACKNOWLEDGEMENTS))]
        messages += [ChatMessage(role="user", text=random.choice(CHATTER), ability=NOISE)]
        chats.append(Chat(id=chat_id, at_ms=at_ms, messages=tuple(messages)))
    return Corpus(chats=tuple(chats), facts=tuple(facts))
