"""What the doors refuse: one sentence that names the argument, what it must be, and what it got.

What only one room asks is tested with that room.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from oracle.compare import refused

from helpers import (
    STAGES,
    _validate,
    flow,
    globenc,
    mixing_ratio,
    rollout,
    stage_map,
    trace,
    value_zeroing,
)

NAN, EYE = float("nan"), torch.eye(3)[None]
TABLE = pd.DataFrame({"a": [1.0, 2.0], "b": [1.0, NAN], "c": [NAN, NAN], "d": [1.0, np.inf]})

REFUSED = (
    ("text", ("text", 5), "text must be one string, got int."),
    ("strings", ("tokens", "abc"), "tokens must be a list of strings, got 'abc'."),
    ("strings", ("tokens", ["a", 5]), "got ['a', 5]."),
    ("instance", ("x", 5, torch.Tensor, "stack it"), "x must be a Tensor, got int; stack it."),
    ("function", ("score", 5, "of x"), "score must be a function of x, got int."),
    ("choice", ("stage", "attn-n", STAGES), "got 'attn-n'; did you mean 'Attn-N'?"),
    ("choice", ("stage", "zzzz", STAGES[:2]), '"Attn-W" or "Attn-N", got \'zzzz\'.'),
    ("choice", ("stage", 5, STAGES[:1]), 'stage must be "Attn-W", got 5.'),
    ("choice", ("one_indexed", 0, (True, False)), "one_indexed must be True or False, got 0."),
    ("index", ("layer", 6, 6), "layer must be a whole number from 0 to 5, or from -6 to -1"),
    ("index", ("layer", -7, 6), "counted from the end, got -7."),
    ("index", ("layer", True, 6), "got True."),
    ("index", ("layer", 1.0, 6), "got 1.0."),
    ("number", ("vmax", "5", 0), "vmax must be one finite number from 0, got '5'."),
    ("number", ("r", 2, 0, 1), "r must be one finite number from 0 to 1, got 2."),
    ("number", ("r", NAN), "r must be one finite number, got nan."),
    ("number", ("r", None), "got None."),
    ("column", ("table", TABLE, "e", "x"), "x must be a column of table (a, b, c, d), got 'e'."),
    ("column", ("table", TABLE.iloc[:, [0, 0]], "a", "x"), "x must be only one column of table"),
    ("column", ("table", TABLE, "b", "x"), "has missing values; leave these rows out or fill"),
    ("column", ("table", TABLE, "c", "x", True), "holds nothing but missing values"),
    ("column", ("table", TABLE, "d", "x"), "holds infinite numbers"),
    ("real", ("a", ["x"]), "a must be an array of real numbers, got ['x']."),
    ("real", ("a", [[1], [1, 2]]), "got [[1], [1, 2]]."),
    ("real", ("a", torch.ones(1).to_sparse()), "a must be an array of real numbers"),
    ("array", ("a", [1, 2], (3,), "T is 3"), "a has shape (2,), but T is 3."),
    ("array", ("a", [1, NAN], (2,), ""), "a must hold finite numbers, got nan at position [1]"),
    ("within", ("a", np.eye(2) * 2, 1, "use shares"), "a must be from 0 to 1, got 2 at position"),
    ("within", ("a", np.array([0, -1.0]), np.inf, ""), "a must be 0 or more, got -1 at position"),
    ("links", ("links", [(0, 0)]), "links must be a set of pairs (source, target), counted from 0"),
    ("links", ("links", {(0, -1)}), "got {(0, -1)}."),
    ("links", ("links", {(0, 3)}, 2, 3), "has the link (0, 3), outside its 2 source and 3 target"),
    ("word_scores", (EYE[0], [0, 2, 3], [0, 1, 2]), "target_words must be a list of word numbers"),
    ("word_scores", (EYE[0], [0, 1, 2], "abc"), "source_words must be a list of word numbers"),
    ("word_scores", (EYE, [0, 1, 2], [0, 1]), "(T, S) = (3, 2), got (1, 3, 3); choose a layer."),
    ("word_scores", (-EYE[0], [0, 0, 0], [0, 0, 0]), "≥ 0, got -1 in row 0, column 0"),
)


@pytest.mark.parametrize(("validator", "given", "sentence"), REFUSED)
def test_one_sentence_says_what_must_be_and_what_is(validator, given, sentence):
    assert refused(lambda: getattr(_validate, validator)(*given), sentence)[-1] in ".?"


def test_what_fits_passes():
    assert [_validate.index("layer", n, 6) for n in (np.int64(1), torch.tensor(2), -1)] == [1, 2, 5]
    assert _validate.number("r", torch.tensor(0.5)) == 0.5
    assert _validate.column("table", TABLE, "b", "x", missing=True)[0] == 1
    assert np.isnan(_validate.array("a", torch.tensor([1, NAN]), (2,), "", missing=True)[1])
    _validate.within("a", np.array([NAN, 1 + 1e-9]), 1, "")  # NaN, and rounding
    assert _validate.maps(EYE.half()).dtype == torch.float32
    assert _validate.maps(EYE.double()).dtype == torch.float64
    assert _validate.residual(torch.ones(1, 3).double(), EYE).dtype == EYE.dtype
    assert _validate.score(torch.ones(1, 1), None).shape == ()
    _validate.links("links", {(1, 2)}, 2, 3)
    assert _validate.word_scores(EYE[0], [None, 0, 0], (0, 1, None)).dtype == torch.float64


@pytest.mark.parametrize("call", [partial(stage_map, stage="Attn-W"), globenc, rollout, flow])
def test_autocast_is_refused_for_runs_and_maps_too(run, call):
    with torch.autocast("cpu", torch.bfloat16):
        refused(lambda: call(EYE if call in (rollout, flow) else run), "torch.autocast is on")


@pytest.mark.parametrize("stage", ["Attn-N", "AttnRes-N", "AttnResLn-N"])
@pytest.mark.parametrize("function", [stage_map, mixing_ratio])
def test_a_map_is_never_nan(tiny, function, stage):
    run = trace(tiny("bert"), "the keys")
    large = replace(run, blocks=[replace(block, W_O=block.W_O * 1e30) for block in run.blocks])
    refused(lambda: function(large, stage), "in layer 0 (counted from 0) is NaN or infinite")


@pytest.mark.parametrize(
    ("family", "weight"),
    [
        ("gpt2", "h.2.mlp.c_proj.weight"),
        ("t5", "encoder.block.1.layer.1.DenseReluDense.wo.weight"),
    ],
)
def test_a_feed_forward_network_that_is_no_number(tiny, family, weight):
    """No attention block reads the last one, and still a map of whole layers would be NaN."""
    broken = tiny(family).to("cpu")
    broken.network.base_model.get_parameter(weight).data[0, 0] = NAN
    refused(lambda: value_zeroing(broken, "the keys"), f"{weight}; load it again.")
