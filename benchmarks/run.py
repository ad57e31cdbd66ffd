"""Speed, memory and exactness of the helpers beside the naive reference, in one run.

python -m benchmarks.run
"""

from collections.abc import Iterator

import pandas as pd

from benchmarks import architectures, flow, stages
from benchmarks.measure import row, seconds
from helpers import datasets, load_model, tables


def table_rows() -> Iterator[dict]:
    """Timed on every tenth passage, since each counts alike."""
    model, passages = load_model(), datasets.read_passages()
    for function in (tables.category_shares, tables.token_table, tables.mixing_table):
        time = seconds(function, model, passages[::10]) * 10
        yield row(f"{function.__name__}, {len(passages)} passages", time, None, "< 60 s")


def main() -> None:
    table = pd.DataFrame([*stages.rows(), *table_rows(), *flow.rows()]).set_index("what")
    print(table.to_string(float_format="{:.4g}".format, na_rep=""))
    print()
    architectures.main()


if __name__ == "__main__":
    main()
