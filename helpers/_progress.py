"""A progress bar for long loops that leaves nothing behind."""

from collections.abc import Iterable

from IPython import get_ipython
from tqdm.auto import tqdm


def progress(steps: Iterable, description: str | None = None) -> Iterable:
    """Go through the steps; a bar shows after two seconds and disappears at the end.

    There is no bar where outputs are stored or compared: when a program runs the notebook, or when
    the output goes into a file.

    Example: for text in progress(texts, "texts")
    """
    return tqdm(steps, description, delay=2, leave=False, disable=_unattended() or None)


def _unattended() -> bool:
    """Whether a program runs the notebook: it tells the kernel that nobody can answer `input()`."""
    request = getattr(get_ipython(), "get_parent", dict)()
    return not request.get("content", {}).get("allow_stdin", True)
