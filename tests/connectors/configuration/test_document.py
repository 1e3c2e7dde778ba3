import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest
from pydantic import TypeAdapter

from loomlog.connectors.configuration import document, model
from loomlog.connectors.configuration.document import BLOCKS, blocks_without_section, render_document
from loomlog.connectors.configuration.key_descriptions import KEY_DESCRIPTIONS
from loomlog.connectors.configuration.settings import setting_rows
from loomlog.connectors.configuration.tree import read_tree, to_plain
from loomlog.connectors.configuration.trigger_block import CompletionHook
from loomlog.connectors.configuration.unsupported_keys import RETIRED_SETTINGS, UNSUPPORTED_BLOCKS, UNSUPPORTED_SETTINGS
from tests.connectors.configuration.conftest import Folder

ROOT = Path(__file__).parents[3]


def test_the_document_in_the_repository_is_the_one_the_tables_make():
    assert (ROOT / "docs" / "SETTINGS.md").read_text(encoding="utf-8") == render_document(), (
        "docs/SETTINGS.md is stale; run python -m loomlog.connectors.configuration.document"
    )


def test_the_document_names_everything():
    text = render_document()
    names = [name for row in setting_rows() for name in (row.name, row.old_name) if name]
    names += [*UNSUPPORTED_BLOCKS, *UNSUPPORTED_SETTINGS, *RETIRED_SETTINGS, *(f"### {name}" for name, _ in BLOCKS)]
    assert [name for name in names if name not in text] == []


def test_every_block_of_a_file_has_a_section():
    assert blocks_without_section() == []


def test_a_block_without_a_section_and_a_key_without_a_sentence_stop_the_generator(monkeypatch):
    descriptions = dict(KEY_DESCRIPTIONS)
    del descriptions[CompletionHook]
    monkeypatch.setattr(document, "KEY_DESCRIPTIONS", descriptions)
    with pytest.raises(LookupError, match=r"on_complete.*: the key kind has no sentence"):
        render_document()
    monkeypatch.setattr(document, "BLOCKS", tuple(row for row in BLOCKS if row[1] is not CompletionHook))
    with pytest.raises(LookupError, match="> on_complete: CompletionHook"):
        render_document()


@pytest.mark.parametrize("block", KEY_DESCRIPTIONS, ids=lambda block: block.__name__)
def test_every_key_has_a_sentence_and_an_example_of_its_type(block: type):
    assert [entry.name for entry in fields(block)] == list(KEY_DESCRIPTIONS[block])
    hints = get_type_hints(block, include_extras=True)
    for key, (meaning, example) in KEY_DESCRIPTIONS[block].items():
        assert meaning[0].isupper()
        assert meaning.endswith(".")
        root = read_tree(f"{key}: {example}\n", file="example.yaml", environ={}).root
        TypeAdapter(hints[key]).validate_python(to_plain(root)[key])


def test_the_examples_of_the_blocks_are_together_a_file_that_loads(folder: Folder):
    keys = KEY_DESCRIPTIONS[model.Configuration].items()
    secrets = dict.fromkeys(("OPENAI_API_KEY", "LOOMLOG_CI_TOKEN", "CRM_SECRET", "GITHUB_WEBHOOK_SECRET"), "x" * 32)
    folder.write("{openapi: 3.1.0, paths: {/orders: {get: {}}}}", "openapi.yaml")
    loaded = folder.load("".join(f"{key}: {example}\n" for key, (_, example) in keys), secrets)
    assert loaded.configuration.agents["assistant"].tools == ("Read",)


def test_the_command_writes_the_file_below_the_working_directory(tmp_path: Path):
    (tmp_path / "docs").mkdir()
    command = [sys.executable, "-m", "loomlog.connectors.configuration.document"]
    subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, check=True, timeout=60, stdout=subprocess.PIPE)
    assert (tmp_path / "docs" / "SETTINGS.md").read_text(encoding="utf-8") == render_document()
