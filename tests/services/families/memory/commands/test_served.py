"""`loomlog memory` over the real API: what is written is read back, with its past."""

import json
from pathlib import Path

import pytest

from loomlog.services.cli.errors import FAILED, NOT_FOUND
from tests.services.families.memory.commands.conftest import ServedMemory

AT = "2027-01-15T08:00:00.000Z"
"""Time of every event of entities in memory."""


async def test_a_key_is_set_read_listed_and_removed_and_its_past_stays(here: ServedMemory) -> None:
    written = await here.ok("set", "user", "ada", "colours/best", '{"name": "red"}')
    assert written[0].startswith("colours/best is set")
    assert (written[0].endswith("event loom.entity.events/1:1"), written[1:]) == (
        True,
        ["user ada 14 B of 1.0 MiB (0 %) in 1 key"],
    )
    await here.ok("set", "user", "ada", "colours/best", '"blue"', "--if-revision", "1")
    shown = await here.ok("get", "user", "ada", "colours/best")
    assert shown[:3] == ["key colours/best", "scope user ada", "revision 2"]
    assert f"changed {AT} by acme-op" in shown
    assert shown[-2:] == ["", "blue"]
    assert await here.ok("ls") == [
        "SCOPE ID KEYS SIZE CHANGED",
        f"user ada 1 6 B {AT}",
    ]
    assert await here.ok("ls", "user", "ada", "--prefix", "colours/") == [
        "KEY VALUE CHANGED EXPIRES",
        f'colours/best "blue" {AT} -',
    ]
    assert await here.ok("rm", "user", "ada", "colours/best") == [
        "colours/best no longer exists event loom.entity.events/1:3",
        "`loomlog memory log user ada colours/best` shows what it was.",
    ]
    assert await here.ok("log", "user", "ada", "colours/best") == [
        "REVISION AT WHAT BY RUN CALL VALUE EVENT",
        f"3 {AT} delete acme-op - - - loom.entity.events/1:3",
        f'2 {AT} set acme-op - - "blue" loom.entity.events/1:2',
        f'1 {AT} set acme-op - - {{"name": "red"}} loom.entity.events/1:1',
    ]
    page = await here.ok("log", "user", "ada", "colours/best", "--limit", "1")
    assert (len(page), page[2].startswith("There are more: --cursor ")) == (3, True)
    assert await here.ok("ls", "user", "ada") == ["No keys."]


async def test_the_value_at_an_event_is_shown(here: ServedMemory) -> None:
    for value in ("1", "2"):
        await here.ok("set", "user", "ada", "n", value)
    then = ("at", "user", "ada", "n", "--event", "loom.entity.events/1:1")
    shown = await here.ok(*then)
    assert shown[:3] == ["revision 1", f"change set at {AT} by acme-op", "event loom.entity.events/1:1"]
    assert shown[-2:] == ["1", "`loomlog memory log user ada n` shows its changes."]
    assert (await here.run(*then, "--value")).stdout == "1\n"
    before = ("at", "user", "ada", "n", "--time", "2020-01-01T00:00:00Z")
    assert (await here.ok(*before))[0] == "There was no key n in user ada then."
    assert json.loads((await here.run(*before, "--json")).stdout)["existed"] is False
    result = await here.run(*before, "--value")
    assert (result.exit_code, result.stdout) == (NOT_FOUND, "")
    result = await here.run("at", "user", "ada", "n", "--before-run", "r_00000000000000000000000000000000")
    assert (result.exit_code, "here is no run" in result.stderr) == (NOT_FOUND, True)


async def test_a_change_of_an_agent_names_its_run(here: ServedMemory) -> None:
    await here.set_in_run("tea", '"green"')
    hint = "`loomlog runs show r_1` shows the run that changed it."
    shown = await here.ok("log", "user", "ada", "tea")
    assert shown[1:] == [f'1 {AT} set helper r_1 turn 2, call 1 "green" loom.entity.events/1:1', hint]
    shown = await here.ok("get", "user", "ada", "tea")
    assert (f"changed {AT} by helper in run r_1, turn 2, call 1" in shown, shown[-1]) == (True, hint)
    assert f"change set at {AT} by helper in run r_1, turn 2, call 1" in await here.ok(
        "at", "user", "ada", "tea", "--event", "loom.entity.events/1:1"
    )


