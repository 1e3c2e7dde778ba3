"""Recipes of MCP servers: the bundled ones, the operator's, and taking one into a configuration."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loomlog.connectors.configuration.load import load
from loomlog.services.cli.mcp.recipes import read_recipes
from loomlog.services.cli.mcp.registry import registry_app

NAMES = [
    "arxiv",
    "brave-search",
    "discord",
    "email",
    "fetch",
    "filesystem",
    "github",
    "gitlab",
    "jobs",
    "notion",
    "slack",
    "tavily",
    "telegram",
]
OWN = {"url": "https://crm.example/mcp", "_loomcycle": {"description": "Customers", "transport": "http"}}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOOMLOG_MCP_RECIPES_ROOT", str(tmp_path / "recipes"))
    for name in ("GITHUB_TOKEN", "BRAVE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def run(*words: str, exit_code: int = 0) -> str:
    result = CliRunner().invoke(registry_app, list(words))
    assert result.exit_code == exit_code, result.output
    return result.output


def listed(*words: str) -> list[str]:
    return [one["name"] for one in json.loads(run("list", "--json", *words))]


def test_thirteen_recipes_come_with_the_program():
    assert listed() == NAMES
    assert all(recipe.about.description for recipe in read_recipes(None).values())


@pytest.mark.parametrize("name", NAMES)
def test_each_recipe_is_a_server_that_a_configuration_takes(name: str, folder: Path):
    run("append-to-config", name, "--to", "loomlog.yaml", "--skip-env-check")
    needed = read_recipes(None)[name].about.env_vars_required
    values = {one: "http://localhost:1/x" if one.endswith("URL") else "v" * 20 for one in needed}
    loaded = load(values, working_directory=folder)
    assert loaded.configuration.mcp_servers[name].description
    assert not [warning for warning in loaded.warnings if "mcp_servers" in str(warning)]


def test_a_recipe_whose_variables_are_missing_is_not_taken(folder: Path):
    result = CliRunner().invoke(registry_app, ["append-to-config", "github"])
    assert result.exit_code != 0
    assert "GITHUB_TOKEN: not set" in " ".join(result.stderr.split())
    assert not (folder / "loomlog.yaml").exists()


def test_a_server_that_is_there_is_replaced_with_force_only(folder: Path):
    (folder / "loomlog.yaml").write_text("# mine\nmcp_servers:\n  fetch:\n    transport: stdio\n    command: old\n")
    assert CliRunner().invoke(registry_app, ["append-to-config", "fetch"]).exit_code != 0
    run("append-to-config", "fetch", "--force")
    text = (folder / "loomlog.yaml").read_text()
    assert text.startswith("# mine\n")
    assert "uvx" in text
    assert "old" not in text


def test_an_own_recipe_comes_before_a_bundled_one_and_can_be_removed(folder: Path):
    Path("fetch.json").write_text(json.dumps(OWN))
    run("add", "fetch.json")
    assert "crm.example" in run("show", "fetch")
    assert "crm.example" not in run("show", "fetch", "--bundled")
    run("remove", "fetch")
    assert "crm.example" not in run("show", "fetch")
    assert CliRunner().invoke(registry_app, ["remove", "fetch"]).exit_code != 0


def test_a_hidden_recipe_is_listed_on_demand(folder: Path):
    run("disable", "discord")
    assert "discord" not in listed()
    assert "discord" in listed("--include-disabled")
    run("enable", "discord")
    assert "discord" in listed()


@pytest.mark.parametrize("text", ["[]", "{", "{}", '{"url": "x"}', '{"_loomcycle": {}}'])
def test_what_is_no_recipe_is_refused(text: str):
    Path("x.json").write_text(text)
    result = CliRunner().invoke(registry_app, ["add", "x.json"])
    assert result.exit_code != 0
    assert "not a recipe" in " ".join(result.stderr.split())


def test_a_link_in_the_folder_is_passed_over(folder: Path):
    (folder / "recipes").mkdir()
    (folder / "real.json").write_text(json.dumps(OWN))
    (folder / "recipes" / "linked.json").symlink_to(folder / "real.json")
    assert "linked" not in listed()
