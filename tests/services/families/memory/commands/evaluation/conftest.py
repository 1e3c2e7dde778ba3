import pytest

from loomlog.services.cli.main import app
from tests.services.families.memory.commands.evaluation.corpora import ScriptedModel

CONFIGURATION = """\
providers:
  mock: { driver: mock, options: { enabled: true } }
pricing:
  currency: EUR
  models: { mock/scripted: { input: 1.0, output: 2.0 } }
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder with a configuration, in which commands run without keys."""
    monkeypatch.chdir(tmp_path)
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "LOOMLOG_PRESETS", "LOOMLOG_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "loomlog.yaml").write_text(CONFIGURATION)
    return tmp_path


@pytest.fixture
def command(folder):
    from typer.testing import CliRunner

    def run(*arguments: str):
        return CliRunner().invoke(app, list(arguments))

    return run


@pytest.fixture
def scripted(monkeypatch):
    """Makes every provider a ScriptedModel."""

    def make(answer) -> ScriptedModel:
        model = ScriptedModel(answer)
        monkeypatch.setattr(
            "loomlog.services.families.memory.commands.evaluation.model_calls.build_model", lambda provider: model
        )
        monkeypatch.setattr("loomlog.services.families.memory.commands.evaluation.model_calls.FIRST_DELAY_S", 0.0)
        return model

    return make
