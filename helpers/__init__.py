"""Look inside a Transformer: attention weights, norms, the whole block, and many layers at once."""

from helpers.flow import flow
from helpers.models import Model, load_model
from helpers.rollout import rollout
from helpers.stages import (
    STAGES,
    expansion_rate,
    mixing_ratio,
    reconstruction_error,
    stage_map,
    transformed_norms,
    weighted_norms,
)
from helpers.trace import Trace, trace

__all__ = [
    "STAGES",
    "Model",
    "Trace",
    "expansion_rate",
    "flow",
    "load_model",
    "mixing_ratio",
    "reconstruction_error",
    "rollout",
    "stage_map",
    "trace",
    "transformed_norms",
    "weighted_norms",
]
