"""Every family of the README's table: the same analyses, exact, on the unmodified classes.

The table is read, so what it says is what is tested. Each block is compared with what `cut` takes
out of the model by other means, and then with the naive reference. Errors are relative to the
largest value. In float32 3e-7 was seen; 2e-6 is allowed, for other processors.
"""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from oracle import compare, cut, reference
from oracle.compare import refused
from oracle.tiny_models import ARCHITECTURES

from helpers import (
    STAGES,
    anatomy,
    expansion_rate,
    flow,
    globenc,
    mixing_ratio,
    reconstruction_error,
    rollout,
    stage_map,
    trace,
    transformed_norms,
    value_zeroing,
    weighted_norms,
)

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
KINDS = ("encoder", "decoder", "cross")
TEXT, TARGET = "she saw the keys.", "on the table."
TOLERANCE = 2e-6
close = partial(compare.close, tolerance=TOLERANCE)


def _table() -> dict[tuple[str, str | None], dict[str, str]]:
    """The README's rows, by the name of a tiny architecture and, if it has three, its attention."""
    section = README.partition("## Other models")[2].partition("\nPopular families")[0]
    head, *lines = re.findall(r"^\| (.+) \|$", section, re.MULTILINE)
    rows = {}
    for line in lines:
        cells = dict(zip(head.split(" | "), line.split(" | "), strict=True))
        for family in re.findall(r"`(.+?)`", cells["family"]):
            more = cells["family"].rpartition("`")[2].removeprefix(", ")
            kind = more if more in KINDS else None
            rows[f"{family}, {more}" if more and not kind else family, kind] = cells
    return rows


TABLE = _table()
# A variant without a row of its own belongs to the row of its family.
CASES = {
    (name, kind): TABLE.get((name, kind)) or TABLE.get((name.partition(",")[0], kind))
    for name in ARCHITECTURES
    for kind in (None, *KINDS)
    if (name, kind) in TABLE or (name.partition(",")[0], kind) in TABLE
}


@pytest.fixture(scope="module", params=CASES, ids=lambda case: " ".join(filter(None, case)))
def case(request):
    return request.param


@pytest.fixture(scope="module")
def row(case):
    return CASES[case]


@pytest.fixture(scope="module")
def model(case, tiny):
    return tiny(case[0])


@pytest.fixture(scope="module")
def target(model):
    return TARGET if model.network.config.is_encoder_decoder else None


@pytest.fixture(scope="module")
def run(case, model, target):
    return trace(model, TEXT, target=target, attention=case[1])


@pytest.fixture(scope="module")
def cuts(case, model, target):
    ids = cut.inputs(model, TEXT, target=target)
    return cut.blocks(model.network, cut.place(*case), ids, case[1])


@pytest.fixture(scope="module")
def naive(cuts):
    return [reference.Parts(**block.parts) for block in cuts]


# --- the table -------------------------------------------------------------------------------


def test_the_table_and_the_tiny_models_name_every_family_that_is_supported():
    assert {name.partition(",")[0] for name, _ in TABLE} == set(anatomy.FAMILIES)
    assert {name for name, _ in CASES} == set(ARCHITECTURES)
    assert set(TABLE) <= set(CASES)
    two_sided = {name for name, kind in CASES if kind}
    assert all((name, kind) in CASES for name in two_sided for kind in KINDS)


def test_the_stages_are_those_of_the_table(run, row):
    last = re.match(r"`([\w-]+)`", row["last stage"])[1]
    assert run.stages == STAGES[: STAGES.index(last) + 1]
    for stage in STAGES[len(run.stages) :]:
        for function in (stage_map, mixing_ratio):
            text = refused(partial(function, run, stage), f"{stage!r} does not exist")
            assert ", ".join(run.stages) in text
    if "globenc" not in row["last stage"]:
        refused(lambda: globenc(run), "globenc does not exist")


def test_the_order_of_the_layernorm_is_that_of_the_table(case, run, row):
    post = row["LayerNorm"].startswith("post-LN")
    assert post != row["LayerNorm"].startswith("pre-LN")
    assert all((block.gamma is not None) == post for block in run.blocks)
    assert ("one after attention" in row["LayerNorm"]) == (cut.place(*case).inner_norm is not None)


