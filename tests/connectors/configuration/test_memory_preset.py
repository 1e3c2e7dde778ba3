"""The preset memory: it loads without a finding, and its consolidator makes a pass over tools that are played here."""

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
import pytest_asyncio

from loomlog.connectors.configuration.presets import load_presets
from loomlog.connectors.configuration.tier_check import check_tiers
from loomlog.connectors.models.code_js import CODE_BODY_MAX_BYTES, CodeModel
from tests.connectors.configuration.conftest import Folder
from tests.connectors.models.scripts import Answer, to_the_end

PRESETS = {"LOOMLOG_PRESETS": "base,memory", "LOOMLOG_CODE_AGENTS_ENABLED": "1"}
NAMES = ("consolidator", "extractor", "judge", "conflict-judge", "ontologist")
POLICY = {"merge_threshold": 0.95, "related_threshold": 0.85, "verify_writes": False, "detect_conflicts": False}


def test_the_preset_loads_without_a_finding(folder: Folder) -> None:
    loaded = folder.load("agents: {}", PRESETS)
    assert not loaded.warnings
    agents = loaded.configuration.agents
    assert set(agents) == {f"memory/{name}" for name in NAMES}
    assert all(agent.internal and agent.description for agent in agents.values())
    consolidator = agents["memory/consolidator"]
    assert consolidator.memory_consolidation
    assert len(consolidator.code_body.encode()) < CODE_BODY_MAX_BYTES
    assert check_tiers(loaded.configuration, {"anthropic", "openai", "gemini", "deepseek", "code-js"}) == []


def test_the_template_strings_of_the_script_are_no_references_to_variables() -> None:
    assert "${" not in load_presets()["memory"].content


# --- a pass ----------------------------------------------------------------------------------------------------------