async def test_the_tenant_has_one_scope_without_an_id(here: ServedMemory) -> None:
    assert (await here.ok("set", "tenant", "motto", "onward", "--text"))[1].startswith("tenant 8 B")
    assert (await here.run("get", "tenant", "-", "motto", "--value")).stdout == "onward\n"
    assert (await here.run("get", "tenant", "motto", "--value")).stdout == "onward\n"
    assert (await here.ok("ls", "tenant"))[1].startswith("motto")
    assert await here.ok("usage", "tenant") == ["tenant 8 B of 1.0 MiB (0 %) in 1 key", "at most 10.0k keys"]
    await here.ok("set", "tenant", "-", "-", "1")
    assert (await here.run("get", "tenant", "-", "--value")).stdout == "1\n"


async def test_a_value_comes_from_a_file_or_stdin_and_goes_to_a_pipe_unchanged(
    here: ServedMemory, tmp_path: Path
) -> None:
    file = tmp_path / "value.json"
    file.write_text('{"a": 1.10, "b": [9007199254740993, "é\\u0007"]}')
    await here.ok("set", "user", "ada", "file", "--file", str(file), "--ttl", "24h")
    answer = json.loads((await here.run("get", "user", "ada", "file", "--json")).stdout)
    assert answer["entry"]["value"] == {"a": 1.1, "b": [9007199254740993, "é\u0007"]}
    assert answer["entry"]["expires_at"] == "2027-01-16T08:00:00.000Z"
    await here.ok("set", "user", "ada", "text", "-", "--text", stdin="one\n\ttwo é".encode())
    assert (await here.run("get", "user", "ada", "text", "--value")).stdout == "one\n\ttwo é\n"
    await here.ok("set", "user", "ada", "n", "--", "-5")
    assert (await here.run("get", "user", "ada", "n", "--value")).stdout == "-5\n"


async def test_a_key_whose_path_is_the_history_of_another_one(here: ServedMemory) -> None:
    await here.ok("set", "user", "ada", "n", "1")
    await here.ok("set", "user", "ada", "n/history", "2")
    assert (await here.run("get", "user", "ada", "n/history", "--value")).stdout == "2\n"
    result = await here.run("log", "user", "ada", "n")
    assert (result.exit_code, "there is a key n/history" in result.stderr) == (FAILED, True)


async def test_a_scope_is_dropped_only_with_yes(here: ServedMemory) -> None:
    for key in ("a", "b"):
        await here.ok("set", "agent", "helper", key, "1")
    assert await here.ok("drop", "agent", "helper") == [
        "agent helper: 2 keys, 2 B",
        "Nothing was deleted; --yes deletes them.",
    ]
    assert (await here.ok("ls", "agent"))[1].startswith("agent helper 2 2 B")
    dropped = await here.ok("drop", "agent", "helper", "--yes", "--reason", "done with it")
    assert dropped == ["agent helper has lost 2 keys event loom.entity.events/1:3"]
    assert "done with it" in (await here.ok("log", "agent", "helper", "a"))[1]
    assert await here.ok("ls", "agent") == ["No scope has keys."]
    assert await here.ok("drop", "agent", "helper") == ["agent helper has no keys."]


@pytest.mark.parametrize("key", ["..", "a/../b", "//x", "q?r#s%2F", "ä ö", "keys", "*"])
async def test_every_key_is_one_path(here: ServedMemory, key: str) -> None:
    await here.ok("set", "user", "a?b", key, '"v"')
    answer = json.loads((await here.run("get", "user", "a?b", key, "--json")).stdout)
    assert (answer["scope_id"], answer["entry"]["key"]) == ("a?b", key)
