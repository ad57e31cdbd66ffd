"""Speed, memory and exactness of the helpers beside the naive reference, in one run.

    python -m benchmarks.run

Ratios of two times from one run say more than seconds: they are what the project promises.
"""

import dataclasses
import multiprocessing
import resource
import time

import pandas as pd
import torch

from benchmarks import architectures, flow
from helpers import STAGES, corpus, load_model, mixing_ratio, stage_map, trace
from helpers.encode import encode
from helpers.trace import Block, Trace
from tests import reference

H, D = 12, 768  # one layer of BERT-base
TEXT = "The keys to the cabinet, which was locked yesterday, are on the table. She saw them. "
MAIN = multiprocessing.get_context("spawn")


def random_run(T: int) -> Trace:
    """One layer of the size of BERT-base with random weights, on T random vectors."""
    torch.manual_seed(0)
    d = D // H
    block = Block(
        attention=torch.randn(H, T, T).softmax(dim=-1),
        x=torch.randn(T, D),
        residual=torch.randn(T, D),
        W_V=torch.randn(H, D, d) / D**0.5,
        b_V=torch.randn(H, d),
        W_O=torch.randn(H, d, D) / D**0.5,
        b_O=torch.randn(D),
        gamma=torch.rand(D) + 0.5,
        beta=torch.randn(D),
        eps=1e-12,
        output=torch.randn(T, D),
    )
    names = [str(number) for number in range(T)]
    return Trace(names, names, list(range(T)), block.attention[None], [block], STAGES)


def parts(run: Trace) -> reference.Parts:
    """The run's block as the naive reference takes it."""
    fields = {field.name for field in dataclasses.fields(reference.Parts)}
    return reference.Parts(**{name: getattr(run.blocks[0], name) for name in fields})


def fresh(run: Trace) -> Trace:
    """A copy that remembers nothing of earlier calls."""
    return dataclasses.replace(run, blocks=[dataclasses.replace(block) for block in run.blocks])


def ours(run: Trace, stages: tuple[str, ...]) -> None:
    run = fresh(run)
    for stage in stages:
        stage_map(run, stage)
        if len(stages) > 1:
            mixing_ratio(run, stage)


def naive(run: Trace, stages: tuple[str, ...]) -> None:
    block = parts(run)
    for stage in stages:
        reference.stage_map(block, stage)
        if len(stages) > 1:
            reference.mixing_ratio(block, stage)


def seconds(function, *arguments, repeats: int = 20) -> float:
    """The fastest of some runs, which other programs disturbed least; one run warms up."""
    function(*arguments)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function(*arguments)
        times.append(time.perf_counter() - start)
    return min(times)


def _peak_in_process(function, T, stages, answer) -> None:
    run = random_run(T)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    function(run, stages)
    answer.put((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


def peak(function, T: int, stages: tuple[str, ...]) -> float:
    """Additional memory at the highest point, in MB, in a process of its own."""
    answer = MAIN.Queue()
    process = MAIN.Process(target=_peak_in_process, args=(function, T, stages, answer))
    process.start()
    value = answer.get()
    process.join()
    return value


def row(what: str, mine: float, other: float | None, wanted: str, memory=(None, None)) -> dict:
    ratio = None if other is None else other / mine
    return {
        "what": what,
        "ours, s": mine,
        "other, s": other,
        "other / ours": ratio,
        "wanted": wanted,
        "ours, MB": memory[0],
        "other, MB": memory[1],
    }


def stage_rows() -> list[dict]:
    cases = (
        (128, ("Attn-N",), "≥ 30"),
        (256, ("Attn-N",), "≥ 60"),
        (128, STAGES, "≥ 30"),
    )
    # Memory first: a new process starts with the highest point of the one that started it.
    memory = [(peak(ours, T, stages), peak(naive, T, stages)) for T, stages, _ in cases]
    memory_512 = peak(ours, 512, ("Attn-N",)), H * 512 * 512 * D * 4 / 1e6
    rows = []
    for (T, stages, wanted), megabytes in zip(cases, memory, strict=True):
        run = random_run(T)
        what = stages[0] if len(stages) == 1 else "five stages and ratios"
        times = seconds(ours, run, stages), seconds(naive, run, stages, repeats=2)
        rows.append(row(f"{what}, one layer, D = {D}, T = {T}", *times, wanted, megabytes))
    time_512 = seconds(ours, random_run(512), ("Attn-N",))
    note = "works; the naive form needs the memory named"
    what = f"Attn-N, one layer, D = {D}, T = 512"
    return [*rows, row(what, time_512, None, note, memory_512)]


def model_rows() -> list[dict]:
    model = load_model()
    inputs = encode(model, (TEXT * 7)[: len(TEXT) * 6 + 30])
    length = inputs["input_ids"].shape[1]
    run = trace(model, (TEXT * 7)[: len(TEXT) * 6 + 30])

    def forward():
        with torch.no_grad():
            model.network(**inputs)

    what = f"MiniLM, T = {length}: five stages and ratios, all layers, against its forward pass"
    rows = [row(what, seconds(ours, run, STAGES), seconds(forward), "≥ 0.5")]
    passages = corpus.read_passages()
    for name in ("category_shares", "token_table", "mixing_table"):
        start = time.perf_counter()
        getattr(corpus, name)(model, passages)
        rows.append(row(f"{name}, 200 passages", time.perf_counter() - start, None, "< 60 s"))
    return rows


def flow_rows() -> list[dict]:
    return [
        row(r["what"], r["ours_seconds"], r["naive_seconds"], "≥ 500" if r["ratio"] else r["note"])
        for r in flow.rows()
    ]


def main() -> None:
    table = pd.DataFrame([*stage_rows(), *model_rows(), *flow_rows()]).set_index("what")
    print(table.to_string(float_format="{:.4g}".format, na_rep=""))
    print()
    architectures.main()


if __name__ == "__main__":
    main()
