"""Layers that compute something else than their weights say: read exactly, or refused by name."""

import copy
from functools import partial
from typing import get_args

import pytest
import torch
from oracle import cut, reference
from oracle.changed_layers import HIDDEN, SHOWN, LoRA, change, exchange, longer
from oracle.compare import close, refused
from oracle.tiny_models import ARCHITECTURES

from helpers import (
    Model,
    anatomy,
    expansion_rate,
    globenc,
    mixing_ratio,
    reconstruction_error,
    stage_map,
    tables,
    trace,
    transformed_norms,
    value_zeroing,
    weighted_norms,
)

TEXT, TARGET = "she saw the keys.", "on the table."
TWO_SIDED = ("bart", "blenderbot", "m2m_100", "marian", "mbart", "mt5", "pegasus", "t5")
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
