"""What the algebra is tried on: a block by hand, and blocks, maps and models that hypothesis draws.

A draw is kept small, so that a failure can be read.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import torch
import transformers
from hypothesis import strategies as st

from helpers import Model, Trace
from helpers.tracing import Block
from oracle import tiny_models

# --- blocks and runs -------------------------------------------------------------------------


def by_hand(**changes) -> Block:
    """Three tokens a, b, c; one head, D = d = 2, no LayerNorm; f(x) = (x₂, x₁ + 1).

    f(a) = (0, 2), f(b) = (2, 1), f(c) = (2, 3). Attention reads at a (1, 1.5), at b (2, 2), at c
    (1.5, 2.25); with b_O and the residual a ends at (5, 1.5), b at (5, 4), c at (6.5, 4.25).
    """
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0], [2.0, 2.0]])
    values = {
        "attention": torch.tensor([[[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.25, 0.25, 0.5]]]),
        "x": x,
        "residual": x,
        "W_V": torch.tensor([[[0.0, 1.0], [1.0, 0.0]]]),
        "b_V": torch.tensor([[0.0, 1.0]]),
        "W_O": torch.eye(2)[None],
        "b_O": torch.tensor([3.0, 0.0]),
        "gamma": None,
        "beta": None,
        "eps": None,
        "output": torch.tensor([[5, 1.5], [5, 4], [6.5, 4.25]]),
    }
    return Block(**(values | changes))


def run_of(*blocks: Block) -> Trace:
    """Blocks as layers of a run."""
    T = len(blocks[0].residual)
    attention = torch.stack([block.attention for block in blocks])
    none, words = [None] * T, ([0] * T, [0] * T)
    return Trace(["a"] * T, ["a"] * T, [0] * T, none, none, [0] * T, words, attention, list(blocks))


def changed(run: Trace, change: Callable[[Block], Block] = replace) -> Trace:
    """The same run, each block replaced by change(block); by default copies, asked nothing yet."""
    blocks = [change(block) for block in run.blocks]
    return replace(run, blocks=blocks, attention=torch.stack([b.attention for b in blocks]))


@st.composite
def blocks(draw) -> Block:
    """A post-LN block with a second LayerNorm, in float64; half of its entries may be zeros."""
    H, T, D = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(2, 4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    size, sparse = 10.0 ** draw(st.integers(-3, 3)), draw(st.booleans())

    def random(*shape):
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
        return size * values * ((torch.rand(shape, generator=generator) > 0.5) if sparse else 1)

    alpha = (random(H, T, T) / size * 10.0 ** draw(st.integers(-1, 2))).softmax(dim=-1)
    second = {"before_second_norm": random(T, D), "second_gamma": random(D), "second_eps": 1e-5}
    return replace(tiny_models.random_block(alpha, D, random), **second)


# --- maps ------------------------------------------------------------------------------------


@st.composite
def stacks(draw, tokens: int = 5) -> torch.Tensor:
    """(L, T, T) float64, small whole numbers: zeros and ties are frequent, no row is empty."""
    L, T = draw(st.integers(1, 4)), draw(st.integers(1, tokens))
    row = st.lists(st.integers(0, 6), min_size=T, max_size=T).filter(any)
    rows = draw(st.lists(row, min_size=L * T, max_size=L * T))
    return torch.tensor(rows, dtype=torch.float64).reshape(L, T, T)


@st.composite
def stacks_and_residuals(draw, tokens: int = 5) -> tuple[torch.Tensor, float | torch.Tensor]:
    """A stack with a number, or with a tensor (L, T) of what each position keeps."""
    maps = draw(stacks(tokens))
    share = st.sampled_from([0.0, 0.25, 0.5, 0.8, 1.0])
    if draw(st.booleans()):
        return maps, draw(share)
    L, T, _ = maps.shape
    kept = draw(st.lists(share, min_size=L * T, max_size=L * T))
    return maps, torch.tensor(kept, dtype=torch.float64).reshape(L, T)


# --- models and texts ------------------------------------------------------------------------

# What tokenizers and labels stumble over.
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
_PIECES = st.sampled_from((*tiny_models.WORDS, *tiny_models.MARKS, *ODD))
_tokenizer = cache(tiny_models.tokenizer)


@st.composite
def texts(draw) -> str:
    """A text that leaves a token in every vocabulary, of one token in some of them."""
    pieces = st.lists(st.tuples(st.sampled_from((" ", "")), _PIECES), max_size=4)
    return draw(st.sampled_from(("key", "she"))) + "".join(sum(draw(pieces), ()))


@st.composite
def models(draw) -> Model:
    """One of the tiny architectures with sizes and weights of its own."""
    # Some have sizes that hang on others.
    fixed = {"falcon, groups", "gpt_neo", "gptj", "phi"}
    name = draw(st.sampled_from(sorted(set(tiny_models.ARCHITECTURES) - fixed)))
    heads, layers = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    groups = draw(st.sampled_from([n for n in range(1, heads + 1) if heads % n == 0]))
    own = tiny_models.ARCHITECTURES[name]
    sizes = dict.fromkeys(("num_hidden_layers", "num_layers", "num_decoder_layers"), layers)
    sizes |= dict.fromkeys(("encoder_layers", "decoder_layers"), layers)
    sizes |= dict.fromkeys(
        ("num_attention_heads", "encoder_attention_heads", "decoder_attention_heads"), heads
    )
    sizes |= {
        "hidden_size": heads * draw(st.sampled_from((4, 6, 8))),
        "num_key_value_heads": groups,
    }
    sizes |= {key: own.get(key, [])[:layers] for key in ("layer_types", "no_rope_layers")}
    known = {*tiny_models.SIZES, *own}
    words = _tokenizer(name.partition(",")[0])
    config = tiny_models.config(name, words, **{k: v for k, v in sizes.items() if k in known})
    network = transformers.AutoModel.from_config(config, attn_implementation="eager").eval()
    tiny_models.randomise(network, draw(st.integers(0, 999)))
    return Model(network, words, f"{name}, random")