class Stage:
    """Tools of a pass: a target with chats and pending entries, facts, and agents that answer as they are written."""

    def __init__(self, model: CodeModel, body: str) -> None:
        self.model, self.body = model, body
        self.policy = dict(POLICY)
        self.chats: list[tuple[str, list[dict[str, Any]]]] = []
        self.pending: list[dict[str, Any]] = []
        self.facts: dict[str, dict[str, Any]] = {}
        self.extracted: Callable[[list[dict[str, Any]]], Any] = lambda messages: {"facts": []}
        self.judged: Callable[[str, list[dict[str, Any]]], Any] = lambda agent, pairs: {"verdicts": []}
        self.scores: dict[tuple[str, str], float] = {}
        """Similarity of a query and the text of a fact."""
        self.fails: Callable[[str, Mapping[str, Any]], str] = lambda name, fields: ""
        self.calls: list[tuple[str, Mapping[str, Any]]] = []
        self.watermark: list[str] = []
        self.acked: list[str] = []
        self.superseded: list[tuple[str, str]] = []

    def say(self, session: str, *texts: str) -> None:
        messages = [
            {"run_id": f"r_{session}", "seq": 3 * n + 1, "role": "user", "text": text, "at": "2026-01-01T00:00:00Z"}
            for n, text in enumerate(texts)
        ]
        self.chats.append((session, messages))

    def know(self, key: str, text: str, subject: str) -> None:
        self.facts[key] = {"memory": text, "subject": subject}

    async def run(self, **metadata: str) -> dict[str, Any]:
        """Make a pass; return its report."""
        self.calls = []
        shown = metadata or {"memory_scope": '"user"'}
        _, text = await to_the_end(
            self.model, self.body, self._tool, tools=("Memory", "Agent"), metadata=shown, time_left_ms=60_000
        )
        report: dict[str, Any] = json.loads(text)
        return report

    def made(self, op: str) -> list[Mapping[str, Any]]:
        return [fields for name, fields in self.calls if name == op]

    def _tool(self, tool: str, fields: Mapping[str, Any]) -> Answer:
        name = fields["name"] if tool == "Agent" else fields["op"]
        self.calls.append((name, fields))
        if message := self.fails(name, fields):
            return message, True
        if tool == "Agent":
            content = json.loads(fields["prompt"])
            if name == "memory/extractor":
                answer = self.extracted(content["messages"])
            else:
                answer = self.judged(name, content["pairs"])
            return (answer if isinstance(answer, str) else f"```json\n{json.dumps(answer)}\n```"), False
        return json.dumps(getattr(self, f"_{name}")(fields)), False

    def _cursor_lease(self, fields: Mapping[str, Any]) -> Any:
        return {"acquired": True, "owner": "r_1", "consolidation": self.policy}

    def _cursor_release(self, fields: Mapping[str, Any]) -> Any:
        return {"ok": True, "released": True}

    def _pending_drain(self, fields: Mapping[str, Any]) -> Any:
        return {"pending": [one for one in self.pending if one["id"] not in self.acked], "truncated": False}

    def _pending_ack(self, fields: Mapping[str, Any]) -> Any:
        self.acked += fields["ids"]
        return {"ok": True, "acked": 1}

    def _cursor_scan(self, fields: Mapping[str, Any]) -> Any:
        left = [name for name, _ in self.chats if name not in self.watermark]
        sessions = [{"session_id": name, "completed_at": f"2026-01-0{1 + n}T00:00:00Z"} for n, name in enumerate(left)]
        return {"sessions": sessions[: fields["limit"]], "truncated": len(left) > fields["limit"]}

    def _read_session(self, fields: Mapping[str, Any]) -> Any:
        name = fields["session_id"]
        return {"session_id": name, "completed_at": "2026-01-01T00:00:00Z", "messages": dict(self.chats)[name]}

    def _cursor_advance(self, fields: Mapping[str, Any]) -> Any:
        self.watermark.append(fields["session_id"])
        return {"ok": True}

    def _search(self, fields: Mapping[str, Any]) -> Any:
        assert fields["sources"] == ["facts"]
        entries = [
            {"key": key, "value": value, "score": self.scores.get((fields["query"], value["memory"]), 0.1)}
            for key, value in self.facts.items()
        ]
        entries.sort(key=lambda one: -one["score"])
        return {"entries": entries[: fields["top_k"]], "truncated": False}

    def _get(self, fields: Mapping[str, Any]) -> Any:
        return {"value": self.facts.get(fields["key"]), "expires_at": None}

    def _set(self, fields: Mapping[str, Any]) -> Any:
        assert fields["embed"]
        self.facts[fields["key"]] = fields["value"]
        return {"ok": True}

    def _supersede(self, fields: Mapping[str, Any]) -> Any:
        self.superseded.append((fields["key"], fields["by_key"]))
        del self.facts[fields["key"]]
        return {"ok": True}


def fact(text: str, subject: str, fact_class: str = "preference", message: int = 0, quote: str = "") -> dict[str, Any]:
    return {"class": fact_class, "subject": subject, "fact": text, "message": message, "quote": quote}


@pytest.fixture
def body(folder: Folder) -> str:
    return folder.load("agents: {}", PRESETS).configuration.agents["memory/consolidator"].code_body


@pytest_asyncio.fixture
async def stage(body: str) -> AsyncIterator[Stage]:
    model = CodeModel(provider="code-js")
    yield Stage(model, body)
    await model.close()