OUTPUTS = {  # what the table says, and where `cut` finds that tensor
    r"output of the LayerNorm after (cross-|self-)?attention": "after norm",
    r"input of the (Layer|RMS)Norm before (the feed-forward|cross-attention)": "before a norm",
    r"attention \+ x, ": "after project",  # not a tensor of the model
    r"input of the feed-forward network": "before mlp",
    r"output of the layer's first sublayer": "before layer.1",
    r"output of the layer's second sublayer": "before layer.2",
}


def _where(place: cut.Place) -> str:
    if place.end.startswith("<"):
        return (
            "before a norm"
            if re.search("norm|ln", place.end, re.IGNORECASE)
            else f"before {place.end[1:]}"
        )
    return {place.norm: "after norm", place.project: "after project"}[place.end]


def test_the_output_is_the_tensor_that_the_table_names(case, run, row, cuts):
    said = row["`.output` of a block"]
    (place,) = [place for text, place in OUTPUTS.items() if re.match(text, said)]
    assert place == _where(cut.place(*case))
    for block, own in zip(run.blocks, cuts, strict=True):
        added = block.residual if place == "after project" else 0
        assert torch.equal(block.output, own.output + added)


# --- a snapshot -------------------------------------------------------------------------------


def numbers(run) -> dict[str, torch.Tensor]:
    """All measures of a run."""
    found = {"norms": transformed_norms(run), "error": reconstruction_error(run)}
    found |= {stage: stage_map(run, stage) for stage in run.stages}
    if not run.is_cross:
        found |= {f"ratio {stage}": mixing_ratio(run, stage) for stage in run.stages}
    if run.blocks[0].second_gamma is not None and not run.is_cross:
        found["globenc"] = globenc(run)
    return found


def tensors(run) -> list[torch.Tensor]:
    return [v for block in run.blocks for v in vars(block).values() if isinstance(v, torch.Tensor)]


def test_later_changes_of_the_network_do_not_reach_a_run(case, model, target):
    changed = model.to("cpu")
    run = trace(changed, TEXT, target=target, attention=case[1])
    before = [tensor.clone() for tensor in tensors(run)]
    asked = stage_map(run, "Attn-N")
    for parameter in changed.network.parameters():
        parameter.data *= 1.5
    changed.network.load_state_dict({k: v + 1 for k, v in changed.network.state_dict().items()})
    assert all(map(torch.equal, tensors(run), before))
    assert torch.equal(stage_map(run, "Attn-N"), asked)
    assert all(map(torch.equal, numbers(run).values(), numbers(replace(run)).values()))


def test_a_change_of_one_tensor_changes_no_other(case, model, target):
    """But `run.attention` and what a block calls so are one."""
    run = trace(model, TEXT, target=target, attention=case[1])
    own = {run.attention.untyped_storage().data_ptr(): "attention"}
    network = {p.untyped_storage().data_ptr() for p in model.network.parameters()}
    for n, block in enumerate(run.blocks):
        assert block.attention.data_ptr() == run.attention[n].data_ptr()
        for name, tensor in vars(block).items():
            if isinstance(tensor, torch.Tensor) and name != "attention":
                place = tensor.untyped_storage().data_ptr()
                assert place not in network and place not in own, (n, name, own.get(place))
                own[place] = f"{n} {name}"


def test_an_edit_of_the_attention_reaches_every_measure_in_any_order(case, model, target):
    edits = {
        "in place": lambda weights: weights[:, :2].zero_(),
        ".data": lambda weights: weights.data[:, :2].zero_(),
        "numpy": lambda weights: weights.numpy()[:, :2].fill(0),
    }
    expected = None
    for edit in edits.values():
        for ask_before in (False, True):
            run = trace(model, TEXT, target=target, attention=case[1])
            if ask_before:
                numbers(run)
            edit(run.attention)
            found = numbers(run)
            expected = expected or found
            assert all(map(torch.equal, found.values(), expected.values()))
    fresh = trace(model, TEXT, target=target, attention=case[1])
    blocks = [replace(block, attention=block.attention.clone()) for block in fresh.blocks]
    for block in blocks:
        block.attention[:2] = 0
    attention = torch.stack([block.attention for block in blocks])
    by_hand = numbers(replace(fresh, blocks=blocks, attention=attention))
    assert all(map(torch.equal, by_hand.values(), expected.values()))
    assert not torch.equal(numbers(fresh)["Attn-N"], expected["Attn-N"])


