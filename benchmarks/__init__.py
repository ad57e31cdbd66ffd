"""How fast, how small and how exact the helpers are beside the naive reference: `make bench`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # where `oracle` is, the reference
