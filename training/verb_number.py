"""Teach the default model the number of a masked verb: helpers/data/verb_number.safetensors.

    python training/verb_number.py --hold-out          # measure it on held-out training nouns
    python training/verb_number.py                     # write the file, trained on all of them

The lower layers stay as they are, so their output is computed once. The top layers and a probe on
their last vector at [MASK] are trained on the training sentences of helpers/data/agreement.tsv. The
file holds the probe, and what was added to each weight, in float16. `--smoke` trains for two steps
on a few sentences, to test the script.
"""

import argparse
import copy
import json
import math
from pathlib import Path

import pandas as pd
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from helpers import Model, load_model
from helpers.datasets import read_agreement

BATCH = 32
PROBE_RATE = 10  # times the learning rate: the probe starts from zero


class Sentences:
    """The frozen layers' output for each sentence; a batch has one length, so nothing is padded."""

    def __init__(self, model: Model, table: pd.DataFrame, frozen: int) -> None:
        self.table = table.reset_index(drop=True)
        self.plural = torch.tensor([number == "plural" for number in table["number"]]).float()
        ids = [model.tokenizer(text)["input_ids"] for text in table["text"]]
        self.mask = torch.tensor([row.index(model.tokenizer.mask_token_id) for row in ids])
        self.lengths = torch.tensor([len(row) for row in ids])
        self.states: list[Tensor] = [torch.empty(0)] * len(ids)
        for batch in self.batches(128):
            rows = torch.tensor([ids[n] for n in batch])
            with torch.no_grad():
                x = model.network.embeddings(input_ids=rows)
                x = _through(model.network.encoder.layer[:frozen], x)
            for n, state in zip(batch, x, strict=True):
                self.states[n] = state

    def batches(self, size: int, random: torch.Generator | None = None) -> list[list[int]]:
        """Row numbers, of one length per batch; in random order if there is a generator."""
        found = []
        for length in self.lengths.unique():
            (rows,) = torch.where(self.lengths == length)
            if random:
                rows = rows[torch.randperm(len(rows), generator=random)]
            found += [part.tolist() for part in rows.split(size)]
        order = torch.randperm(len(found), generator=random) if random else range(len(found))
        return [found[n] for n in order]

    def logits(self, layers: nn.ModuleList, probe: nn.Linear, batch: list[int]) -> Tensor:
        """The logit of "plural" at [MASK], one per sentence of the batch."""
        x = _through(layers, torch.stack([self.states[n] for n in batch]))
        return probe(x[torch.arange(len(batch)), self.mask[batch]]).squeeze(1)


def main() -> None:
    args = _arguments()
    torch.manual_seed(args.seed)
    model, table = load_model(), read_agreement()
    train, test = (table[table["split"] == split] for split in ("train", "test"))
    if args.hold_out:
        listed = sorted(train["noun"].unique())
        left_out = train["noun"].isin(listed[args.hold_out - 1 :: 5])
        train, test = train[~left_out], train[left_out]
    if args.smoke:
        train, test = train[::41], test[::41]
    frozen = len(model.network.encoder.layer) - args.layers
    layers = copy.deepcopy(model.network.encoder.layer[frozen:])
    probe = nn.Linear(model.network.config.hidden_size, 1)
    fit(layers, probe, Sentences(model, train, frozen), args)
    if not args.hold_out:
        save(args.out, layers, probe, model, frozen)
    print(json.dumps(accuracy(layers, probe, Sentences(model, test, frozen))))


def fit(layers: nn.ModuleList, probe: nn.Linear, data: Sentences, args: argparse.Namespace) -> None:
    """AdamW; the learning rate rises for a tenth of the steps, then falls to zero."""
    nn.init.zeros_(probe.weight)
    nn.init.zeros_(probe.bias)
    random = torch.Generator().manual_seed(args.seed)
    groups = [(layers, args.learning_rate), (probe, PROBE_RATE * args.learning_rate)]
    optimizer = torch.optim.AdamW(
        [{"params": part.parameters(), "lr": rate} for part, rate in groups], weight_decay=0.01
    )
    steps = 2 if args.smoke else args.epochs * len(data.batches(BATCH))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: min((n + 1) / math.ceil(steps / 10), (steps - n) / (0.9 * steps), 1)
    )
    layers.train()
    done = 0
    while done < steps:
        for batch in data.batches(BATCH, random)[: steps - done]:
            loss = nn.functional.binary_cross_entropy_with_logits(
                data.logits(layers, probe, batch), data.plural[batch]
            )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_([*layers.parameters(), *probe.parameters()], 1.0)
            optimizer.step()
            schedule.step()
            done += 1
        print(f"step {done} of {steps}, loss {loss:.4f}", flush=True)
    layers.eval()


@torch.no_grad()
def accuracy(layers: nn.ModuleList, probe: nn.Linear, data: Sentences) -> dict[str, list[int]]:
    """Correct and total counts, by the number of attractors and of opposite ones."""
    right = torch.zeros(len(data.states), dtype=torch.bool)
    for batch in data.batches(128):
        right[batch] = (data.logits(layers, probe, batch) > 0) == (data.plural[batch] > 0)
    table = data.table.assign(right=right.numpy())
    groups = table.groupby(["attractors", "opposite"])["right"]
    return {f"{a} attractors, {o} opposite": [int(g.sum()), len(g)] for (a, o), g in groups}


def save(path: Path, layers: nn.ModuleList, probe: nn.Linear, model: Model, frozen: int) -> None:
    """Write the probe, and trained minus original weights, under their names in the network."""
    original = model.network.state_dict()
    tensors = {f"probe.{name}": tensor.half() for name, tensor in probe.state_dict().items()}
    for number, layer in enumerate(layers, start=frozen):
        for name, tensor in layer.state_dict().items():
            key = f"encoder.layer.{number}.{name}"
            tensors[key] = (tensor - original[key]).half()
    save_file(tensors, path)


def _through(layers: nn.ModuleList, x: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x)
    return x


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = Path(__file__).parents[1] / "helpers" / "data" / "verb_number.safetensors"
    parser.add_argument("--out", type=Path, default=here)
    parser.add_argument(
        "--hold-out",
        type=int,
        nargs="?",
        const=1,
        choices=range(1, 6),
        help="train without this fifth of the training nouns, measure on it, write nothing",
    )
    parser.add_argument("--layers", type=int, default=2, help="how many, from the top")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true", help="two steps on a few sentences")
    return parser.parse_args()


if __name__ == "__main__":
    main()
