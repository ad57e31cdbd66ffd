"""Look inside a Transformer: attention weights, norms, the whole block, and many layers at once."""

from helpers.block import (
    STAGES,
    expansion_rate,
    globenc,
    mixing_ratio,
    reconstruction_error,
    stage_map,
)
from helpers.models import Model, load_model
from helpers.norms import transformed_norms, weighted_norms
from helpers.paths import flow, rollout
from helpers.saliency import blank_out, input_gradients, value_zeroing
from helpers.tracing import Trace, trace

__all__ = [
    "STAGES",
    "Model",
    "Trace",
    "blank_out",
    "expansion_rate",
    "flow",
    "globenc",
    "input_gradients",
    "load_model",
    "mixing_ratio",
    "reconstruction_error",
    "rollout",
    "stage_map",
    "trace",
    "transformed_norms",
    "value_zeroing",
    "weighted_norms",
]