async def test_a_pass_writes_facts_with_their_spans_and_then_moves_the_watermark(stage: Stage) -> None:
    stage.say("s_1", "hello 🌍", "🌍 I like green tea, and I live in Rome")
    stage.extracted = lambda messages: {
        "facts": [
            fact("Ada likes green tea", "Ada's favourite tea", message=1, quote="I like green tea"),
            fact("Ada lives in Rome", "Ada's home town", "identity", message=1, quote="I live in Paris"),
        ]
    }
    report = await stage.run()
    assert (report["chats"], report["facts"], report.get("stopped")) == (1, 2, None)
    assert stage.facts == {
        "memory/preference/ada-s-favourite-tea": {"memory": "Ada likes green tea", "subject": "Ada's favourite tea"},
        "memory/identity/ada-s-home-town": {"memory": "Ada lives in Rome", "subject": "Ada's home town"},
    }
    first, second = stage.made("set")
    assert first["provenance"] == {
        "class": "preference",
        "spans": [{"run_id": "r_s_1", "seq": 4, "start": 2, "end": 18}],
        "source_session_id": "s_1",
        "source_run_id": "r_s_1",
    }
    assert second["provenance"]["spans"][0] == {"run_id": "r_s_1", "seq": 4, "start": 0, "end": 38}, "the whole message"
    order = [name for name, _ in stage.calls]
    assert order.index("cursor_advance") > max(n for n, name in enumerate(order) if name == "set")
    assert order[-1] == "cursor_release"
    assert stage.made("cursor_release")[0]["more"] is False


async def test_one_call_of_the_extractor_a_chat_and_none_of_judges_without_near_facts(stage: Stage) -> None:
    stage.policy |= {"verify_writes": True, "detect_conflicts": True}
    for number in range(3):
        stage.say(f"s_{number}", f"chat {number}")
    stage.extracted = lambda messages: {"facts": [fact(f"said {messages[0]['text']}", messages[0]["text"])]}
    await stage.run()
    assert len(stage.made("memory/extractor")) == 3
    assert not stage.made("memory/judge")
    assert not stage.made("memory/conflict-judge")
    assert stage.watermark == ["s_0", "s_1", "s_2"]


async def test_more_chats_than_a_pass_takes_ask_for_another(stage: Stage) -> None:
    for number in range(7):
        stage.say(f"s_{number}", "hi")
    await stage.run()
    assert stage.made("cursor_release")[0]["more"] is True
    await stage.run()
    assert stage.made("cursor_release")[0]["more"] is False
    assert len(stage.watermark) == 7


async def test_a_chat_that_cannot_be_parsed_is_skipped_and_reported(stage: Stage) -> None:
    stage.say("s_1", "one")
    stage.say("s_2", "two")
    stage.extracted = lambda messages: "I cannot do that" if messages[0]["text"] == "one" else {"facts": []}
    report = await stage.run()
    assert (report["skipped"], stage.watermark) == (["s_1"], ["s_1", "s_2"])


@pytest.mark.parametrize("failing", ["set", "memory/extractor", "read_session", "search", "cursor_lease"])
async def test_what_fails_blocks_the_watermark_and_asks_for_another_pass(stage: Stage, failing: str) -> None:
    stage.say("s_1", "one")
    stage.say("s_2", "two")
    stage.extracted = lambda messages: {"facts": [fact(messages[0]["text"], messages[0]["text"])]}
    is_due = False

    def fails(name: str, fields: Mapping[str, Any]) -> str:
        nonlocal is_due
        is_due |= name == "cursor_advance"
        return "the store is away" if name == failing and is_due else ""

    stage.fails = fails
    report = await stage.run()
    assert (stage.watermark, report["stopped"]) == (["s_1"], "the store is away")
    assert stage.made("cursor_release")[0]["more"] is True
    stage.fails = lambda name, fields: ""
    await stage.run()
    assert stage.watermark == ["s_1", "s_2"]


async def test_nothing_is_done_without_the_lease(stage: Stage) -> None:
    stage.say("s_1", "one")
    stage._cursor_lease = lambda fields: {"acquired": False, "owner": "r_9"}  # type: ignore[method-assign]
    report = await stage.run()
    assert report["stopped"] == "the run r_9 has the lease"
    assert [name for name, _ in stage.calls] == ["cursor_lease"]
    busy = {"acquired": False, "owner": "", "reason": "4 passes are at work"}
    stage._cursor_lease = lambda fields: busy  # type: ignore[method-assign]
    assert (await stage.run())["stopped"] == "4 passes are at work"


