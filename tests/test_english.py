"""What students and maintainers read is written as a native speaker would write it."""

import re
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
FAULTS = {"can not": "cannot", "shall": "should, must or will"}
PLACES = (
    *("README.md", "CONTRIBUTING.md", "helpers/data/*.md", "notebooks/*.ipynb"),
    *(f"{folder}/**/*.py" for folder in ("helpers", "training", "tools")),
)
FILES = [path for place in PLACES for path in sorted(ROOT.glob(place))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_clipped_or_translated(path, fault):
    cells = nbformat.read(path, 4).cells if path.suffix == ".ipynb" else ()
    text = "\n".join(cell.source for cell in cells) or path.read_text(encoding="utf-8")
    words = r'[\s"#]+'.join(fault.split())  # a line, a comment or a string may end between the two
    found = re.search(rf"\b{words}\b", text, re.IGNORECASE)
    where = text[max(0, found.start() - 40) : found.end() + 40] if found else ""
    assert not found, f"write {FAULTS[fault]!r} in: {where}"
