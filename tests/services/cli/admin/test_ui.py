import webbrowser

import pytest

from loomlog.services.cli.terminal.browser import run_page_path
from tests.services.cli.fake_api import FakeApi, Scripted, invoke, let_commands_use, refused, row

VERSION = ("GET", "/ui/version.json")
LOGIN = ("GET", "/ui/login-config.json")


@pytest.fixture
def opened(monkeypatch) -> list[str]:
    addresses: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: addresses.append(address) is None)
    return addresses


@pytest.fixture
def fake(monkeypatch) -> FakeApi:
    fake = FakeApi()
    fake.answers[VERSION] = Scripted(body={"version": "1", "build": "b"})
    fake.answers[LOGIN] = Scripted(body={"open_mode": True, "login_origins": [], "version": "1"})
    fake.rows["r_1"] = row()
    let_commands_use(monkeypatch, lambda: fake.client("secret-token"))
    return fake


def test_the_page_is_opened_and_its_address_is_printed(fake, opened):
    result = invoke("ui")
    assert (result.exit_code, result.stdout) == (0, "http://api.test/ui\n")
    assert opened == ["http://api.test/ui"]


def test_where_a_token_is_needed_the_page_asks_and_no_address_has_it(fake, opened):
    fake.answers[LOGIN] = Scripted(body={"open_mode": False, "login_origins": [], "version": "1"})
    result = invoke("ui")
    assert "asks once for a token" in result.stdout
    assert "secret-token" not in result.stdout + "".join(opened)


def test_it_is_only_printed_on_request(fake, opened):
    result = invoke("ui", "--no-open")
    assert (result.exit_code, result.stdout, opened) == (0, "http://api.test/ui\n", [])


def test_without_a_browser_the_address_is_left_to_the_reader(fake, monkeypatch):
    monkeypatch.setattr(webbrowser, "open", lambda address: False)
    result = invoke("ui")
    assert result.exit_code == 0
    assert "http://api.test/ui\nNo browser could be opened" in result.stdout


def test_an_api_without_the_page_is_named(fake, opened):
    fake.answers[VERSION] = refused(404, "route_not_found", "there is no web page here: it is switched off")
    result = invoke("ui")
    assert (result.exit_code, opened) == (1, [])
    assert "http://api.test serves no web page" in result.stderr
    assert "switched off" in result.stderr


def test_the_page_of_a_run_is_opened_by_its_handle_too(fake, opened):
    fake.rows["a_1"] = row()
    assert invoke("runs", "show", "r_1", "--web").stdout.startswith("http://api.test/ui/runs/r_1\n")
    assert invoke("runs", "show", "a_1", "--web").exit_code == 0
    assert opened == ["http://api.test/ui/runs/r_1"] * 2


def test_a_run_that_is_not_there_opens_nothing(fake, opened):
    result = invoke("runs", "show", "r_2", "--web")
    assert (result.exit_code, opened) == (4, [])


@pytest.mark.parametrize("more", [["--json"], ["--at", "3"]])
def test_the_page_of_a_run_takes_no_other_form(more, fake, opened):
    result = invoke("runs", "show", "r_1", "--web", *more)
    assert (result.exit_code, opened) == (2, [])


def test_an_id_is_one_segment_of_the_address():
    assert run_page_path("r_1/../x?y") == "/ui/runs/r_1%2F..%2Fx%3Fy"


def test_the_page_is_written_into_a_new_folder(tmp_path):
    result = invoke("ui", "--export", str(tmp_path / "page"))
    assert result.exit_code == 0, result.output
    index = (tmp_path / "page" / "ui" / "index.html").read_text()
    (build,) = (tmp_path / "page" / "ui" / "-").iterdir()
    assert f"/ui/-/{build.name}/app.js" in index
    assert (build / "app.js").is_file()
    assert "pass on /v1/" in result.stdout


def test_a_folder_with_files_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    result = invoke("ui", "--export", str(tmp_path))
    assert result.exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
