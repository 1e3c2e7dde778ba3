import os

import pytest

from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.configuration.volumes import check_volumes, prepare_volumes
from tests.connectors.configuration.conftest import Folder


def test_writable_folders_are_made_and_read_only_ones_are_only_looked_for(folder: Folder):
    text = "volumes: {out: {path: a/b, mode: rw}, source: {path: missing}, here: {path: .}}"
    configuration = folder.load(text).configuration
    (warning,) = prepare_volumes(configuration)
    assert (folder.path / "a" / "b").is_dir()
    assert not (folder.path / "missing").exists()
    assert "volumes.source: there is no folder" in str(warning)
    assert len(prepare_volumes(configuration)) == 1


def test_a_folder_that_cannot_be_made_stops_the_start(folder: Folder):
    folder.write("", "file")
    configuration = folder.load(
        "volumes: {out: {path: file/below, mode: rw}, too: {path: file, mode: rw}}"
    ).configuration
    with pytest.raises(ConfigurationError) as caught:
        prepare_volumes(configuration)
    assert [str(problem).split(": ")[0] for problem in caught.value.findings] == ["volumes.out", "volumes.too"]


def test_a_look_says_what_making_would_say_and_makes_nothing(folder: Folder):
    folder.write("", "file")
    (folder.path / "dangling").symlink_to(folder.path / "nowhere")
    text = """volumes:
      below: {path: file/below, mode: rw}
      file: {path: file, mode: rw}
      link: {path: dangling, mode: rw}
      out: {path: a/b, mode: rw}
      source: {path: missing}
    """
    configuration = folder.load(text).configuration
    options: list[list[str]] = []
    for looked in (check_volumes, prepare_volumes):
        with pytest.raises(ConfigurationError) as caught:
            looked(configuration)
        options.append([str(problem) for problem in caught.value.findings])
        assert (folder.path / "a").exists() == (looked is prepare_volumes)
    assert options[0] == options[1]
    assert len(options[0]) == 3


def test_a_folder_that_may_not_be_written_cannot_have_one_made_in_it(folder: Folder, monkeypatch: pytest.MonkeyPatch):
    configuration = folder.load("volumes: {out: {path: a/b, mode: rw}, source: {path: missing}}").configuration
    assert [str(warning).split(": ")[0] for warning in check_volumes(configuration)] == ["volumes.source"]
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(ConfigurationError, match=r"volumes\.out: cannot make the folder .*Permission denied"):
        check_volumes(configuration)
