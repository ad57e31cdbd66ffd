"""GlobEnc: parts that reach the end of the layer, and add up to it.

Tolerances are relative to the largest value: 1e-5 in float32, 1e-10 in float64.
"""

import copy
import math
from dataclasses import replace

import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import FAMILIES, POSITIONS, random_block, save_marian

from helpers import STAGES, Model, Trace, globenc, load_model, rollout, stage_map, trace
from helpers.trace import Block

POST_LN = FAMILIES[:-1]
SENTENCE = "The keys, she saw them."


@pytest.fixture(scope="module", params=("minilm", *POST_LN))
def model(request, minilm, tiny):
    return minilm if request.param == "minilm" else tiny(request.param)


@pytest.fixture(scope="module")
def run_(model):
    return trace(model, SENTENCE)


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    folder = tmp_path_factory.mktemp("marian")
    save_marian(folder)
    return load_model(folder)


def _close(found, expected, tolerance=1e-5):
    assert found.shape == expected.shape
    assert torch.isfinite(found).all()
    difference = (found.double() - expected.double()).abs().max()
    assert difference <= tolerance * expected.abs().max(), difference / expected.abs().max()


def _double(model: Model) -> Model:
    return Model(model.name, copy.deepcopy(model.network).double(), model.tokenizer)


def _layers(model, text=SENTENCE):
    """Feed-forward output, input of the second LayerNorm, and the layer's output, by own hooks."""
    seen = {"feed_forward": [], "before": [], "output": []}
    layers = model.network.encoder.layer
    handles = []
    for layer in layers:
        keep = layer.output.dense.register_forward_hook
        handles.append(keep(lambda _m, _a, out: seen["feed_forward"].append(out[0])))
        keep = layer.output.LayerNorm.register_forward_pre_hook
        handles.append(keep(lambda _m, args: seen["before"].append(args[0][0])))
        keep = layer.register_forward_hook
        handles.append(
            keep(lambda _m, _a, out: seen["output"].append((out if out.ndim == 3 else out[0])[0]))
        )
    with torch.no_grad():
        model.network(**model.tokenizer(text, return_tensors="pt"))
    for handle in handles:
        handle.remove()
    norms = [layer.output.LayerNorm for layer in layers]
    return [dict(zip(seen, values, strict=True)) for values in zip(*seen.values())], norms


def _terms(block, naive, layer, norm) -> dict[str, torch.Tensor]:
    """All that adds up to the layer's output, (T, D) each; "parts" are the sum of T vectors."""
    s = reference.scale(reference.before_norm(naive, reference.summed_vectors(naive)), naive.eps)
    second_s = reference.scale(layer["before"], norm.eps)

    def second(v):
        return reference.g(v.expand_as(layer["before"]), second_s, norm.weight.detach())

    vectors = reference.whole_layer_vectors(naive, layer["before"], norm.weight.detach(), norm.eps)
    return {
        "parts": vectors.sum(dim=1),
        "b_O": second(reference.g(naive.b_O.expand_as(naive.x), s, naive.gamma)),
        "beta": second(naive.beta),
        "feed-forward": second(layer["feed_forward"]),
        "second beta": norm.bias.detach().expand_as(layer["before"]),
    }


# --- against the model itself ----------------------------------------------------------------


def test_the_parts_add_up_to_the_layer_s_own_output(model, parts):
    """Parts, g₂(g(b_O)), g₂(β), g₂(feed-forward output) and β₂: float64 leaves no room."""
    exact = _double(model)
    layers, norms = _layers(exact)
    for block, layer, norm in zip(trace(exact, SENTENCE).blocks, layers, norms, strict=True):
        terms = _terms(block, parts(block), layer, norm)
        _close(sum(terms.values()), layer["output"], 1e-10)


def test_each_term_is_needed(model, parts):
    layers, norms = _layers(model)
    run = trace(model, SENTENCE)
    for block, layer, norm in zip(run.blocks, layers, norms, strict=True):
        terms = _terms(block, parts(block), layer, norm)
        for name, term in terms.items():
            missing = sum(terms.values()) - term - layer["output"]
            assert missing.abs().max() > 1e-3 * layer["output"].abs().max(), name


def test_the_block_holds_the_model_s_own_tensors(model):
    layers, norms = _layers(model)
    run = trace(model, SENTENCE)
    for block, layer, norm in zip(run.blocks, layers, norms, strict=True):
        assert torch.equal(block.before_second_norm, layer["before"])
        assert torch.equal(block.second_gamma, norm.weight)
        assert block.second_eps == norm.eps


# --- against the naive reference -------------------------------------------------------------


