"""Everything follows the model's device: nothing is created on another, whatever the default is.

There is no second device here. So torch's default device is "meta", whose tensors hold no numbers:
what a helper creates without saying where then ends up there, and meets the model's own tensors.
"""

from functools import partial

import pandas as pd
import pytest
import torch

from helpers import (
    blank_out,
    expansion_rate,
    flow,
    globenc,
    input_gradients,
    load_model,
    mixing_ratio,
    reconstruction_error,
    rollout,
    stage_map,
    tables,
    trace,
    transformed_norms,
    value_zeroing,
    weighted_norms,
)

TEXT, TARGET = "she saw the keys.", "on the table."
CASES = [
    *((family, None) for family in ("albert", "bert", "gpt2", "gpt_neox", "gemma2", "llama")),
    *((family, None) for family in ("modernbert", "opt", "roberta")),
    *((family, kind) for family in ("marian", "t5") for kind in ("encoder", "decoder", "cross")),
]


def _score(output) -> torch.Tensor:
    return output.last_hidden_state[0, -1, :3].sum()


def _measures(model, kind) -> dict[str, torch.Tensor]:
    """Every measure of one text that this attention has."""
    run = trace(model, TEXT, target=TARGET if kind else None, attention=kind)
    found = {"attention": run.attention, "expansion rate": expansion_rate(model, kind)}
    for measure in (transformed_norms, weighted_norms, reconstruction_error):
        found[measure.__name__] = measure(run)
    for stage in run.stages:
        found[stage] = maps = stage_map(run, stage)
        if kind != "cross":
            found[f"ratio {stage}"] = ratio = mixing_ratio(run, stage)
            found[f"rollout {stage}"] = rollout(maps)
            found[f"rollout {stage}, measured"] = rollout(maps, 1 - ratio)
            found[f"flow {stage}"] = flow(maps, query=-1)
    if run.blocks[0].second_gamma is not None and kind != "cross":
        found["globenc"] = globenc(run)
    if kind in (None, "encoder"):
        found["value zeroing"] = value_zeroing(model, TEXT)
    if kind is None:
        blank = 5 if model.tokenizer.mask_token_id is None else None
        found["blank-out"] = blank_out(model, TEXT, _score, blank)
        for how in ("norm", "dot", "sum"):
            found[f"gradient {how}"] = input_gradients(model, TEXT, _score, kind=how)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(filter(None, case)))
def test_every_measure_stays_on_the_model_s_device(tiny, case):
    model = tiny(case[0])
    expected = _measures(model, case[1])
    with torch.device("meta"):
        found = _measures(model, case[1])
        exact = _measures(model.double(), case[1])
    assert found.keys() == expected.keys() == exact.keys()
    for name, values in expected.items():
        assert found[name].device.type == "cpu" and exact[name].device.type == "cpu", name
        assert found[name].dtype == torch.float32 and exact[name].dtype == torch.float64, name
        torch.testing.assert_close(found[name], values, rtol=0, atol=0, equal_nan=True, msg=name)


@pytest.mark.parametrize("name", ["minilm", "de-en", "verb-number", "a folder"])
def test_models_are_read_on_the_cpu(name, tiny):
    name = tiny("gpt_neox").name if name == "a folder" else name
    with torch.device("meta"):
        model = load_model(name)
        copies = [model, model.to("cpu"), model.double(), load_model(name, device="cpu")]
    for copy in copies:
        tensors = [*copy.network.parameters(), *copy.network.buffers()]
        assert {tensor.device.type for tensor in tensors} == {"cpu"}
    expected = load_model(name).network.state_dict()
    for tensor_name, tensor in model.network.state_dict().items():
        assert torch.equal(tensor, expected[tensor_name]), tensor_name


def test_tables_are_the_same_too(tiny):
    bert, verbs = tiny("bert"), load_model("verb-number")
    makers = {
        "tokens": partial(tables.token_table, bert, [TEXT, TARGET]),
        "categories": partial(tables.category_shares, bert, [TEXT, TARGET]),
        "ratios": partial(tables.mixing_table, bert, [TEXT, TARGET], masked=0.2),
    }
    expected = {name: make() for name, make in makers.items()}
    measured = tables.measure(verbs, "Keys [MASK] here.")
    with torch.device("meta"):
        for name, make in makers.items():
            pd.testing.assert_frame_equal(make(), expected[name])
        again = tables.measure(verbs, "Keys [MASK] here.")
    for part in ("rows", "yardsticks"):
        for name, values in getattr(measured, part).items():
            found = getattr(again, part)[name]
            torch.testing.assert_close(found, values, rtol=0, atol=0, equal_nan=True, msg=name)
