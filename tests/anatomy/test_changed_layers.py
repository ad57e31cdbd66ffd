"""Layers that compute something else than their weights say: read exactly, or refused by name."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import get_args

import pytest
import torch
from oracle import cut, reference
from oracle.changed_layers import HIDDEN, SHOWN, LoRA, change, exchange, longer
from oracle.compare import close, refused
from oracle.tiny_models import ARCHITECTURES, TWO_SIDED

from helpers import (
    Model,
    anatomy,
    blank_out,
    expansion_rate,
    globenc,
    mixing_ratio,
    plots,
    reconstruction_error,
    stage_map,
    tables,
    trace,
    transformed_norms,
    value_zeroing,
    weighted_norms,
)

TEXT, TARGET = "she saw the keys.", "on the table."
ROWS = [
    (name, kind)
    for name in ARCHITECTURES
    for kind in (get_args(anatomy.Attention) if name in TWO_SIDED else (None,))
]


def read(model, kind):
    return trace(model, TEXT, target=None if kind is None else TARGET, attention=kind)


def naive(model, name, kind) -> list[reference.Parts]:
    """The blocks of the network as it is now, measured from outside."""
    ids = cut.inputs(model, TEXT, target=None if kind is None else TARGET)
    cuts = cut.blocks(model.network, cut.place(name, kind), ids, kind)
    return [reference.Parts(**own.parts) for own in cuts]


@pytest.mark.parametrize(("name", "kind"), ROWS)
def test_a_change_that_the_weights_do_not_show_is_noticed(tiny, name, kind):
    right = read(tiny(name), kind)
    assert right.fault == ""
    for label in HIDDEN:
        model = change(tiny(name), label, 1, kind)
        if model is None:
            continue
        run = read(model, kind)
        layer = 0 if name == "albert" else 1  # ALBERT's layers are one
        assert f"layer {layer} (counted from 0)" in run.fault, label
        assert set(run.stages) == set(right.stages) & {"Attn-W", "AttnRes-W"}, label
        output = model.network.base_model(
            **cut.inputs(model, TEXT, target=None if kind is None else TARGET),
            output_attentions=True,
        )
        own = getattr(output, "attentions" if kind is None else f"{kind}_attentions")
        close(stage_map(run, "Attn-W"), torch.cat(own).mean(dim=1))
        refused(lambda run=run: stage_map(run, "Attn-N"), run.fault, "merge_and_unload()")


@pytest.mark.parametrize(("name", "kind"), ROWS)
def test_a_change_that_the_weights_show_is_read_exactly(tiny, name, kind):
    for label in SHOWN:
        model = change(tiny(name), label, 1, kind)
        run, parts = read(model, kind), naive(model, name, kind)
        assert run.fault == "" and run.stages == read(tiny(name), kind).stages, label
        assert reconstruction_error(run).max() < 1e-4, label
        for stage in run.stages:
            expected = torch.stack([reference.stage_map(own, stage) for own in parts])
            close(stage_map(run, stage), expected)
        expected = [reference.expansion_rate(p.W_V, p.W_O, p.b_V, p.b_O) for p in parts]
        close(expansion_rate(model, kind), expected, 1e-4)


@pytest.mark.parametrize(("name", "kind"), ROWS)
def test_what_values_read_is_what_enters_them(tiny, name, kind):
    run = read(change(tiny(name), "hook, what values read", 0, kind), kind)
    assert run.fault == "" and reconstruction_error(run).max() < 1e-4
    assert torch.equal(run.blocks[0].x, longer(read(tiny(name), kind).blocks[0].x))


def test_lora_that_does_nothing_changes_nothing(tiny):
    """Its module is no Linear; a square matrix read the wrong way round was 2.7 times too long."""
    for name in ("bert", "gpt2", "llama", "marian"):
        kind = "cross" if name == "marian" else None
        adapted = change(tiny(name), "LoRA, B = 0", 1, kind)
        before, after = read(tiny(name), kind), read(adapted, kind)
        assert torch.equal(stage_map(before, "Attn-N"), stage_map(after, "Attn-N"))


@pytest.mark.parametrize("call", ["transformed_norms", "weighted_norms", "globenc"])
def test_every_measure_of_vectors_refuses(tiny, call):
    model = change(tiny("bert"), "LoRA, values")
    run = read(model, None)
    function = {"transformed_norms": transformed_norms, "weighted_norms": weighted_norms}
    words = ("layer 1 (counted from 0) computes something else", "off by", "merge_and_unload()")
    refused(partial(function.get(call, globenc), run), *words)
    for stage in ("Attn-N", "AttnRes-N", "AttnResLn-N"):
        refused(partial(stage_map, run, stage), *words, "this run has: Attn-W, AttnRes-W.")
        refused(partial(mixing_ratio, run, stage), *words)
    refused(partial(expansion_rate, model), *words)
    refused(partial(value_zeroing, model, TEXT), *words)
    refused(partial(tables.token_table, model, [TEXT]), *words)
    refused(partial(tables.category_shares, model, [TEXT]), *words)
    for draw in (plots.draw_rollout, plots.draw_flow, plots.draw_stage, plots.draw_weight_and_norm):
        options = {"residual": "measured"} if draw in (plots.draw_rollout, plots.draw_flow) else {}
        stage = {} if draw is plots.draw_weight_and_norm else {"stage": "Attn-W"}
        if draw is plots.draw_stage:
            stage = {"stage": "Attn-N"}
        refused(partial(draw, run, layer=1, **stage, **options), *words)
    below, changed, _ = reconstruction_error(run)
    assert below < 1e-4 and changed > 0.01


def test_an_adapter_of_queries_and_keys_is_part_of_the_weights(tiny):
    network = copy.deepcopy(tiny("bert").network)
    reader = network.encoder.layer[1].attention.self
    for module in (reader.query, reader.key):
        exchange(network, module, LoRA(module, 0.3))
    run = read(Model(network.eval(), tiny("bert").tokenizer), None)
    assert run.fault == "" and reconstruction_error(run).max() < 1e-5
    assert not torch.equal(run.attention[1], read(tiny("bert"), None).attention[1])


@pytest.mark.parametrize("name", ["gemma", "gpt2", "gpt_neox", "llama", "t5"])
def test_a_massive_activation_hides_nothing(tiny, name):
    """One token 150 times longer than the rest: no false alarm, and no error unseen."""
    kind = "encoder" if name == "t5" else None
    model = Model(copy.deepcopy(tiny(name).network), tiny(name).tokenizer, name)
    first = read(model, kind).ids[0]
    model.network.get_input_embeddings().weight.data[first] *= 400
    run = read(model, kind)
    lengths = run.blocks[1].residual.norm(dim=-1)
    assert lengths[0] > 10 * lengths[1:].max() and run.fault == ""
    small = change(model, "LoRA, values", 1, kind)
    part = anatomy.blocks(small.network, kind)[1]
    part.x[0].lora_B.weight.data *= 0.02
    wrong = read(small, kind)
    block = wrong.blocks[1]
    gap = block.output - run.blocks[1].output
    assert gap.abs().max() < 1e-3 * block.output.abs().max(), "unseen beside the largest entry"
    assert "layer 1 (counted from 0)" in wrong.fault


def test_weights_that_are_no_matrix_are_refused(tiny):
    network = copy.deepcopy(tiny("bert").network)
    packed = torch.nn.Module()
    packed.weight = torch.nn.Parameter(torch.zeros(8, 1, dtype=torch.uint8), requires_grad=False)
    network.encoder.layer[1].attention.self.value = packed
    refused(lambda: trace(Model(network.eval(), tiny("bert").tokenizer), TEXT), "unquantised")


def test_modules_that_are_not_the_family_s_are_refused(tiny):
    network = copy.deepcopy(tiny("bert").network)
    network.encoder.layer[1].attention.self = torch.nn.Identity()
    model = Model(network, tiny("bert").tokenizer)
    refused(lambda: trace(model, TEXT), "other modules than a 'bert' has", "'value'")
    network = copy.deepcopy(tiny("bert").network)
    network.encoder.layer[1].attention.self.value = torch.nn.Linear(24, 10)
    model = Model(network, tiny("bert").tokenizer)
    refused(lambda: trace(model, TEXT), "other modules than a 'bert' has")


# --- shared, fused and steered modules ---------------------------------------------------------


def copied(model) -> Model:
    return Model(copy.deepcopy(model.network), model.tokenizer, model.name)


def test_one_layernorm_at_both_places_of_a_layer(tiny):
    shared, apart = copied(tiny("bert")), copied(tiny("bert"))
    for layer in shared.network.encoder.layer:
        layer.output.LayerNorm = layer.attention.output.LayerNorm
    for layer in apart.network.encoder.layer:
        layer.output.LayerNorm.load_state_dict(layer.attention.output.LayerNorm.state_dict())
    one, two = trace(shared, TEXT), trace(apart, TEXT)
    assert one.fault == two.fault == ""
    assert torch.equal(globenc(one), globenc(two)) and reconstruction_error(one).max() < 1e-5


def untie(network) -> None:
    """Give each place a module of its own with the same weights."""
    seen = set()
    for module in list(network.modules()):
        for name, child in list(module._modules.items()):  # named_children passes over repetitions
            if child in seen:
                setattr(module, name, copy.deepcopy(child))
            seen.add(child)


def tie_norms(network):
    for layer in network.layers:
        layer.post_attention_layernorm = layer.input_layernorm


def one_norm(network):
    for layer in network.encoder.layer:
        layer.attention.output.LayerNorm = network.encoder.layer[0].attention.output.LayerNorm
        layer.output.LayerNorm = network.encoder.layer[0].attention.output.LayerNorm


def keys_are_values(network):
    for layer in network.encoder.layer:
        layer.attention.self.key = layer.attention.self.value


def one_value(network):
    for layer in network.encoder.layer:
        layer.attention.self.key = network.encoder.layer[0].attention.self.value
        layer.attention.self.value = network.encoder.layer[0].attention.self.value


def some_keys(network):
    one_value(network)
    for layer in network.encoder.layer[1:]:
        layer.attention.self.key = copy.deepcopy(layer.attention.self.key)


@pytest.mark.parametrize(
    ("name", "tie"),
    [
        ("llama", tie_norms),
        ("bert", one_norm),
        ("bert", keys_are_values),
        ("bert", one_value),
        ("bert", some_keys),
    ],
)
def test_modules_that_serve_several_places_are_read_exactly(tiny, name, tie):
    model = copied(tiny(name))
    tie(model.network)
    run = trace(model, TEXT)
    assert run.fault == "" and reconstruction_error(run).max() < 1e-5
    untie(model.network)
    apart = trace(model, TEXT)
    for stage in run.stages:
        assert torch.equal(stage_map(run, stage), stage_map(apart, stage))


def test_a_value_that_is_hardly_read_is_compared_too(tiny):
    model = copied(tiny("bert"))
    reader = model.network.encoder.layer[1].attention.self
    reader.query.weight.data *= 3
    reader.key.weight.data *= 3

    def five_times(_module, _args, output):
        return torch.cat([output[:, :2], 5 * output[:, 2:3], output[:, 3:]], dim=1)

    reader.value.register_forward_hook(five_times)
    assert "what makes its values gives another result" in trace(model, TEXT).fault
    late = copied(tiny("bert"))
    late.network.encoder.layer[1].attention.self.value.register_forward_hook(
        lambda _m, _a, output: torch.cat([output[:, :5], 5 * output[:, 5:]], dim=1)
    )
    refused(lambda: expansion_rate(late), "layer 1 (counted from 0)")


def test_a_large_bias_hides_nothing(tiny):
    model = copied(tiny("gpt2"))
    part = anatomy.blocks(model.network)[1]
    part.project.bias.data[5] = 3e4
    assert trace(model, TEXT).fault == ""
    part.project.register_forward_pre_hook(lambda _, args: (1.5 * args[0],))
    assert "layer 1 (counted from 0)" in trace(model, TEXT).fault


def test_modules_that_are_not_called_leave_the_weights(tiny):
    model = copied(tiny("bert"))
    output = model.network.encoder.layer[1].attention.output
    output.forward = lambda hidden, x: output.LayerNorm(output.dense.forward(hidden) + x)
    run = trace(model, TEXT)
    assert "does not call what attention reads, through its projection, as a module" in run.fault
    assert run.stages == ("Attn-W", "AttnRes-W")
    assert torch.equal(stage_map(run, "Attn-W"), stage_map(trace(tiny("bert"), TEXT), "Attn-W"))
    refused(partial(stage_map, run, "Attn-N"), "does not call", "this run has: Attn-W, AttnRes-W.")


@pytest.mark.parametrize("rank", [24, 25, 36, 48])
def test_an_adapter_as_large_as_what_it_adapts(tiny, rank):
    for name in ("bert", "llama"):
        for b in (0.0, 0.3):
            model = copied(tiny(name))
            part = anatomy.blocks(model.network)[1]
            exchange(model.network, part.x[0], LoRA(part.x[0], b, rank))
            run = trace(Model(model.network.eval(), model.tokenizer), TEXT)
            assert (run.fault == "") == (b == 0.0)
            if b == 0.0:
                expected = stage_map(trace(tiny(name), TEXT), "Attn-N")
                assert torch.equal(stage_map(run, "Attn-N"), expected)


def test_pruned_heads_and_prefixes_have_no_token(tiny):
    model = copied(tiny("bert"))
    reader = model.network.encoder.layer[1].attention.self
    old = reader.forward

    def with_prefix(*args, **kwargs):
        context, weights = old(*args, **kwargs)
        return context, torch.nn.functional.pad(weights, (2, 0))

    reader.forward = with_prefix
    refused(lambda: trace(model, TEXT), "attend in the shapes", "take out pruned heads, prefixes")


def test_a_network_that_cannot_be_copied(tiny):
    model = copied(tiny("bert"))
    torch.nn.utils.prune.l1_unstructured(
        model.network.encoder.layer[0].attention.self.value, "weight", 0.3
    )
    model.network(**cut.inputs(model, TEXT))
    for copy_it in (Model.double, lambda m: m.to("cpu")):
        refused(partial(copy_it, model), "cannot be copied", "prune.remove")


@pytest.mark.parametrize(
    ("name", "layers"), [("gpt2", "h"), ("llama", "layers"), ("bert", "encoder.layer")]
)
def test_value_zeroing_reads_a_steered_layer_once(tiny, name, layers):
    """A vector added before a layer is the same as one added after the layer below."""
    vector = torch.linspace(0, 3, 24)
    before, after, in_place = (copied(tiny(name)) for _ in range(3))
    before.network.get_submodule(layers)[1].register_forward_pre_hook(
        lambda _module, args: (args[0] + vector, *args[1:])
    )
    after.network.get_submodule(layers)[0].register_forward_hook(
        lambda _module, _args, output: (
            (output[0] + vector, *output[1:]) if isinstance(output, tuple) else output + vector
        )
    )
    in_place.network.get_submodule(layers)[1].register_forward_pre_hook(
        lambda _module, args: _add(args[0], vector)
    )
    expected = value_zeroing(after, TEXT)[1]
    for model in (before, in_place):
        assert trace(model, TEXT).fault == ""
        close(value_zeroing(model, TEXT)[1], expected)


def _add(states, vector):
    states.add_(vector)


def test_value_zeroing_keeps_what_a_layer_returned(tiny):
    model = copied(tiny("gpt2"))
    model.network.ln_f.register_forward_pre_hook(lambda _, args: _add(args[0], 3.0))
    assert torch.equal(value_zeroing(model, TEXT), value_zeroing(tiny("gpt2"), TEXT))


def test_coarse_products_are_refused(tiny):
    try:
        torch.set_float32_matmul_precision("medium")
        refused(lambda: trace(tiny("bert"), TEXT), "fewer digits", '"highest"')
    finally:
        torch.set_float32_matmul_precision("highest")
    assert trace(tiny("bert"), TEXT).fault == ""


def test_threads_do_not_hear_each_other(tiny):
    expected = trace(tiny("bert"), TEXT)
    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(lambda _: trace(tiny("bert"), TEXT), range(12)))
    assert not any(run.fault for run in runs)
    assert all(torch.equal(run.attention, expected.attention) for run in runs)


# --- a run whose parts differ ------------------------------------------------------------------


def test_a_run_holds_its_attention_once(tiny):
    """Whether all weights are exchanged, those of the blocks, or of one: every measure follows."""
    run, new = trace(tiny("bert"), TEXT), trace(tiny("bert"), TEXT).attention
    new[:, :2] = 0
    expected = trace(tiny("bert"), TEXT)
    expected.attention[:, :2] = 0
    blocks = [replace(b, attention=a) for b, a in zip(run.blocks, new, strict=True)]
    loose = [replace(b, attention=b.attention.clone()) for b in blocks]
    for changed in (
        replace(run, attention=new),
        replace(run, blocks=blocks),
        replace(run, blocks=loose),
        replace(run, blocks=loose, attention=new.clone()),
        replace(replace(run, blocks=loose), fault=""),
    ):
        for stage in run.stages:
            assert torch.equal(stage_map(changed, stage), stage_map(expected, stage))
        assert torch.equal(weighted_norms(changed), weighted_norms(expected))
        changed.attention[1, 0] = 0.5
        assert (changed.blocks[1].attention[0] == 0.5).all(), "one memory"
    one = replace(run, blocks=[run.blocks[0], loose[1], *run.blocks[2:]])
    assert torch.equal(one.attention[1], loose[1].attention)
    assert torch.equal(one.attention[0], run.attention[0])
    refused(
        lambda: replace(run, blocks=loose, attention=new + 1), "run.attention and the attention"
    )
    wrong = trace(tiny("bert"), TEXT)
    wrong.attention.data = new
    for call in (weighted_norms, reconstruction_error, partial(stage_map, stage="Attn-W")):
        refused(partial(call, wrong), "differ, which must hold the same")


def test_a_run_that_was_stored_can_be_edited(tiny):
    run = trace(tiny("bert"), TEXT)
    for kept in (pickle.loads(pickle.dumps(run)), copy.deepcopy(run), copy.copy(run)):
        assert torch.equal(stage_map(kept, "Attn-N"), stage_map(run, "Attn-N"))
        kept.attention[:, :2] = 0
        assert not weighted_norms(kept)[:, :2].any()
        assert torch.equal(kept.blocks[0].attention, kept.attention[0])


def test_a_run_of_inference_mode_can_be_edited_later(tiny):
    with torch.inference_mode():
        run = trace(tiny("bert"), TEXT)
    run.attention[:, :2] = 0
    run.blocks[0].x[0] = 0
    assert not weighted_norms(run)[:, :2].any()


def test_norms_of_edited_weights_are_lengths(tiny):
    run = trace(tiny("bert"), TEXT)
    expected = weighted_norms(run)
    run.attention.neg_()
    assert torch.equal(weighted_norms(run), expected)
    run.attention[1, 0, 0, 0] = torch.nan
    for call in (weighted_norms, partial(stage_map, stage="Attn-N")):
        refused(
            partial(call, run), "layer 1 (counted from 0) is NaN", "what you changed in the run"
        )


def test_a_layer_that_adds_nothing_has_no_error(tiny):
    model = copied(tiny("bert"))
    norm = model.network.encoder.layer[1].attention.output.LayerNorm
    torch.nn.init.zeros_(norm.weight)
    torch.nn.init.zeros_(norm.bias)
    run = trace(model, TEXT)
    assert run.fault == "" and reconstruction_error(run)[1] == 0


@pytest.mark.parametrize("edit", ["transposed", "one head", "in place", "no block", "cut"])
def test_views_are_no_way_around(tiny, edit):
    run = trace(tiny("bert"), TEXT)

    if edit == "transposed":
        changed = replace(run, attention=run.attention.mT)
        assert torch.equal(stage_map(changed, "Attn-W"), run.attention.mT.mean(dim=1))
        return

    def ask():
        changed = run
        if edit == "one head":
            blocks = [replace(b, attention=b.attention[:1]) for b in run.blocks]
            changed = replace(run, blocks=blocks)
        elif edit == "cut":
            changed = replace(run, attention=run.attention[:, :2])
        elif edit == "in place":
            run.attention.transpose_(2, 3)
        else:
            run.blocks.pop()
        return stage_map(changed, "Attn-W")

    refused(ask, "which must hold the same")


@pytest.mark.parametrize("name", ["gpt2", "bert", "mixtral"])
def test_a_hook_that_changes_one_row_sees_one_text_at_a_time(tiny, name):
    """The usual way to write a patch, output[0, position] = …, means one text."""
    first, every = copied(tiny(name)), copied(tiny(name))

    def patch(where):
        def change(_module, _args, output):
            output = output.clone()
            output[where, 2] = 0
            return output

        return change

    for model, where in ((first, 0), (every, slice(None))):
        layers = anatomy.blocks(model.network)
        mlp = getattr(layers[1].layer, "mlp", None) or layers[1].layer.output.dense
        mlp.register_forward_hook(patch(where))
    close(value_zeroing(first, TEXT), value_zeroing(every, TEXT))

    def score(output):
        return output[0][0, -1].square().sum()

    close(blank_out(first, TEXT, score, 5), blank_out(every, TEXT, score, 5), 1e-4)


def test_a_router_s_output_has_no_axis_of_texts(tiny):
    model = copied(tiny("mixtral"))
    model.network.config.output_router_logits = True
    ids = trace(model, TEXT).ids

    def score(output):
        return output.router_logits[0][-1, 0]

    found = blank_out(model, ids, score, 5)
    for t in range(len(ids)):
        other = [*ids[:t], 5, *ids[t + 1 :]]
        outputs = [model.network(torch.tensor([one])) for one in (ids, other)]
        expected = (score(outputs[1]) - score(outputs[0])).abs()
        assert ids[t] == 5 or torch.allclose(found[t], expected, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["gpt_neox", "phi", "stablelm, parallel", "falcon", "gptj", "cohere"]
)
def test_what_a_parallel_layer_adds_is_compared(tiny, name):
    model = copied(tiny(name))
    layer = anatomy.blocks(model.network)[1].layer
    names = [n for n, _ in layer.named_children() if "dropout" in n]
    place = getattr(layer, names[0]) if names else layer

    def three_times(_module, _args, output):
        return (3 * output[0], *output[1:]) if isinstance(output, tuple) else 3 * output

    place.register_forward_hook(three_times)
    assert trace(tiny(name), TEXT).fault == ""
    assert "layer 1 (counted from 0)" in trace(model, TEXT).fault


@pytest.mark.parametrize(("name", "setting"), [("olmo", "clip_qkv"), ("roformer", "rotary_value")])
def test_settings_that_change_values_are_named(tiny, name, setting):
    model = copied(tiny(name))
    setattr(model.network.config, setting, 8.0 if name == "olmo" else True)
    run = trace(model, TEXT)
    assert run.stages == ("Attn-W", "AttnRes-W") and f"its {setting} " in run.fault
    refused(partial(stage_map, run, "Attn-N"), setting)
