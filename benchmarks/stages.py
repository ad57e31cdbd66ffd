"""Stage maps and mixing ratios: one layer against the naive reference, a model against itself."""

import resource
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch
from oracle import reference
from oracle.examples import run_of

from benchmarks.measure import row, seconds
from helpers import STAGES, Trace, load_model, mixing_ratio, stage_map, trace
from helpers.tokens import encode
from helpers.tracing import Block

H, D = 12, 768  # one layer of BERT-base
CASES = ((128, ("Attn-N",), "≥ 30"), (256, ("Attn-N",), "≥ 60"), (128, STAGES, "≥ 30"))
TEXT = "The keys to the cabinet, which was locked yesterday, are on the table. She saw them. "


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
    return run_of(block)


def ours(run: Trace, stages: tuple[str, ...]) -> None:
    for stage in stages:
        stage_map(run, stage)
        if len(stages) > 1:
            mixing_ratio(run, stage)


def naive(run: Trace, stages: tuple[str, ...]) -> None:
    block = reference.Parts.of(run.blocks[0], torch.float32)
    for stage in stages:
        reference.stage_map(block, stage)
        if len(stages) > 1:
            reference.mixing_ratio(block, stage)


def peak(function: Callable, T: int, stages: tuple[str, ...]) -> float:
    """Additional memory at the highest point, in MB, in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(_peak_here, function, T, stages).result()


def _peak_here(function: Callable, T: int, stages: tuple[str, ...]) -> float:
    run = random_run(T)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    function(run, stages)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def rows() -> Iterator[dict]:
    # Memory first: a new process starts with the highest point of the one that started it.
    memory = [(peak(ours, T, stages), peak(naive, T, stages)) for T, stages, _ in CASES]
    memory_512 = peak(ours, 512, ("Attn-N",)), H * 512 * 512 * D * 4 / 1e6
    for (T, stages, wanted), megabytes in zip(CASES, memory, strict=True):
        run = random_run(T)
        what = stages[0] if len(stages) == 1 else "five stages and ratios"
        times = seconds(ours, run, stages), seconds(naive, run, stages)
        yield row(f"{what}, one layer, D = {D}, T = {T}", *times, wanted, megabytes)
    time_512 = seconds(ours, random_run(512), ("Attn-N",))
    note = "works; the naive form needs the memory named"
    yield row(f"Attn-N, one layer, D = {D}, T = 512", time_512, None, note, memory_512)
    yield _against_the_forward_pass()


def _against_the_forward_pass() -> dict:
    model, text = load_model(), (TEXT * 7)[: len(TEXT) * 6 + 30]
    inputs, run = encode(model, text), trace(model, text)

    def forward():
        with torch.no_grad():
            model.network(**inputs)

    T = len(run.tokens)
    what = f"MiniLM, T = {T}: five stages and ratios, all layers, against its forward pass"
    return row(what, seconds(ours, run, STAGES), seconds(forward), "≥ 0.4")
