"""Measures that perturb the model: a token blanked, a gradient taken, a value vector zeroed.

Abnar & Zuidema 2020 (AZ20, arXiv 2005.00928) compare attention with the first two.
"""

from helpers.saliency.blank import blank_out
from helpers.saliency.gradients import KINDS, embedding_gradient, input_gradients
from helpers.saliency.zeroing import value_zeroing

__all__ = ["KINDS", "blank_out", "embedding_gradient", "input_gradients", "value_zeroing"]
