"""The reviewer on real folders with the real file tools: the formats of their answers are what it depends on."""

import asyncio
import json
from pathlib import Path

import pytest

from loomlog.connectors.models.mock.model import MockModel, MockOptions
from loomlog.connectors.protocols import ModelRequest, Reply, Tool, ToolContext, ToolResult, ToolSpec, VolumeBinding
from loomlog.connectors.tools.glob import build_glob_tool
from loomlog.connectors.tools.grep import build_grep_tool
from loomlog.connectors.tools.read import build_read_tool
from loomlog.connectors.tools.thread_pool import ThreadPool
from loomlog.connectors.tools.write import build_write_tool
from loomlog.schemas.conversation import Message, TextBlock, ToolResultBlock, ToolUseBlock
from tests.connectors.models.samples import user

MAX_TURNS = 6
SOURCE = '''"""A service. eval(x) in a docstring is no code."""
import subprocess

PASSWORD = "hunter2hunter2"


def start(command, seen=[]):
    try:
        subprocess.run(command, shell=True)
    except Exception:
        print("failed")  # TODO: say why
'''


class Run:
    """The loop around the model, as the runtime has it, on folders of the test."""

    def __init__(
        self, code: Path, out: Path | None, *, tools: tuple[str, ...] = ("Glob", "Grep", "Read", "Write")
    ) -> None:
        threads = ThreadPool()
        every: list[Tool] = [
            build_glob_tool(threads),
            build_grep_tool(threads),
            build_read_tool(threads),
            build_write_tool(threads),
        ]
        self.tools = {tool.name: tool for tool in every if tool.name in tools}
        volumes = [VolumeBinding(name="code", path=str(code), mode="ro", is_default=True)]
        if out is not None:
            volumes.append(VolumeBinding(name="out", path=str(out), mode="rw"))
        self.context = ToolContext(
            run_id="r_1",
            session_id="s_1",
            agent_id="a_1",
            agent="reviewer",
            tenant="t",
            subject="s",
            user_id="u",
            user_tier="",
            provider="mock",
            model="mock-reviewer",
            tools=tuple(self.tools),
            volumes=tuple(volumes),
        )
        self.messages = [user("Review the code.")]
        self.turns: list[Reply] = []

    async def finished(self) -> str:
        """Runs to the end; the final text."""
        while len(self.turns) < MAX_TURNS:
            reply = await self.next_turn()
            if not reply.tool_calls:
                return reply.text
            answers = await asyncio.gather(*(self.answer(call.name, call.input) for call in reply.tool_calls))
            self.messages += [
                Message(
                    role="assistant",
                    blocks=(
                        TextBlock(text=reply.text),
                        *(ToolUseBlock(id=call.id, name=call.name, input=call.input) for call in reply.tool_calls),
                    ),
                ),
                Message(
                    role="user",
                    blocks=tuple(
                        ToolResultBlock(tool_use_id=call.id, name=call.name, text=answer.text, is_error=answer.is_error)
                        for call, answer in zip(reply.tool_calls, answers, strict=True)
                    ),
                ),
            ]
        raise AssertionError("the script does not end")

    async def next_turn(self) -> Reply:
        specs = [
            ToolSpec(name=tool.name, description=tool.description, input_schema=tool.input_schema)
            for tool in self.tools.values()
        ]
        asked = ModelRequest(
            call_id=f"r_1/{len(self.turns)}/0", model="mock-reviewer", messages=tuple(self.messages), tools=specs
        )
        model = MockModel(options=MockOptions(latency_ms=0, latency_jitter_ms=0))
        *_, reply = [item async for item in model.stream(asked)]
        assert isinstance(reply, Reply)
        self.turns.append(reply)
        return reply

    async def answer(self, name: str, arguments: str) -> ToolResult:
        return await self.tools[name].call(json.loads(arguments), self.context)

    @property
    def called(self) -> list[set[str]]:
        return [{call.name for call in turn.tool_calls} for turn in self.turns]


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    return folder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def written(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


async def test_it_reviews_code_in_five_turns_and_writes_a_report(code: Path, out: Path) -> None:
    written(
        code, {"service/main.py": SOURCE, "service/clean.py": "x = 1\n", "web/a.js": "// FIXME\n", "notes.md": "TODO\n"}
    )
    run = Run(code, out)
    final = await run.finished()
    assert run.called == [{"Glob"}, {"Grep"}, {"Read"}, {"Write"}, set()]
    assert all(len(turn.tool_calls) > 1 for turn in run.turns[:3])
    report = (out / "report.md").read_text()
    for place in (
        '`service/main.py:4` `PASSWORD = "hu..."`',
        "`service/main.py:7` `def start(command, seen=[]):`",
        "`service/main.py:9` `subprocess.run(command, shell=True)`",
        "`service/main.py:10` `except Exception:`",
        '`service/main.py:11` `print("failed")  # TODO: say why`',
        "`web/a.js:1` `// FIXME`",
        "| service/main.py | 11 | 6 | start (5 lines) |",
    ):
        assert place in report
    assert "service/main.py:1`" not in report
    assert "notes.md" not in report
    assert final.startswith("7 findings in 2 files: 1 possible secrets in the source")
    assert "2 files were read. The report is report.md in out." in final


async def test_it_says_so_when_there_is_nothing_to_find(code: Path, out: Path) -> None:
    written(code, {"a/clean.py": "x = 1\n"})
    run = Run(code, out)
    final = await run.finished()
    assert run.called == [{"Glob"}, {"Grep"}, {"Write"}, set()]
    assert "No findings in 1 source file after 10 searches." in final
    assert "Text run as code: 0 found" in (out / "report.md").read_text()


async def test_an_empty_folder_is_reviewed_too(code: Path, out: Path) -> None:
    assert "No findings in 0 source files" in await Run(code, out).finished()


async def test_other_peoples_code_is_neither_searched_nor_reported(code: Path, out: Path) -> None:
    files = {
        ".venv/lib/x.py": "eval(a)\n",
        "node_modules/y.js": "// TODO\n",
        "own/z.py": "eval(b)\n",
        "own/w.js": "// FIXME\n",
        "top.py": "eval(c)\n",
    }
    written(code, files)
    run = Run(code, out)
    await run.finished()
    searched = {json.loads(call.input)["path"] for call in run.turns[1].tool_calls}
    assert searched == {"own", "top.py"}
    report = (out / "report.md").read_text()
    assert "`own/z.py:1` `eval(b)`" in report
    assert "`own/w.js:1` `// FIXME`" in report
    assert "`top.py:1` `eval(c)`" in report
    assert "Not searched, as others' or generated code: .venv, node_modules." in report
    assert "eval(a)" not in report


async def test_without_a_volume_for_the_report_it_is_in_the_answer(code: Path) -> None:
    written(code, {"a/b.py": "eval(x)\n"})
    final = await Run(code, None).finished()
    assert "The report could not be written to out: Write failed:" in final
    assert "- `a/b.py:1` `eval(x)`" in final


async def test_without_a_tool_its_part_is_left_out_and_named(code: Path, out: Path) -> None:
    written(code, {"a/b.py": "eval(x)\n"})
    final = await Run(code, out, tools=("Glob", "Grep")).finished()
    assert "the tool Write is not offered" in final
    assert "The tool Read is not offered to this run, so its part was left out." in final
    assert "- `a/b.py:1` `eval(x)`" in final
    assert "No findings" in await Run(code, out, tools=()).finished()


async def test_tools_that_fail_are_noted_and_nothing_is_called_clean(code: Path, out: Path) -> None:
    run = Run(code / "gone", out)
    final = await run.finished()
    assert "Not everything could be seen." in final
    assert "Glob failed: " in (out / "report.md").read_text()


async def test_any_process_can_go_on_because_a_turn_depends_on_the_conversation_alone(code: Path, out: Path) -> None:
    written(code, {"a/b.py": SOURCE})
    run = Run(code, out)
    await run.finished()
    for turn, reply in enumerate(run.turns):
        again = Run(code, out)
        again.messages = run.messages[: 1 + 2 * turn]
        again.turns = run.turns[:turn]
        assert await again.next_turn() == reply


async def test_lists_that_were_cut_are_noted(code: Path, out: Path) -> None:
    written(code, {f"a/file{n:03}.py": "eval(x)\n" for n in range(120)})
    await Run(code, out).finished()
    report = (out / "report.md").read_text()
    assert "120 source files found by name." in report
    assert "the 100 newest of 120 matches" in report
    assert "Text run as code (120)" in report
