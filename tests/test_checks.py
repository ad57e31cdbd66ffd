"""Every exercise: the untouched stub gets guidance, the solution passes, mistakes get their hint."""

import re
from pathlib import Path

import nbformat
import pytest
import torch
from exercises import said

from helpers import (
    checks,
    expansion_rate,
    mixing_ratio,
    rollout,
    stage_map,
    transformed_norms,
    weighted_norms,
)
from helpers.parts import transform
from helpers.rollout import with_residual


def scores(run, layer, head):
    """The scores of a head before the softmax, up to a constant in each row."""
    return run.attention[layer, head].log()


def lesson_01(run, model):
    A = run.attention
    mean = A.mean(dim=1)
    d = run.blocks[1].W_V.shape[-1]
    yield (
        checks.check_head_weights,
        (run, 1, 8),
        A[1, 8],
        {
            "exchanged": A[1, 8].T,
            "square root": (scores(run, 1, 8) * d**0.5).softmax(dim=-1),
            "over the queries": scores(run, 1, 8).softmax(dim=0),
            "another head": A[1, 9],
        },
    )
    yield (
        checks.check_cls_share,
        (run,),
        mean[:, :, 0].mean(dim=-1),
        {
            "a row": mean[:, 0].mean(dim=-1),
            "sum over the queries": mean[:, :, 0].sum(dim=-1),
            "sum over heads": A[..., 0].sum(dim=1).mean(dim=-1),
            "to itself": mean[:, 0, 0],
        },
    )
    member = torch.tensor([token in ",." for token in run.tokens])
    yield (
        checks.check_punctuation_share,
        (run,),
        mean[..., member].sum(dim=-1).mean(dim=-1),
        {
            "rows": mean[:, member].sum(dim=1).mean(dim=-1),
            "mean over the marks": mean[..., member].mean(dim=(1, 2)),
            "sum over the queries": mean[..., member].sum(dim=(1, 2)),
            "sum over heads": A[..., member].sum(dim=(1, 3)).mean(dim=-1),
        },
    )
    strongest = {
        offset: divmod(int(A.diagonal(offset, -2, -1).mean(dim=-1).argmax()), A.shape[1])
        for offset in (-2, -1, 2)
    }
    layer, head = strongest[-2]
    yield (
        checks.check_two_back_head,
        (run,),
        (layer, head),
        {
            "two places after": strongest[2],
            "one place before": strongest[-1],
            "from 0": (layer + 1, head + 1),
            "first the layer": (head, layer),
        },
    )


def lesson_02(run, model):
    block = run.blocks[2]
    norms, f = weighted_norms(run)[2], transform(block)
    maps, weights = stage_map(run, "Attn-N"), stage_map(run, "Attn-W")
    member = torch.tensor([token in ",." for token in run.tokens])
    share = weighted_norms(run) / weighted_norms(run).sum(dim=-1, keepdim=True)
    bias = torch.einsum("he,hed->hd", block.b_V, block.W_O)
    values = torch.einsum("sd,hde->hse", block.x, block.W_V) + block.b_V[:, None]
    yield (
        checks.check_transformed_norms,
        (run, 2),
        transformed_norms(run)[2],
        {
            "W_O is missing": values.norm(dim=-1),
            "b_V is missing": (f - bias).norm(dim=-1).T,
            "b_O is inside": (f + block.b_O).norm(dim=-1).T,
            "turned": transformed_norms(run)[2].T,
        },
    )
    yield (
        checks.check_attn_n,
        (run, 2),
        maps[2],
        {
            "sum of the heads' norms": norms.sum(dim=0),
            "mean of the heads' norms": norms.mean(dim=0),
            "exchanged": maps[2].T,
            "divided by its sum": maps[2] / maps[2].sum(dim=-1, keepdim=True),
        },
    )
    right = (maps[..., member].sum(dim=-1) / maps.sum(dim=-1)).mean(dim=-1)
    yield (
        checks.check_norm_share,
        (run, "punctuation"),
        right,
        {
            "share of weight": weights[..., member].sum(dim=-1).mean(dim=-1),
            "divide each row": maps[..., member].sum(dim=(1, 2)) / maps.sum(dim=(1, 2)),
            "not divided": maps[..., member].sum(dim=-1).mean(dim=-1),
            "add them up": right / member.sum(),
        },
    )
    gap = (run.attention - share).abs()
    yield (
        checks.check_disagreement,
        (run,),
        0.5 * gap.sum(dim=-1).mean(dim=-1),
        {
            "half": gap.sum(dim=-1).mean(dim=-1),
            "add over the keys": 0.5 * gap.mean(dim=(-2, -1)),
        },
    )