async def test_pending_entries_are_learnt_from_and_acknowledged(stage: Stage) -> None:
    messages = [
        {"role": "system", "content": "be nice"},
        {"role": "user", "content": "I like tea"},
        {"role": "tool", "content": "{}"},
    ]
    common = {"origin": "compaction", "source_session_id": "s_9", "source_run_id": "r_9"}
    stage.pending = [
        {"id": "mp_1", "payload": {"messages": messages}, **common},
        {"id": "mp_2", "payload": {"content": "Ada ships on Fridays"}, **common},
        {"id": "mp_3", "payload": "[erased]", **common},
    ]
    heard = []

    def extracted(messages: list[dict[str, Any]]) -> Any:
        heard.append([one["text"] for one in messages])
        return {"facts": [fact(messages[0]["text"], messages[0]["text"], quote=messages[0]["text"])]}

    stage.extracted = extracted
    report = await stage.run()
    assert heard == [["I like tea"], ["Ada ships on Fridays"]]
    assert (report["pending"], stage.acked) == (3, ["mp_1", "mp_2", "mp_3"])
    assert [one["from_pending"] for one in stage.made("set")] == ["mp_1", "mp_2"]
    assert stage.made("set")[0]["provenance"]["spans"] == [{"run_id": "r_9", "seq": 0, "start": 0, "end": 10}]


async def test_a_pending_message_names_where_it_was_said(stage: Stage) -> None:
    messages = [
        {"role": "assistant", "content": "what do you drink?", "run_id": "r_7", "seq": 3},
        {"role": "user", "content": "I like tea", "run_id": "r_8", "seq": 1},
    ]
    common = {"origin": "compaction", "source_session_id": "s_9", "source_run_id": "r_9"}
    stage.pending = [{"id": "mp_1", "payload": {"messages": messages}, "created_at": "2026-05-01T00:00:00Z", **common}]
    heard = []

    def extracted(messages: list[dict[str, Any]]) -> Any:
        heard.extend(messages)
        return {"facts": [fact("Ada likes tea", "Ada's tea", message=1, quote="tea")]}

    stage.extracted = extracted
    await stage.run()
    assert [one["at"] for one in heard] == ["2026-05-01T00:00:00Z"] * 2
    (made,) = stage.made("set")
    assert made["provenance"]["spans"] == [{"run_id": "r_8", "seq": 1, "start": 7, "end": 10}]
    assert made["provenance"]["source_run_id"] == "r_8"


async def test_a_long_pending_entry_is_learnt_from_in_parts_and_nothing_of_it_is_left_out(stage: Stage) -> None:
    long = "🌍" + "x" * 240_000 + " tea"
    messages = [
        {"role": "user", "content": "short"},
        {"role": "user", "content": long},
        {"role": "user", "content": "y" * 90_000},
    ]
    common = {"origin": "compaction", "source_session_id": "s_9", "source_run_id": "r_9"}
    stage.pending = [{"id": "mp_1", "payload": {"messages": messages}, **common}]
    heard = []

    def extracted(messages: list[dict[str, Any]]) -> Any:
        heard.append([len(one["text"]) for one in messages])
        at = next((one["n"] for one in messages if "tea" in one["text"]), None)
        return {"facts": [] if at is None else [fact("Ada likes tea", "Ada's tea", message=at, quote="tea")]}

    stage.extracted = extracted
    report = await stage.run()
    assert heard == [[5], [100_000 - 1], [100_000], [40_006], [90_000]]
    assert (report["pending"], stage.acked) == (1, ["mp_1"])
    assert stage.made("set")[0]["provenance"]["spans"][0] == {
        "run_id": "r_9", "seq": 0, "start": 240_002, "end": 240_005
    }  # fmt: skip


# --- bands -----------------------------------------------------------------------------------------------------------