@pytest.mark.parametrize(("exact", "tolerance"), [(False, 1e-5), (True, 1e-10)])
def test_the_map(model, parts, exact, tolerance):
    model = _double(model) if exact else model
    layers, norms = _layers(model)
    run = trace(model, SENTENCE)
    found = globenc(run)
    assert found.dtype == (torch.float64 if exact else torch.float32)
    for map_, block, layer, norm in zip(found, run.blocks, layers, norms, strict=True):
        vectors = reference.whole_layer_vectors(
            parts(block), layer["before"].double(), norm.weight.detach().double(), norm.eps
        )
        _close(map_, vectors.norm(dim=-1), tolerance)


def test_two_segments(tiny, parts):
    run = trace(tiny("bert"), "she saw", pair="the keys")
    block = run.blocks[1]
    vectors = reference.whole_layer_vectors(
        parts(block),
        block.before_second_norm.double(),
        block.second_gamma.double(),
        block.second_eps,
    )
    _close(globenc(run)[1], vectors.norm(dim=-1))


def test_the_encoder_of_an_encoder_decoder(marian, parts):
    run = trace(marian, "Die Schlüssel liegen im Schrank .", attention="encoder")
    norms = [layer.final_layer_norm for layer in marian.network.base_model.encoder.layers]
    for map_, block, norm in zip(globenc(run), run.blocks, norms, strict=True):
        gamma, y = norm.weight.detach().double(), block.before_second_norm.double()
        vectors = reference.whole_layer_vectors(parts(block), y, gamma, norm.eps)
        _close(map_, vectors.norm(dim=-1))


def test_the_whole_model_is_a_plain_product(run_):
    """Rows of each map divided by their sums, then multiplied; no identity is added."""
    product = None
    for map_ in globenc(run_).double():
        shares = map_ / map_.sum(dim=-1, keepdim=True)
        product = shares if product is None else shares @ product
    _close(rollout(globenc(run_), residual=0)[-1], product)


# --- what the definition implies -------------------------------------------------------------


def _with(run: Trace, **change) -> Trace:
    return replace(run, blocks=[replace(block, **change) for block in run.blocks])


def test_the_second_gamma_scales_and_eps_and_the_feed_forward_output_count_in_s(run_):
    whole = globenc(run_)
    blocks = [replace(block, second_gamma=3 * block.second_gamma) for block in run_.blocks]
    _close(globenc(replace(run_, blocks=blocks)), 3 * whole)
    assert (globenc(_with(run_, second_eps=9.0)) < whole).all()
    blocks = [replace(b, before_second_norm=b.before_second_norm + 7) for b in run_.blocks]
    _close(globenc(replace(run_, blocks=blocks)), whole, 1e-4)  # LayerNorm takes the mean away
    blocks = [replace(b, before_second_norm=2 * b.before_second_norm) for b in run_.blocks]
    halved = globenc(replace(_with(run_, second_eps=0.0), blocks=blocks))
    assert (halved < whole).all(), "a larger sum leaves each part a smaller share"


def test_a_second_norm_of_plain_centring_changes_only_the_scale(run_):
    """γ₂ = 1 and s₂ = 1 leave the vectors of AttnResLn-N, centred: never longer."""
    D = run_.blocks[0].x.shape[1]
    signs = torch.ones(D)
    signs[1::2] = -1
    plain = _with(run_, second_gamma=torch.ones(D), second_eps=0.0, before_second_norm=signs)
    before = stage_map(run_, "AttnResLn-N")
    assert (globenc(plain) <= before * (1 + 1e-5)).all()


def test_tokens_in_another_order(tiny):
    """Without positions a model can not tell the order, and the map is permuted with the text."""
    model = tiny("bert")
    network = copy.deepcopy(model.network)
    torch.nn.init.zeros_(network.embeddings.position_embeddings.weight)
    model = Model("no positions", network, model.tokenizer)
    first, second = (globenc(trace(model, text)) for text in ("she saw keys", "keys she saw"))
    order = [0, 2, 3, 1, 4]  # [CLS] she saw keys [SEP]: where each stands in the second text
    _close(second[:, order][:, :, order], first)