# --- against the naive reference -------------------------------------------------------------


def test_what_is_read(run, naive):
    assert len(run.blocks) == len(naive)
    for block, alpha, parts in zip(run.blocks, run.attention, naive, strict=True):
        assert torch.equal(block.attention, alpha)
        for name in ("attention", "x", "residual"):
            assert torch.equal(getattr(block, name).double(), getattr(parts, name)), name
        for name in ("W_V", "b_V", "W_O", "b_O"):
            expected = getattr(parts, name)
            torch.testing.assert_close(getattr(block, name).double(), expected, rtol=0, atol=1e-12)
    sums = run.attention.sum(dim=-1)
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-6)
    assert run.attention.min() >= 0


def test_the_parts_add_up_to_the_model_s_own_output(run, naive):
    errors = reconstruction_error(run)
    assert errors.shape == (len(run.blocks),)
    assert (errors >= 0).all() and errors.max() < 1e-5
    for block, parts in zip(run.blocks, naive, strict=True):
        close(block.output, reference.block_output(parts))


def test_in_float64_nothing_is_left(case, model, target):
    """Where the model itself stays in float64: an RMSNorm is computed in float32 by its class."""
    run = trace(model.double(), TEXT, target=target, attention=case[1])
    inner = run.blocks[0].inner_gamma is not None
    assert reconstruction_error(run).max() < (1e-6 if inner else 1e-12)


def test_norms_and_maps(run, naive):
    close(transformed_norms(run), torch.stack([reference.transformed_norms(p) for p in naive]))
    close(weighted_norms(run), torch.stack([reference.weighted_norms(p) for p in naive]))
    for stage in run.stages:
        expected = torch.stack([reference.stage_map(parts, stage) for parts in naive])
        close(stage_map(run, stage), expected)


def test_mixing_ratios(case, run, naive):
    for stage in run.stages:
        if case[1] == "cross":
            refused(partial(mixing_ratio, run, stage), "mixing ratio does not exist")
        else:
            expected = torch.stack([reference.mixing_ratio(parts, stage) for parts in naive])
            close(mixing_ratio(run, stage), expected)


def test_globenc(run, row, cuts, naive):
    if "globenc" not in row["last stage"]:
        pytest.skip("the table says that it does not exist")
    blocks = zip(naive, cuts, strict=True)
    vectors = [reference.whole_layer_vectors(parts, *own.second) for parts, own in blocks]
    close(globenc(run), torch.stack(vectors).norm(dim=-1))


def test_expansion_rate(case, model, naive):
    expected = [reference.expansion_rate(p.W_V, p.W_O, p.b_V, p.b_O) for p in naive]
    close(expansion_rate(model, case[1]), torch.tensor(expected))


def test_value_zeroing(case, model):
    if case[1] in ("decoder", "cross"):
        pytest.skip("the table says that it does not exist")
    ids = cut.inputs(model, "she saw.", target="on" if case[1] else None)
    expected = cut.value_zeroing(model.network, cut.place(*case), ids)
    close(value_zeroing(model, "she saw."), expected)


def test_rollout_and_flow_of_every_map(case, run):
    """Flow from one position to one token is compared: the oracle is slow."""
    for stage in run.stages:
        maps, residual = stage_map(run, stage), 0.0 if "Res" in stage else 0.5
        if case[1] == "cross":
            refused(partial(rollout, maps), "shape (L, T, T)")
            refused(partial(flow, maps), "shape (L, T, T)")
            continue
        compare.close(rollout(maps, residual), reference.rollout(maps.double(), residual))
        T = maps.shape[-1]
        expected = reference.max_flow(maps.double(), len(maps), T - 1, 0, residual)
        found = flow(maps, residual, query=T - 1, normalize=False)
        assert found[0].item() == pytest.approx(expected, abs=1e-5)
        torch.testing.assert_close(flow(maps, residual).sum(dim=-1), torch.ones(T))


