import pytest

from connectors.configuration import ConfigurationProblem, prepare_volumes
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
    with pytest.raises(ConfigurationProblem) as caught:
        prepare_volumes(configuration)
    assert [str(problem).split(": ")[0] for problem in caught.value.problems] == ["volumes.out", "volumes.too"]
