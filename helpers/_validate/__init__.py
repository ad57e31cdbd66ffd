"""Checks of what the public functions are given. Each raises one sentence that names the argument.

They are called by public functions only, as `_validate.number("masked", masked, 0, 1)`. They import
nothing else of `helpers`, and recognise a run or a model by its attributes, so that every module
can call them.
"""

from helpers._validate.arguments import (
    choice,
    colours,
    column,
    function,
    ids,
    index,
    instance,
    number,
    shown,
    strings,
    text,
    text_or_words,
)
from helpers._validate.layers import fault
from helpers._validate.networks import (
    eager,
    model,
    network,
    one_text,
    score,
    states,
)
from helpers._validate.runs import DIFFER, LACKS, has, known_words, lacks, one, run, values
from helpers._validate.tensors import (
    array,
    causal,
    finite,
    links,
    maps,
    real,
    residual,
    within,
    word_scores,
)

__all__ = [
    "DIFFER",
    "LACKS",
    "array",
    "causal",
    "choice",
    "colours",
    "column",
    "eager",
    "fault",
    "finite",
    "function",
    "has",
    "ids",
    "index",
    "instance",
    "known_words",
    "lacks",
    "links",
    "maps",
    "model",
    "network",
    "number",
    "one",
    "one_text",
    "real",
    "residual",
    "run",
    "score",
    "shown",
    "states",
    "strings",
    "text",
    "text_or_words",
    "values",
    "within",
    "word_scores",
]
