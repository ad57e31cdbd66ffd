"""What must hold in every model of every family and for every text: random sizes, random weights.

The other files compare chosen cases with a reference. Here hypothesis looks for a case, among many
small ones, in which a promise of the docstrings does not hold. conftest fixes how it searches.
"""

from functools import cache
from typing import get_args

import pytest
import tiny_models
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import (
    STAGES,
    Model,
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
from helpers.anatomy import Attention

ODD = (
    "é",
    "你",
    "🙂",
    "ł",
    "Ġ",
    "▁",
    "##",
    "\u200b",
    "\x00",
    "\n",
    "  ",
    "ﬁ",
    "[MASK]",
    "</s>",
    "A",
)
PIECES = st.sampled_from((*tiny_models.WORDS, *tiny_models.MARKS, *ODD))
tokenizer = cache(tiny_models.tokenizer)


FEW = st.integers(0, 4)


@st.composite
def texts(draw) -> str:
    """A text that leaves a token in every vocabulary, of one token in some of them."""
    first = draw(st.sampled_from(("key", "she")))
    return first + "".join(
        draw(st.sampled_from((" ", ""))) + draw(PIECES) for _ in range(draw(FEW))
    )


@st.composite
def cases(draw):
    """A model with its family, sizes and weights drawn, and which of its attentions is read."""
    name = draw(st.sampled_from(sorted(tiny_models.ARCHITECTURES)))
    heads, layers = draw(st.sampled_from((1, 2, 3, 4))), draw(st.integers(1, 3))
    width = draw(st.sampled_from((4, 6, 8)))
    groups = draw(st.sampled_from([n for n in range(1, heads + 1) if heads % n == 0]))
    words = tokenizer(name.partition(",")[0])
    model = _model(name, words, heads, groups, width, layers, draw(st.integers(0, 999)))
    two_sided = model.network.config.is_encoder_decoder
    return model, draw(st.sampled_from(get_args(Attention) if two_sided else (None,)))


def _model(name, words, heads: int, groups: int, width: int, layers: int, seed: int) -> Model:
    """One of the tiny architectures with other sizes; some widths of a head are its own."""
    own = tiny_models.ARCHITECTURES[name]
    sizes = {
        "hidden_size": heads * width,
        "num_hidden_layers": layers,
        "num_layers": layers,
        "num_decoder_layers": layers,
        "encoder_layers": layers,
        "decoder_layers": layers,
        "num_attention_heads": heads,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "num_key_value_heads": groups,
        "layer_types": own.get("layer_types", [])[:layers],
        "no_rope_layers": own.get("no_rope_layers", [])[:layers],
    }
    known = {*tiny_models.SIZES, *own}
    config = tiny_models.config(name, words, **{k: v for k, v in sizes.items() if k in known})
    network = transformers.AutoModel.from_config(config, attn_implementation="eager").eval()
    tiny_models.randomise(network, seed)
    return Model(f"{name}, random", network, words)


def _check_shares(rows: torch.Tensor, shape: tuple, may_be_empty: bool = False) -> None:
    assert rows.shape == shape and (rows >= 0).all()
    sums = rows.sum(dim=-1)
    wrong = (sums - 1).abs() > 1e-5
    assert not (wrong & (sums != 0) if may_be_empty else wrong).any()


@settings(max_examples=250)
@given(cases(), texts(), st.none() | texts())
def test_what_every_run_promises(case, text, second):
    """`second` is the second segment, or what an encoder-decoder is fed."""
    model, kind = case
    if kind is None:
        run = trace(model, text, second)
    else:
        run = trace(model, text, target=second or "she", attention=kind)
    L, H, T, S = run.attention.shape
    assert (len(run.blocks), len(run.tokens), len(run.ids), len(run.keys)) == (L, T, T, S)
    assert all(run.tokens) and (T == S or kind == "cross")
    _check_shares(run.attention, (L, H, T, S))
    errors, rates = reconstruction_error(run), expansion_rate(model, kind)
    assert errors.shape == rates.shape == (L,)
    assert (errors >= 0).all() and errors.max() < 1e-5 and (rates > 0).all()
    assert transformed_norms(run).shape == (L, H, S) and weighted_norms(run).min() >= 0
    assert run.stages[:2] == STAGES[:2]
    _check_shares(stage_map(run, "Attn-W"), (L, T, S))
    for stage in run.stages:
        maps = stage_map(run, stage)
        assert maps.shape == (L, T, S) and maps.isfinite().all() and (maps >= 0).all()
        if kind == "cross":
            continue
        ratios = mixing_ratio(run, stage)
        assert ratios.shape == (L, T) and (ratios >= 0).all() and (ratios <= 1).all()
        shares = rollout(maps, 0.0 if "Res" in stage else 0.5)
        _check_shares(shares, (L, T, T))


@settings(max_examples=80)
@given(cases(), texts(), st.data())
def test_flow_lies_above_rollout_and_zeroed_values_are_shares(case, text, data):
    model, kind = case
    kind = kind and "encoder"
    run = trace(model, text, attention=kind)
    L, _, T, _ = run.attention.shape
    stage = data.draw(st.sampled_from(run.stages))
    maps, residual = stage_map(run, stage), 1 - mixing_ratio(run, stage)
    _check_shares(flow(maps, residual), (T, T))
    assert (flow(maps, residual, normalize=False) >= rollout(maps, residual)[-1] - 1e-6).all()
    _check_shares(value_zeroing(model, text), (L, T, T), may_be_empty=True)
    if "AttnResLn-N" in run.stages:
        whole = globenc(run)
        assert whole.shape == (L, T, T) and whole.isfinite().all() and (whole >= 0).all()
        _check_shares(rollout(whole, 0), (L, T, T))
    else:
        with pytest.raises(ValueError, match="globenc does not exist"):
            globenc(run)
