"""Checks of the exercises: each prints "Correct", or the likely reason why an answer is not right.

Whatever a student answers, a check does not raise. Only where the notebook itself gives it
something wrong, such as a layer that does not exist, a ValueError or TypeError says so.

Each exercise has one function, and each lesson one file. A function computes the right answer, and
the answers that the usual mistakes lead to, so that it can name the mistake.
"""

from helpers.checks.environment import self_test
from helpers.checks.lesson_01 import (
    check_cls_share,
    check_head_weights,
    check_punctuation_share,
    check_two_back_head,
)
from helpers.checks.lesson_02 import (
    check_attn_n,
    check_disagreement,
    check_norm_share,
    check_transformed_norms,
)
from helpers.checks.lesson_03 import check_aer, check_awi, check_to_words
from helpers.checks.lesson_04 import (
    check_block_output,
    check_expansion_rate,
    check_layernorm_part,
    check_mixing_ratio,
)
from helpers.checks.lesson_05 import check_measured_residual, check_rollout, check_takeover
from helpers.checks.lesson_06 import (
    check_bottleneck,
    check_cap,
    check_flow_by_hand,
    check_flow_matrix,
)
from helpers.checks.lesson_07 import (
    check_gradient_times_input,
    check_spearman,
    check_strongest,
    check_template_mean,
)

__all__ = [
    "check_aer",
    "check_attn_n",
    "check_awi",
    "check_block_output",
    "check_bottleneck",
    "check_cap",
    "check_cls_share",
    "check_disagreement",
    "check_expansion_rate",
    "check_flow_by_hand",
    "check_flow_matrix",
    "check_gradient_times_input",
    "check_head_weights",
    "check_layernorm_part",
    "check_measured_residual",
    "check_mixing_ratio",
    "check_norm_share",
    "check_punctuation_share",
    "check_rollout",
    "check_spearman",
    "check_strongest",
    "check_takeover",
    "check_template_mean",
    "check_to_words",
    "check_transformed_norms",
    "check_two_back_head",
    "self_test",
]