OLD, NEW = "Ada likes black tea", "Ada likes green tea"
OLD_KEY = "memory/preference/ada-tea"


def near(stage: Stage, score: float, fact_class: str = "preference", subject: str = "Ada's tea") -> None:
    """A chat whose only fact is that near to one that is known."""
    stage.know(OLD_KEY, OLD, "Ada tea")
    stage.scores[NEW, OLD] = score
    stage.say("s_1", "green tea it is")
    stage.extracted = lambda messages: {"facts": [fact(NEW, subject, fact_class)]}


async def test_a_fact_in_the_merge_band_takes_the_place_of_the_old_one(stage: Stage) -> None:
    near(stage, 0.95)
    report = await stage.run()
    assert stage.superseded == [(OLD_KEY, "memory/preference/ada-s-tea")]
    assert (report["merged"], report["retired"], report["facts"]) == (1, 1, 1)
    assert [value["memory"] for value in stage.facts.values()] == [NEW]


@pytest.mark.parametrize(
    ("score", "fact_class", "subject"),
    [(0.949, "preference", "Ada's tea"), (0.99, "identity", "Ada's tea"), (0.99, "preference", "morning drinks")],
)
async def test_less_near_of_another_class_or_subject_both_are_kept(
    stage: Stage, score: float, fact_class: str, subject: str
) -> None:
    near(stage, score, fact_class, subject)
    report = await stage.run()
    assert (report["merged"], stage.superseded, len(stage.facts)) == (0, [], 2)


async def test_the_same_key_is_updated_when_it_merges_and_never_overwritten_otherwise(stage: Stage) -> None:
    near(stage, 0.97, subject="Ada tea")
    await stage.run()
    assert stage.facts == {OLD_KEY: {"memory": NEW, "subject": "Ada tea"}}
    assert not stage.superseded
    stage.extracted = lambda messages: {"facts": [fact("Ada sells tea", "Ada tea")]}
    stage.say("s_2", "I sell tea")
    await stage.run()
    assert stage.facts[OLD_KEY]["memory"] == NEW
    (other,) = set(stage.facts) - {OLD_KEY}
    assert re.fullmatch(rf"{OLD_KEY}-[0-9a-f]{{8}}", other)


async def test_what_is_known_word_for_word_is_not_written_again(stage: Stage) -> None:
    near(stage, 1.0)
    stage.extracted = lambda messages: {"facts": [fact("ada LIKES black  tea.", "Ada's tea")]}
    report = await stage.run()
    assert (report["known"], report["facts"], stage.made("set")) == (1, 0, [])


async def test_a_pass_retires_five_facts_at_most(stage: Stage) -> None:
    for number in range(7):
        stage.know(f"memory/preference/old-{number}", f"old {number}", f"thing {number}")
        stage.scores[f"new {number}", f"old {number}"] = 0.99
    stage.say("s_1", "all is new")
    stage.extracted = lambda messages: {"facts": [fact(f"new {n}", f"thing {n}") for n in range(7)]}
    report = await stage.run()
    assert (report["merged"], report["retired"], len(stage.superseded)) == (7, 5, 5)
    assert len(stage.facts) == 9, "what is not retired is kept beside the new one"


async def test_without_an_index_facts_are_written_side_by_side(stage: Stage) -> None:
    near(stage, 1.0)
    stage.fails = lambda name, fields: "Memory was refused (search_unavailable): no index" if name == "search" else ""
    report = await stage.run()
    assert (report["facts"], report.get("stopped"), len(stage.facts)) == (1, None, 2)


@pytest.mark.parametrize(
    "wrong",
    [
        fact("x", "y", "opinion"),
        fact("", "y"),
        fact("x", ""),
        fact("x" * 1_001, "y"),
        fact("x", "y", message=5),
        {"class": "fact", "fact": 5, "subject": "y", "message": 0},
        None,
        "text",
    ],
)
async def test_a_fact_that_is_none_is_counted_and_left_out(stage: Stage, wrong: Any) -> None:
    stage.say("s_1", "hi")
    stage.extracted = lambda messages: {"facts": [wrong]}
    report = await stage.run()
    assert (report["invalid"], report["facts"], stage.watermark) == (1, 0, ["s_1"])


