"""Discovery of the configuration files, in order of precedence, lowest first.

    built-in providers          unless LOOMLOG_NO_DEFAULT_PROVIDERS=1
    LOOMLOG_PRESETS             in the order of the list (presets.py)
    LOOMLOG_CONFIG_DIR          its *.yaml and *.yml files in name order
    LOOMLOG_CONFIG_FILES        in the order of the list
    paths of the command line   in their order

When none of the last three names a file, the first of these that exists is used: ./loomlog.yaml, ./loomcycle.yaml, and
loomlog.yaml or loomcycle.yaml in the folder of that name under $XDG_CONFIG_HOME and ~/.config. A named file that is
missing is an error.

Before: settings.py. After: load.py reads them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from loomlog.connectors.configuration.findings import ConfigurationFinding, did_you_mean
from loomlog.connectors.configuration.presets import load_presets
from loomlog.connectors.configuration.settings import Settings

BUILT_IN_NAME = "built-in providers"
"""Display name of the lowest layer, used as its file name."""
BUILT_IN_PATH = Path(__file__).with_name("providers.yaml")
BASE_NAMES = ("loomlog", "loomcycle")
"""Base names of files and folders that are searched, in order of preference."""
MAX_FILE_BYTES = 1024 * 1024
"""Bytes of a configuration file; a configuration of a thousand agents has about a third of it."""
MAX_FILES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A configuration file and its display name."""

    path: Path
    display_name: str
    is_built_in: bool = False


def find_layers(
    settings: Settings, environ: Mapping[str, str], working_directory: Path, paths: Sequence[Path]
) -> tuple[list[Layer], list[ConfigurationFinding], list[ConfigurationFinding]]:
    """Return (layers, errors, warnings)."""
    errors: list[ConfigurationFinding] = []
    warnings: list[ConfigurationFinding] = []
    named = [
        *_list_folder(settings.config_dir, errors),
        *settings.config_files,
        *(working_directory / path for path in paths),
    ]
    if len(named) > MAX_FILES:
        errors.append(
            ConfigurationFinding(message=f"{len(named)} configuration files are named; at most {MAX_FILES} are read")
        )
        named = []
    for path in named:
        if not path.is_file():
            errors.append(
                ConfigurationFinding(message=f"the configuration file {path} does not exist or is not a file")
            )
    if not named and not settings.config_dir and not errors:
        searched = _default_paths(environ, working_directory)
        named = [path for path in searched if path.is_file()][:1]
        if not named:
            places = ", ".join(str(path) for path in searched)
            warnings.append(
                ConfigurationFinding(
                    message=f"there is no configuration file, so there are no agents; looked for {places}"
                )
            )
    bottom = (
        []
        if settings.no_default_providers
        else [Layer(path=BUILT_IN_PATH, display_name=BUILT_IN_NAME, is_built_in=True)]
    )
    layers = [Layer(path=path, display_name=display_path(path, working_directory)) for path in named if path.is_file()]
    return [*bottom, *_find_presets(settings.presets, errors), *layers], errors, warnings


def read_layer(layer: Layer) -> str:
    """Return the text of a file. Raises ValueError, naming the problem."""
    try:
        size_bytes = layer.path.stat().st_size
        if size_bytes > MAX_FILE_BYTES:
            raise ValueError(f"the file has {size_bytes} bytes; at most {MAX_FILE_BYTES} are read")
        return layer.path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"the file is not UTF-8: {error.reason} at byte {error.start}") from error
    except OSError as error:
        raise ValueError(f"the file cannot be read: {error.strerror}") from error


def _find_presets(names: Sequence[str], errors: list[ConfigurationFinding]) -> list[Layer]:
    there_are = load_presets()
    for name in names:
        if name not in there_are:
            message = f"LOOMLOG_PRESETS: there is no preset {name}{did_you_mean(name, there_are)}"
            errors.append(ConfigurationFinding(message=f"{message}; there are {', '.join(there_are)}"))
    return [
        Layer(path=there_are[name].path, display_name=f"preset {name}", is_built_in=True)
        for name in dict.fromkeys(names)
        if name in there_are
    ]


def _list_folder(folder: Path | None, errors: list[ConfigurationFinding]) -> list[Path]:
    if folder is None:
        return []
    if not folder.is_dir():
        errors.append(ConfigurationFinding(message=f"LOOMLOG_CONFIG_DIR: there is no folder {folder}"))
        return []
    return sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".yml") and path.is_file())


def _default_paths(environ: Mapping[str, str], working_directory: Path) -> list[Path]:
    folders = [Path(environ[name]) for name in ("XDG_CONFIG_HOME",) if environ.get(name)]
    if environ.get("HOME"):
        folders.append(Path(environ["HOME"]) / ".config")
    here = [working_directory / f"{name}.yaml" for name in BASE_NAMES]
    return [*here, *(folder / name / f"{name}.yaml" for folder in folders for name in BASE_NAMES)]


def display_path(path: Path, working_directory: Path) -> str:
    """Return the path as findings show it: relative to the working directory when it is below it."""
    return str(path.relative_to(working_directory)) if path.is_relative_to(working_directory) else str(path)