# --- the tiny models leave no term out --------------------------------------------------------


def _wrong(block):
    """The block with one thing wrong at a time."""
    turned = [*range(1, len(block.W_O)), 0]
    yield "heads of W_O", replace(block, W_O=block.W_O[turned])
    yield "heads' attention", replace(block, attention=block.attention[turned])
    for name in ("residual", "b_V", "b_O", "beta"):
        value = getattr(block, name)
        if value is not None and value.any():
            yield name, replace(block, **{name: torch.zeros_like(value)})
    if block.gamma is not None:
        yield "gamma", replace(block, gamma=torch.ones_like(block.gamma))
    if block.inner_gamma is not None:
        yield "inner gamma", replace(block, inner_gamma=block.inner_gamma - 1)
        yield "inner eps", replace(block, inner_eps=0.0)


def test_the_error_notices_what_is_wrong(run):
    """In one layer at least: deep in a random model the tokens are nearly equal."""
    for name in dict(_wrong(run.blocks[0])):
        blocks = [dict(_wrong(block))[name] for block in run.blocks]
        attention = torch.stack([block.attention for block in blocks])
        changed = replace(run, blocks=blocks, attention=attention)
        assert reconstruction_error(changed).max() > 1e-3, name


WITHOUT_BIAS = {"qwen2": "O", "qwen2_moe": "O", "stablelm": "O", "gpt_neo": "V"}
WITHOUT_BIAS |= dict.fromkeys(("t5", "mt5", "llama, no biases", "mistral", "mixtral"), "VO")
WITHOUT_BIAS |= dict.fromkeys(("falcon, groups", "falcon, sequential", "gptj", "olmo3"), "VO")
WITHOUT_BIAS |= dict.fromkeys(("phi3", "stablelm, parallel"), "VO")


def test_biases_are_there_or_count_as_zero(case, run):
    without = WITHOUT_BIAS.get(case[0], "")
    for block in run.blocks:
        assert bool(block.b_V.any()) == ("V" not in without)
        assert bool(block.b_O.any()) == ("O" not in without)


@pytest.mark.parametrize(
    ("name", "reach", "ahead"),
    [("mistral", 2, 0), ("gemma2", 2, 0), ("gemma3_text", 2, 0), ("modernbert", 2, 2)],
)
def test_a_local_layer_hides_what_is_far_away(tiny, name, reach, ahead):
    run = trace(tiny(name), TEXT)
    T = len(run.tokens)
    distance = torch.arange(T)[:, None] - torch.arange(T)
    near = (distance <= reach) & (distance >= -ahead)
    assert T > 2 * reach + 2 and not near.all()
    for number, alpha in enumerate(run.attention):
        seen = near if name == "mistral" or number != 1 else (distance >= 0) | (ahead > 0)
        assert torch.equal(alpha > 0, seen.expand_as(alpha))


def test_heads_need_not_be_as_wide_as_they_are_many(tiny):
    for name, groups in (("gemma", 1), ("gemma2", 2), ("qwen3", 1)):
        block = trace(tiny(name), TEXT).blocks[0]
        assert (block.W_V.shape, block.W_O.shape) == ((4, 24, 8), (4, 8, 24))
        assert len({tuple(W.flatten().tolist()) for W in block.W_V}) == groups
    assert trace(tiny("t5"), TEXT, attention="encoder").blocks[0].W_V.shape == (4, 24, 8)
    llama = trace(tiny("llama"), TEXT).blocks[0]
    assert torch.equal(llama.W_V[0], llama.W_V[1]) and torch.equal(llama.b_V[2], llama.b_V[3])
    assert not torch.equal(llama.W_V[1], llama.W_V[2])


def test_shared_layers_are_read_once_per_call(tiny):
    assert len(trace(tiny("albert"), TEXT).blocks) == 3
    blocks = trace(tiny("albert, 2 groups of 2"), TEXT).blocks
    first = [next(n for n, b in enumerate(blocks) if torch.equal(b.W_V, c.W_V)) for c in blocks]
    assert first == [0, 1, 0, 1, 4, 5], "three calls: the first group twice, the second once"
    assert not torch.equal(blocks[0].x, blocks[2].x)