# --- judges ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        ({"supported": False, "relation": "same"}, {"withheld": 1, "facts": 0, "merged": 0}),
        ({"supported": True, "relation": "same"}, {"known": 1, "facts": 0, "merged": 0}),
        ({"supported": True, "relation": "replaces"}, {"facts": 1, "merged": 1, "retired": 1}),
        ({"supported": True, "relation": "different"}, {"facts": 1, "merged": 0}),
        ({"supported": True, "relation": "maybe"}, {"facts": 1, "merged": 0, "unjudged": 1}),
    ],
)
async def test_the_judge_decides_on_near_facts(stage: Stage, verdict: dict[str, Any], expected: dict[str, int]) -> None:
    near(stage, 0.9)
    stage.policy["verify_writes"] = True
    heard = []

    def judged(agent: str, pairs: list[dict[str, Any]]) -> Any:
        heard.extend(pairs)
        return {"verdicts": [{"n": 0, **verdict}]}

    stage.judged = judged
    report = await stage.run()
    assert {name: report[name] for name in expected} == expected
    assert heard == [{"n": 0, "new": NEW, "quote": "green tea it is", "known": OLD}]


async def test_the_judge_is_asked_for_eight_at_a_time_and_six_times_a_pass(stage: Stage) -> None:
    stage.policy["verify_writes"] = True
    stage.know(OLD_KEY, OLD, "Ada tea")
    for chat in range(4):
        stage.say(f"s_{chat}", f"chat {chat}")
        for number in range(20):
            stage.scores[f"chat {chat} says {number}", OLD] = 0.9
    stage.extracted = lambda messages: {
        "facts": [fact(f"{messages[0]['text']} says {n}", f"{messages[0]['text']} {n}") for n in range(20)]
    }
    sizes = []

    def judged(agent: str, pairs: list[dict[str, Any]]) -> Any:
        sizes.append(len(pairs))
        return {"verdicts": [{"n": one["n"], "supported": True, "relation": "same"} for one in pairs]}

    stage.judged = judged
    report = await stage.run()
    assert sizes == [8, 8, 4, 8, 8, 4]
    assert (report["known"], report["unjudged"], report["facts"]) == (40, 40, 40)


async def test_conflicts_are_reported_and_nothing_is_changed(stage: Stage) -> None:
    near(stage, 0.9)
    stage.policy["detect_conflicts"] = True
    stage.judged = lambda agent, pairs: {"verdicts": [{"n": 0, "verdict": "contradicts"}]}
    report = await stage.run()
    assert report["conflicts"] == [["memory/preference/ada-s-tea", OLD_KEY]]
    assert len(stage.facts) == 2
    assert stage.made("memory/conflict-judge")


@pytest.mark.parametrize("answer", ["nothing", {"verdicts": "none"}, {"verdicts": [None, 5]}, []])
async def test_a_judge_that_talks_nonsense_changes_nothing(stage: Stage, answer: Any) -> None:
    near(stage, 0.9)
    stage.policy |= {"verify_writes": True, "detect_conflicts": True}
    stage.judged = lambda agent, pairs: answer
    report = await stage.run()
    assert (report["facts"], report["unjudged"], report["conflicts"]) == (1, 1, [])
    assert stage.watermark == ["s_1"]


# --- scopes ----------------------------------------------------------------------------------------------------------


async def test_the_scope_is_that_of_the_target(stage: Stage) -> None:
    await stage.run(memory_scope='"agent"')
    assert {fields["scope"] for _, fields in stage.calls} == {"agent"}
    await stage.run(other='"x"')
    assert {fields["scope"] for _, fields in stage.calls} == {"user"}, "of a run with a user"