def lesson_04(run, model):
    block = run.blocks[4]
    ratio = mixing_ratio(run, "AttnRes-N")[4]
    norms = stage_map(run, "AttnRes-N")[4]

    def s(y):
        return (y.var(dim=-1, correction=0, keepdim=True) + block.eps).sqrt()

    def centred(v):
        return v - v.mean(dim=-1, keepdim=True)

    yield (
        checks.check_layernorm_part,
        (run, 4),
        lambda v, y, g, e: centred(v) / s(y) * g,
        {
            "comes from the part": lambda v, y, g, e: centred(v) / s(v) * g,
            "not centred": lambda v, y, g, e: v / s(y) * g,
            "mean of y": lambda v, y, g, e: (v - y.mean(dim=-1, keepdim=True)) / s(y) * g,
            "γ is missing": lambda v, y, g, e: centred(v) / s(y),
            "raises": lambda v, y: v,
        },
    )
    yield (
        checks.check_block_output,
        (run, 4),
        block.output,
        {
            "β is missing": block.output - block.beta,
            "γ is missing": (block.output - block.beta) / block.gamma + block.beta,
        },
    )
    yield (
        checks.check_mixing_ratio,
        (run, 4),
        ratio,
        {
            "sums of norms": 1 - norms.diagonal() / norms.sum(dim=-1),
            "that is kept": 1 - ratio,
            "residual is missing": mixing_ratio(run, "Attn-N")[4],
            "AttnResLn-N": mixing_ratio(run, "AttnResLn-N")[4],
        },
    )
    rate = expansion_rate(model)[0]
    yield (
        checks.check_expansion_rate,
        (model, 0),
        rate,
        {
            "D + 1": rate * 385**0.5,
            "square root": rate**2,
        },
    )


def lesson_05(run, model):
    A = stage_map(run, "Attn-W")
    r = mixing_ratio(run, "AttnResLn-N")
    identity = torch.eye(A.shape[-1])
    yield (
        checks.check_rollout,
        (run, 0.3),
        rollout(A, 0.3),
        {
            "identity is missing": rollout(A, 0),
            "not of the map": rollout(A, 0.7),
            "single layers": with_residual(A, 0.3),
            "not only the last": rollout(A, 0.3)[-1],
            "not 0.5": rollout(A, 0.5),
        },
    )
    yield (
        checks.check_measured_residual,
        (run,),
        with_residual(A, 1 - r),
        {
            "counted twice": r[..., None] * A + torch.diag_embed(1 - r),
            "exchanged": with_residual(A, r),
            "divided by their sum": r[..., None] * A * (1 - identity) + torch.diag_embed(1 - r),
        },
    )
    yield checks.check_takeover, (run, 2), 2, {"from 1": 1, "not the last": 6}


LESSONS = (lesson_01, lesson_02, lesson_04, lesson_05)


@pytest.mark.parametrize("lesson", LESSONS)
def test_the_solution_passes_and_each_mistake_gets_its_hint(capsys, run, minilm, lesson):
    for check, arguments, right, mistakes in lesson(run, minilm):
        assert said(capsys, check, right, *arguments).startswith("Correct"), check.__name__
        for hint, wrong in mistakes.items():
            answer = said(capsys, check, wrong, *arguments)
            assert answer.startswith("Not yet"), (check.__name__, hint)
            assert hint in answer, (check.__name__, hint, answer)


@pytest.mark.parametrize("lesson", LESSONS)
@pytest.mark.parametrize("answer", [None, ..., "text", 3.5, [], (1,), torch.tensor(float("nan"))])
def test_nonsense_gets_one_line_of_guidance(capsys, run, minilm, lesson, answer):
    for check, arguments, _, _ in lesson(run, minilm):
        answer_line = said(capsys, check, answer, *arguments)
        assert answer_line.startswith("Not yet"), check.__name__
        assert "\n" not in answer_line


def test_numbers_that_are_wrong_in_no_known_way_get_the_size_of_the_gap(capsys, run):
    wrong = run.attention[1, 8] + 0.25
    assert "0.25" in said(capsys, checks.check_head_weights, wrong, run, 1, 8)
    wrong[0, 0] = float("nan")
    assert "NaN" in said(capsys, checks.check_head_weights, wrong, run, 1, 8)


def test_every_check_is_used_in_a_lesson_and_tested_here():
    folder = Path(__file__).parents[1] / "notebooks"
    cells = [cell for p in folder.glob("*.ipynb") for cell in nbformat.read(p, 4).cells]
    used = set(re.findall(r"\bcheck_\w+", "\n".join(cell.source for cell in cells)))
    assert set(checks.__all__) <= used
    tests = "\n".join(path.read_text() for path in Path(__file__).parent.glob("test_checks*.py"))
    assert set(re.findall(r"\bcheck_\w+", tests)) >= set(checks.__all__) - {"check_environment"}