def test_one_head_by_hand():
    """Three tokens, D = 2: centring (u, v) gives ±(u − v)/2, and ∓ the same with another γ."""
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0], [2.0, 2.0]])
    block = Block(
        attention=torch.tensor([[[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.25, 0.25, 0.5]]]),
        x=x,
        residual=x,
        W_V=torch.tensor([[[0.0, 1.0], [1.0, 0.0]]]),
        b_V=torch.tensor([[0.0, 1.0]]),
        W_O=torch.eye(2)[None],
        b_O=torch.tensor([3.0, 0.0]),
        gamma=torch.tensor([2.0, 1.0]),
        beta=torch.tensor([0.1, 0.2]),
        eps=0.75,
        output=torch.zeros(3, 2),
        before_second_norm=torch.tensor([[0.0, 0.0], [4.0, 0.0], [1.0, 1.0]]),
        second_gamma=torch.tensor([1.0, 3.0]),
        second_eps=5.0,
    )
    run = Trace(list("abc"), list("abc"), [0, 1, 2], block.attention[None], [block], STAGES)
    map_ = globenc(run)[0]
    # f(x) = (x₂, x₁ + 1). b reads c: 0.5 (2, 3) = (1, 1.5), centred (−.25, .25), times γ
    # (−.5, .25), over s = 1 (its y is (5, 4): variance .25, eps .75).
    # Then centred again: (−.375, .375), times γ₂ (−.375, 1.125); y₂ = (4, 0) has variance 4, so
    # s₂ = √(4 + 5) = 3.
    assert map_[1, 2].item() == pytest.approx(math.hypot(0.375, 1.125) / 3)
    # b keeps 0.5 (2, 1) + (0, 2) = (1, 2.5): three times as far apart.
    assert map_[1, 1].item() == pytest.approx(3 * math.hypot(0.375, 1.125) / 3)
    assert map_[1, 0].item() == 0
    # a reads b: 0.5 (2, 1) = (1, .5), centred (.25, −.25), times γ (.5, −.25), over
    # s = √(3.0625 + .75); centred (.375, −.375), times γ₂ (.375, −1.125); s₂ = √5.
    s = math.sqrt(3.8125) * math.sqrt(5)
    assert map_[0, 1].item() == pytest.approx(math.hypot(0.375, 1.125) / s)
    # c keeps 0.5 (2, 3) + (2, 2) = (3, 3.5): half difference −.25, as where b reads c. Its y is
    # (6.5, 4.25): half difference 1.125, so s = √(1.265625 + .75), and s₂ = √5.
    s = math.sqrt(2.015625) * math.sqrt(5)
    assert map_[2, 2].item() == pytest.approx(math.hypot(0.375, 1.125) / s)


@st.composite
def _any_block(draw):
    H, T, D = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(2, 4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    size = 10.0 ** draw(st.integers(-2, 2))

    def random(*shape):
        return torch.randn(shape, generator=generator) * size

    made = random_block(random(H, T, T).softmax(dim=-1), D, random)
    second = {"before_second_norm": random(T, D), "second_gamma": random(D), "second_eps": 1e-5}
    return replace(made, **second)


@settings(max_examples=40)
@given(_any_block())
def test_any_block_equals_the_reference(block):
    """In float64, because centring D = 2 numbers twice can cancel nearly all of a part."""
    T = len(block.x)
    values = {
        name: value.double() if isinstance(value, torch.Tensor) else value
        for name, value in vars(block).items()
    }
    block = Block(**values)
    run = Trace(["a"] * T, ["a"] * T, [0] * T, block.attention[None], [block], STAGES)
    fields = ("attention", "x", "residual", "W_V", "b_V", "W_O", "b_O", "gamma", "beta", "eps")
    naive = reference.Parts(**{name: values[name] for name in fields})
    vectors = reference.whole_layer_vectors(
        naive, block.before_second_norm, block.second_gamma, block.second_eps
    )
    found = globenc(run)
    assert (found >= 0).all()
    # A Gram matrix loses half of the digits where the heads cancel.
    _close(found[0], vectors.norm(dim=-1), 1e-6)


# --- refusals, and results that are the caller's own -----------------------------------------


def test_pre_ln_is_refused(tiny):
    with pytest.raises(ValueError, match="globenc does not exist in this architecture, which has"):
        globenc(trace(tiny("gpt2"), "the keys"))


@pytest.mark.parametrize(
    ("attention", "message"),
    [("cross", "in cross-attention, whose residual"), ("decoder", "no feed-forward network")],
)
def test_the_decoder_is_refused(marian, attention, message):
    run = trace(marian, "Die Schlüssel .", target="The keys .", attention=attention)
    with pytest.raises(ValueError, match=f"globenc does not exist .*{message}") as caught:
        globenc(run)
    assert "\n" not in str(caught.value)


def test_a_block_made_without_the_second_norm(run_):
    with pytest.raises(ValueError, match="no feed-forward network with a LayerNorm"):
        globenc(_with(run_, second_gamma=None))


def test_a_model_where_a_run_is_wanted(minilm):
    with pytest.raises(TypeError, match="run must be a Trace, got Model"):
        globenc(minilm)


def test_changing_the_result_changes_nothing_else(run_):
    first = globenc(run_)
    kept, other = first.clone(), stage_map(run_, "AttnResLn-N").clone()
    first.fill_(7)
    assert torch.equal(globenc(run_), kept)
    assert torch.equal(stage_map(run_, "AttnResLn-N"), other)


def test_the_longest_text(tiny):
    model = tiny("bert")
    text = "a " * (POSITIONS - 2)
    assert globenc(trace(model, text)).shape == (3, POSITIONS, POSITIONS)
