"""Pictures: text in its own letters, Axes-level functions, and whole figures of a Trace.

`heatmap`, `lines`, `token_bars`, `pipes` and `links` take data and `ax`, and return the Axes.
`draw_…` take a Trace (or a Measured) and return a Figure, which a cell shows by ending with it.
Both say what they leave out of a long text; `rows` and `columns`, or `queries` and `keys`, show a
part of it at full size, with the numbers and colours of the whole.
"""

from helpers.plots.bars import token_bars
from helpers.plots.evidence import draw_alignment, draw_yardstick
from helpers.plots.figures import (
    draw_attention,
    draw_stage,
    draw_weight_and_norm,
)
from helpers.plots.lines import lines
from helpers.plots.maps import heatmap, links
from helpers.plots.paths import draw_flow, draw_rollout
from helpers.plots.pipes import pipes
from helpers.plots.style import CMAPS, PALETTE, ramp, style

__all__ = [
    "CMAPS",
    "PALETTE",
    "draw_alignment",
    "draw_attention",
    "draw_flow",
    "draw_rollout",
    "draw_stage",
    "draw_weight_and_norm",
    "draw_yardstick",
    "heatmap",
    "lines",
    "links",
    "pipes",
    "ramp",
    "style",
    "token_bars",
]
