from pathlib import Path

from loomlog.connectors.configuration.layers import MAX_FILE_BYTES
from tests.connectors.configuration.conftest import Folder

AGENT = "agents: {{{0}: {{provider: mock, model: mock-generic}}}}\n"


def agents(folder: Folder, environ: dict[str, str] | None = None, *names: str) -> list[str]:
    return list(folder.load(None, environ, *names).configuration.agents)


def test_without_any_file_there_are_the_built_in_providers_and_a_warning(folder: Folder):
    loaded = folder.load()
    assert {
        "anthropic",
        "anthropic-oauth-dev",
        "openai",
        "deepseek",
        "gemini",
        "ollama",
        "ollama-local",
        "mock",
        "mock-stable",
        "code-js",
    } == set(loaded.configuration.providers)
    assert loaded.files == ()
    (warning,) = loaded.warnings
    assert "there is no configuration file" in str(warning)
    assert "loomcycle.yaml" in str(warning)


def test_the_built_in_providers_can_be_left_out(folder: Folder):
    loaded = folder.load("agents: {}", {"LOOMLOG_NO_DEFAULT_PROVIDERS": "1"})
    assert loaded.configuration.providers == {}


def test_the_first_file_that_exists_is_taken(folder: Folder):
    home = {"HOME": str(folder.path / "home")}
    folder.write(AGENT.format("old-home"), "home/.config/loomcycle/loomcycle.yaml")
    assert agents(folder, home) == ["old-home"]
    folder.write(AGENT.format("home"), "home/.config/loomlog/loomlog.yaml")
    assert agents(folder, home) == ["home"]
    folder.write(AGENT.format("xdg"), "xdg/loomlog/loomlog.yaml")
    assert agents(folder, {**home, "XDG_CONFIG_HOME": str(folder.path / "xdg")}) == ["xdg"]
    folder.write(AGENT.format("old-here"), "loomcycle.yaml")
    assert agents(folder, home) == ["old-here"]
    folder.write(AGENT.format("here"), "loomlog.yaml")
    assert agents(folder, home) == ["here"]


def test_named_files_are_read_in_order_and_nothing_is_searched(folder: Folder):
    folder.write(AGENT.format("searched"))
    folder.write(AGENT.format("z"), "conf/10.yaml")
    folder.write(AGENT.format("y"), "conf/20.yml")
    folder.write("not: read", "conf/readme.txt")
    folder.write(AGENT.format("x"), "x.yaml")
    folder.write(AGENT.format("w"), "w.yaml")
    folder.write(AGENT.format("v"), "v.yaml")
    environ = {"LOOMLOG_CONFIG_DIR": "conf", "LOOMLOG_CONFIG_FILES": "x.yaml:w.yaml"}
    loaded = folder.load(None, environ, "v.yaml")
    assert list(loaded.configuration.agents) == ["z", "y", "x", "w", "v"]
    assert [path.name for path in loaded.files] == ["10.yaml", "20.yml", "x.yaml", "w.yaml", "v.yaml"]


def test_an_override_is_a_warning_and_an_error_under_strict(folder: Folder):
    folder.write("agents:\n  a: {provider: mock, model: one}\n", "1.yaml")
    folder.write("agents:\n  a: {provider: mock, model: two}\n", "2.yaml")
    environ = {"LOOMCYCLE_CONFIG_FILES": "1.yaml:2.yaml"}
    output = "2.yaml:2: agents.a.model overrides the value in 1.yaml:2"
    assert folder.warnings(None, environ) == [output]
    assert folder.load(None, environ).configuration.agents["a"].model == "two"
    assert folder.problems(None, {**environ, "LOOMCYCLE_CONFIG_STRICT": "1"}) == [output]


def test_lists_are_edited_across_files(folder: Folder):
    folder.write("provider_priority: [openai, mock]\n", "1.yaml")
    folder.write("provider_priority: !prepend [anthropic]\n", "2.yaml")
    loaded = folder.load(None, {"LOOMLOG_CONFIG_STRICT": "1"}, "1.yaml", "2.yaml")
    assert loaded.configuration.provider_priority == ("anthropic", "openai", "mock")


def test_a_named_file_or_folder_that_is_missing_is_an_error(folder: Folder):
    (line,) = folder.problems(None, {}, "nowhere.yaml")
    assert "nowhere.yaml does not exist" in line
    (line,) = folder.problems("agents: {}", {"LOOMLOG_CONFIG_DIR": "nowhere"})
    assert "there is no folder" in line


def test_files_that_are_no_text_or_too_large_are_refused_by_name(folder: Folder):
    (folder.path / "bad.yaml").write_bytes(b"a: \xff\n")
    (folder.path / "big.yaml").write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    bad, big = folder.problems(None, {}, "bad.yaml", "big.yaml")
    assert bad == "bad.yaml: the file is not UTF-8: invalid start byte at byte 3"
    assert big.startswith("big.yaml: the file has 1048577 bytes")


def test_a_byte_order_mark_is_no_content(folder: Folder):
    (folder.path / "loomlog.yaml").write_bytes(b"\xef\xbb\xbfagents: {}\n")
    assert folder.load().configuration.agents == {}


def test_files_outside_of_the_working_directory_are_shown_in_full(folder: Folder, tmp_path_factory):
    other: Path = tmp_path_factory.mktemp("other") / "x.yaml"
    other.write_text("volums: {}\n")
    (line,) = folder.problems(None, {}, str(other))
    assert line.startswith(f"{other}:1: volums is not a known key")
