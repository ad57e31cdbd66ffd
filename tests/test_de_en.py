"""The course's translation model and gold links: what their cards say of them."""

import pytest
import torch

from helpers import load_model, reconstruction_error, trace
from helpers.alignment import words
from helpers.datasets import read_alignments


@pytest.fixture(scope="module")
def model():
    return load_model("de-en")


def test_the_network_is_stock_and_translates(model):
    assert type(model.network).__name__ == "MarianMTModel"
    assert model.network.dtype == torch.float32 and not model.network.training
    said = model.tokenizer("Zwei Männer spielen Fußball .", return_tensors="pt")
    ids = model.network.generate(**said, num_beams=1, max_new_tokens=20)
    there = model.tokenizer.decode(ids[0], skip_special_tokens=True)
    assert there == "Two men are playing soccer ."


@pytest.mark.parametrize("attention", ["cross", "encoder", "decoder"])
def test_parts_add_up_in_all_three_attentions(model, attention):
    pair = read_alignments()[2]
    run = trace(model, pair.source, target=pair.target, attention=attention)
    assert reconstruction_error(run).max() < 1e-5


def test_gold_links_are_as_many_as_the_card_says():
    pairs = read_alignments()
    assert sum(len(pair.gold.sure) for pair in pairs) == 1848
    assert sum(len(pair.gold.possible - pair.gold.sure) for pair in pairs) == 307
    for pair in pairs:
        assert all(" ".join(words(side)) == side for side in (pair.source, pair.target))
