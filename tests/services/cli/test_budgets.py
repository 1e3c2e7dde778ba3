import pytest
from typer.testing import CliRunner

from services.cli.main import app


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["set", "--tenant", "acme"], "a limit needs at least one of"),
        (["set", "--hard", "5"], "whose limit?"),
        (["set", "--everybody", "--tenant", "acme", "--hard", "5"], "leave --tenant and --user away"),
        (["set", "--tenant", "acme", "--hard-money", "1.2345678"], "expected an amount like 12.50"),
        (["rm"], "whose limit?"),
    ],
)
def test_a_limit_that_is_not_said_rightly_is_a_wrong_use(tmp_path, arguments, sentence):
    result = CliRunner().invoke(app, ["limits", *arguments], env={"LOOMLOG_HOME": str(tmp_path)})
    assert sentence in result.stderr
    assert result.exit_code == 2
