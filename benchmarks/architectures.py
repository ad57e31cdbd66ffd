"""Architecture by stage: how far the helpers are from the naive reference, on tiny random models.

    python -m benchmarks.architectures

Each number is the largest difference in any layer, divided by the largest value. "adds up" is the
reconstruction error: all parts of a block against the model's own output, in the worst row.
"""

import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import get_args

import pandas as pd
import torch
from oracle import cut, reference, tiny_models
from torch import Tensor
from transformers.utils import logging

from helpers import (
    STAGES,
    Model,
    anatomy,
    globenc,
    load_model,
    reconstruction_error,
    stage_map,
    trace,
    value_zeroing,
)

TEXT, TARGET = "she saw the keys.", "on the table."


def models() -> Iterator[tuple[str, Model, anatomy.Attention | None]]:
    """Each tiny model, written to a folder and loaded, with each kind of attention it has."""
    for name in tiny_models.ARCHITECTURES:
        with tempfile.TemporaryDirectory() as folder:
            tiny_models.save(name, folder)
            model = load_model(folder)
        two_sided = model.network.config.is_encoder_decoder
        for kind in get_args(anatomy.Attention) if two_sided else (None,):
            yield name, model, kind


def errors(name: str, model: Model, kind: anatomy.Attention | None) -> dict[str, float | str]:
    """One row of the table: a number, or the reason why there is none."""
    target = None if kind is None else TARGET
    run = trace(model, TEXT, target=target, attention=kind)
    place, ids = cut.place(name, kind), cut.inputs(model, TEXT, target=target)
    cuts = cut.blocks(model.network, place, ids, kind)
    naive = [reference.Parts(**block.parts) for block in cuts]

    def naive_map(stage: str) -> Tensor:
        return torch.stack([reference.stage_map(parts, stage) for parts in naive])

    def naive_globenc() -> Tensor:
        pairs = zip(naive, cuts, strict=True)
        vectors = [reference.whole_layer_vectors(parts, *own.second) for parts, own in pairs]
        return torch.stack(vectors).norm(dim=-1)

    row = {
        stage: error(
            lambda stage=stage: stage_map(run, stage), lambda stage=stage: naive_map(stage)
        )
        for stage in STAGES
    }
    row["globenc"] = error(lambda: globenc(run), naive_globenc)
    if kind in (None, "encoder"):
        row["value_zeroing"] = error(
            lambda: value_zeroing(model, TEXT), lambda: cut.value_zeroing(model.network, place, ids)
        )
    else:
        row["value_zeroing"] = "of an encoder-decoder it reads the encoder"
    row["adds up"] = reconstruction_error(run).max().item()
    return row


def error(ours: Callable[[], Tensor], other: Callable[[], Tensor]) -> float | str:
    """The largest difference, relative; or the reason that ours gives for not being there."""
    try:
        found = ours()
    except ValueError as refusal:
        return re.search(r"(does not exist .+?)[;.]", str(refusal))[1]
    expected = other()
    return ((found - expected).abs().max() / expected.abs().max()).item()


def main() -> None:
    logging.disable_progress_bar()
    rows = {
        " ".join(filter(None, (name, kind))): errors(name, m, kind) for name, m, kind in models()
    }
    print("Largest difference to the naive reference, and to the model's own output ('adds up')")
    table = pd.DataFrame.from_dict(rows, orient="index")
    print(table.map(lambda cell: "-" if isinstance(cell, str) else f"{cell:.0e}").to_string())
    numbers = table.map(lambda cell: float("nan") if isinstance(cell, str) else cell)
    families = numbers.max(axis=1).groupby([name.split()[0].rstrip(",") for name in rows]).max()
    print("Largest error per family")
    print(families.map("{:.0e}".format).to_string())
    holes = defaultdict(list)
    for name, row in rows.items():
        for reason in {cell for cell in row.values() if isinstance(cell, str)}:
            columns = ", ".join(column for column, cell in row.items() if cell == reason)
            holes[columns, reason].append(name)
    print("Where '-' stands, there is nothing to measure:")
    for (columns, reason), names in sorted(holes.items()):
        print(f"  {columns}: {reason} ({'; '.join(names)})")


if __name__ == "__main__":
    main()
