import json

import orjson
import pytest

from loomlog.connectors.errors import Permanent, Transient
from loomlog.services.families.memory.commands.evaluation.generator import generate
from loomlog.services.families.memory.commands.evaluation.level_chats import generate_levels
from loomlog.services.families.memory.commands.evaluation.live import choose_chats, question
from tests.services.families.memory.commands.evaluation.corpora import asked_text, preset_prompt

LIVE = ("memory-eval-live", "--provider", "mock", "--model", "scripted", "--chats", "4")


def perfect(corpus):
    """Answers with the facts of the chat that is asked about."""
    facts = {question(chat): [one for one in corpus.facts if one.chat == chat.id] for chat in corpus.chats}

    def answer(request) -> str:
        return json.dumps(
            {
                "facts": [
                    {"class": one.fact_class, "subject": one.subject, "fact": one.text, "message": one.message}
                    for one in facts[asked_text(request)]
                ]
            }
        )

    return answer


def test_a_perfect_extractor_has_full_marks_with_the_prompt_of_the_preset(command, scripted, folder):
    model = scripted(perfect(generate(1)))
    result = command(*LIVE, "--output", "report.json", "--effort", "low", "--max-tokens", "900")
    assert result.exit_code == 0, result.output
    report = orjson.loads((folder / "report.json").read_bytes())
    assert (report["abilities"]["all"]["precision"], report["abilities"]["all"]["recall"]) == (1.0, 1.0)
    assert (report["right_class"], report["exact_quotes"], report["invalid"], report["problems"]) == (1.0, 0.0, 0, [])
    assert (report["calls"], report["usage"]["input_tokens"], report["cost_micros"]) == (4, 40, 80)
    assert (report["model"], report["currency"], report["effort"]) == ("mock/scripted", "EUR", "low")
    request = model.requests[0]
    assert request.system[0].text == preset_prompt("memory/extractor")
    assert (request.max_tokens, request.effort, request.sampling.temperature) == (900, "low", 0)
    assert model.is_closed
    assert "0.0001 EUR" in result.stdout


def test_what_is_missed_and_invented_lowers_recall_and_precision_and_can_be_shown(command, scripted):
    right = perfect(generate(1))

    def answer(request) -> str:
        facts = json.loads(right(request))["facts"][1:]
        noise = {"class": "fact", "subject": "train", "fact": "Their coat is purple.", "message": facts[0]["message"]}
        return json.dumps({"facts": [*facts, noise, {"class": "rumour"}]})

    scripted(answer)
    report = orjson.loads(command(*LIVE, "--json").stdout)
    everything = report["abilities"]["all"]
    assert everything["facts"] - everything["right"] == 4
    assert everything["extracted"] - everything["right"] == 4
    assert report["invalid"] == 4
    shown = command(*LIVE, "--show-facts").stdout
    assert "missed" in shown
    assert "Their coat is purple." in shown


def test_an_answer_that_is_no_json_is_a_problem_of_its_chat(command, scripted):
    scripted(lambda request: "ok")
    result = command(*LIVE)
    assert result.exit_code == 0
    assert result.stdout.count("the answer is no JSON object with facts") == 4


def test_a_call_that_fails_for_a_moment_is_repeated_and_one_that_keeps_failing_is_reported(command, scripted):
    right, calls = perfect(generate(1)), []

    def answer(request):
        calls.append(request)
        return Transient("529", kind="overloaded", retry_after_s=0.0) if len(calls) <= 2 else right(request)

    scripted(answer)
    assert command(*LIVE).exit_code == 0
    scripted(lambda request: Transient("mock 529: overloaded", kind="overloaded", retry_after_s=0.0))
    result = command(*LIVE, "--baseline", "b.json", "--update-baseline")
    assert result.exit_code == 1
    assert "4 calls failed; the baseline is not written." in result.output
    assert "mock 529: overloaded" in result.output


def test_a_call_that_cannot_succeed_ends_the_command(command, scripted):
    scripted(lambda request: Permanent("mock 401: no such key", kind="unauthorised", status=401))
    result = command(*LIVE)
    assert (result.exit_code, "mock 401: no such key" in result.output) == (1, True)


def test_a_baseline_is_written_kept_to_and_says_loudly_when_the_prompt_is_another_one(command, scripted, folder):
    scripted(perfect(generate(1)))
    first = command(*LIVE, "--baseline", "b.json")
    assert (first.exit_code, "THERE IS NO BASELINE" in first.output) == (0, True)
    assert not (folder / "b.json").exists()
    assert command(*LIVE, "--baseline", "b.json", "--update-baseline").exit_code == 0
    again = command(*LIVE, "--baseline", "b.json")
    assert (again.exit_code, "PROMPT" in again.output) == (0, False)
    (folder / "other.yaml").write_text(
        (folder / "loomlog.yaml").read_text() + "agents: { memory/extractor: { system_prompt: Another prompt. } }\n"
    )
    scripted(lambda request: '{"facts": []}')
    worse = command(*LIVE, "--baseline", "b.json", "--config", "other.yaml")
    assert worse.exit_code == 1
    assert "THE PROMPT IS ANOTHER ONE" in worse.output
    assert "all: recall fell from 1.00 to 0.00." in worse.output
    assert command(*LIVE, "--baseline", "b.json", "--no-gate").exit_code == 0


def test_the_corpus_of_levels_takes_terms_of_an_ontology(command, scripted):
    model = scripted(perfect(generate_levels(1)))
    result = command(*LIVE, "--corpus", "hierarchy", "--ontology-terms", "site, department ,", "--json")
    assert result.exit_code == 0, result.output
    report = orjson.loads(result.stdout)
    assert list(report["abilities"]) == ["whole", "part", "member", "noise", "all"]
    assert report["abilities"]["all"]["recall"] == 1.0
    assert report["ontology_terms"] == ["site", "department"]
    assert model.requests[0].system[0].text.endswith("Types of things in use: site, department")


def test_the_same_seed_chooses_the_same_chats():
    corpus = generate(1)
    assert choose_chats(corpus, 5, 1) == choose_chats(corpus, 5, 1) != choose_chats(corpus, 5, 2)
    assert len(choose_chats(corpus, 1_000, 1)) == len({one.chat for one in corpus.facts})


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (("--corpus", "x"), 2, "expected default or hierarchy"),
        (("--timeout", "5"), 2, "expected a duration like"),
        (("--effort", "huge"), 2, "expected one of low, medium, high"),
        (("--provider", "mock"), 2, "--provider needs --model"),
        (("--provider", "mok", "--model", "x"), 2, "did you mean mock?"),
        (("--provider", "anthropic", "--model", "x"), 1, "ANTHROPIC_API_KEY is not set"),
        ((), 1, "Name one with --provider and --model"),
        (("--update-baseline",), 2, "needs --baseline"),
        (("--config", "nowhere.yaml"), 4, "there is no file nowhere.yaml"),
    ],
)
def test_what_cannot_be_used_is_refused_before_any_call(command, scripted, arguments, code, problem):
    model = scripted(lambda request: "ok")
    result = command("memory-eval-live", *arguments)
    assert (result.exit_code, problem in result.output) == (code, True), result.output
    assert model.requests == []
