"""How every picture of the course looks: one palette, light maps, labels that can be read.

A colour has one meaning in all lessons, and nothing is told by colour alone: lines also differ in
dash and marker, and maps have a labelled bar.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import matplotlib
import matplotlib.pyplot as plt
import seaborn as sns
from cycler import cycler
from IPython import get_ipython
from IPython.core.pylabtools import retina_figure
from matplotlib import font_manager
from matplotlib.colors import Colormap, LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from seaborn.utils import relative_luminance

from helpers import _validate

WIDEST = 8.3  # inches; at 100 dpi, a margin included, this fits the text column of JupyterLab
SMALLEST, LARGEST = 0.5, 40  # inches that a figure of the reader's own choice may have
DPI = 100

PALETTE = {
    "weights": "#1f5fa8",
    "norms": "#b4530a",
    "residual": "#1b7f4d",
    "LayerNorm": "#a3246e",
    "assumed": "#5a9bd8",  # the half that AttnRes-W assumes
    "sinks": "#3d3d3d",  # [CLS] and other tokens that collect weight without a use for it
}
PALETTE |= {
    "Attn-W": PALETTE["weights"],
    "Attn-N": PALETTE["norms"],
    "AttnRes-W": PALETTE["assumed"],
    "AttnRes-N": PALETTE["residual"],
    "AttnResLn-N": PALETTE["LayerNorm"],
}
OTHERS = ("#00798c", "#7a6a00", "#6a4fb3", "#5f6b76")  # for whatever has no colour of its own
MEANINGS = PALETTE | {"weight": PALETTE["weights"], "norm": PALETTE["norms"]}
SINKS = ("[CLS]", "[SEP]", "[BOS]", "[EOS]", "special", "<s>", "</s>")
MEANINGS |= dict.fromkeys(SINKS, PALETTE["sinks"])
SOLID = ""
DASHES = dict.fromkeys(("AttnRes-W", "[SEP]", "</s>"), (4, 2))
DASHES |= {"rollout": (7, 2), "flow": (1.5, 1.5)}  # a single layer is solid

# Outlines only: matplotlib draws no coloured letters, so no Apple Color Emoji, no Noto Color Emoji.
FONTS = (
    "DejaVu Sans",  # comes with matplotlib: Latin, Greek, Cyrillic, Arabic, Hebrew
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Symbola"),  # Debian: fonts-noto-cjk, fonts-symbola
    *("Noto Sans Arabic", "Noto Emoji"),
    *("PingFang SC", "Hiragino Sans GB", "Hiragino Sans", "Apple SD Gothic Neo"),  # macOS
    *("Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "Segoe UI Emoji"),  # Windows
)

LOOK = {
    "figure.dpi": DPI,
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(color=OTHERS),
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.title_fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "figure.constrained_layout.use": True,
}


def style() -> None:
    """Give your own figures the look of the course, and sharp pictures in a notebook.

    Call it once, in the first cell: `plots.style()`. The functions of `helpers.plots` look like
    this anyway. What you set in `plt.rcParams` afterwards holds for your figures and for theirs; a
    font that you chose before stays the first one that is tried. If that font has no bold letters,
    titles are not bold; if it is not installed, a warning says so and the fonts of the course take
    its place.
    """
    chosen, bold = plt.rcParams["font.family"], fonts(bold=True)
    kept = [name for name in chosen if _is_known(name)]
    if not kept:
        warnings.warn(
            f'plt.rcParams["font.family"] names {chosen[0]!r}, which is not installed, so '
            f"{fonts()[0]!r} takes its place; choose one of those that "
            "matplotlib.font_manager.get_font_names() lists.",
            stacklevel=2,
        )
    look = LOOK | {"font.family": list(dict.fromkeys([*kept, *bold]))}
    if not all(any(name in bold for name in _installed(_expanded(family))) for family in kept):
        look["axes.titleweight"] = "normal"
    plt.rcParams.update(look)
    if hasattr(get_ipython(), "kernel"):
        from matplotlib_inline.backend_inline import set_matplotlib_formats  # has an effect at once

        set_matplotlib_formats("retina")


@contextmanager
def styled() -> Iterator[None]:
    """The look of the course for a while; what the reader changed in rcParams stays as it is.

    Of a picture that fails half way, no pyplot figure is left open.
    """
    usual = matplotlib.rcParamsDefault
    look = {k: v for k, v in LOOK.items() if plt.rcParams[k] == usual[k]}
    before = plt.get_fignums()
    try:
        # By name, so that numbers on axes do not ask for a font that is not installed either.
        with plt.rc_context(look | {"font.family": fonts()}):
            yield
    except BaseException:
        for number in set(plt.get_fignums()) - set(before):
            plt.close(number)
        raise


class Picture(Figure):
    """A Figure outside pyplot, which a notebook shows once and sharp when a cell ends with it."""

    def _repr_png_(self):
        return retina_figure(self)


def picture(width: float, height: float) -> Picture:
    """An empty figure of this size in inches, or of less: not too wide for a notebook."""
    return Picture(figsize=(min(width, WIDEST), height), layout="constrained")


def inches(figsize: Sequence[float] | None, usual: tuple[float, float]) -> tuple[float, float]:
    """The width and height that a figure gets: those asked for, or the usual ones.

    Raises ValueError for anything but two numbers of inches between SMALLEST and LARGEST.
    """
    if figsize is None:
        return usual
    try:
        sides = [_validate.number("figsize", side, SMALLEST, LARGEST) for side in figsize]
    except (TypeError, ValueError):
        sides = []
    if len(sides) != 2:
        raise ValueError(
            f"figsize must be two numbers of inches, width and height, each from {SMALLEST} to "
            f"{LARGEST}, got {_validate.shown(figsize)}."
        )
    return sides[0], sides[1]


def fonts(bold: bool = False) -> list[str]:
    """Installed fonts: the reader's own, then those of FONTS. A missing one would print a warning.

    So would bold letters in a font that has none; `bold` leaves such fonts out.
    """
    chosen = [name for family in plt.rcParams["font.family"] for name in _expanded(family)]
    return _installed([*chosen, *FONTS], bold)


def _installed(names: Sequence[str], bold: bool = False) -> list[str]:
    """Those of these fonts that are installed, each once, spelled as they call themselves."""
    known = font_manager.fontManager.ttflist
    found = [font.name for font in known if not bold or font.weight in (700, "bold")]
    spelled = {name.lower(): name for name in found}  # matplotlib does not look at capitals either
    return list(dict.fromkeys(spelled[n.lower()] for n in names if n.lower() in spelled))


def _expanded(family: str) -> list[str]:
    """The fonts of a family: "sans-serif" and the like are lists in rcParams."""
    generic = "sans-serif" if family in ("sans", "sans serif") else family
    return plt.rcParams[f"font.{generic}"] if _is_generic(family) else [family]


def _is_generic(family: str) -> bool:
    return family in font_manager.font_family_aliases


def _is_known(family: str) -> bool:
    return _is_generic(family) or bool(_installed([family]))


def light(colour: str) -> Colormap:
    """A colour map from white, which is 0, through this colour to a dark shade of it."""
    dark = sns.set_hls_values(colour, l=0.18)
    return LinearSegmentedColormap.from_list(colour, [(0, "white"), (0.7, colour), (1, dark)])


CMAPS = {name: light(shade) for name, shade in PALETTE.items()}
DIFFERENCES = "PuOr"


def colour(stage: str) -> str:
    """The colour of a stage; one that is new gets a colour of its own too."""
    return PALETTE.get(stage, OTHERS[0])


def stage_cmap(stage: str) -> Colormap:
    """The colour map of a stage, from white through its colour."""
    return CMAPS.get(stage) or light(colour(stage))


def ramp(n: int) -> list[tuple]:
    """A colour for each of n layers, from light to dark."""
    return sns.blend_palette(["#8f72c4", "#1d0b3d"], max(n, 2))[:n]


def appearance(name: str, n: int) -> tuple:
    """Colour, dash and marker of the line with this name, the n-th of a picture.

    A name such as "rollout Attn-W, measured" has the colour of its stage and the dash of rollout;
    "rollout" and "flow" alone have the same colour and differ in their dashes.
    """
    words = [word.strip(",:()") for word in name.split()]
    dash = next((DASHES[word] for word in words if word in DASHES), SOLID)
    other = OTHERS[n % len(OTHERS)] if dash == SOLID else OTHERS[-1]
    colour = next((MEANINGS[word] for word in words if word in MEANINGS), other)
    return colour, dash, "osD^v<>"[n % 7]


def on_white(colour) -> tuple:
    """The colour, or a darker shade of it if words in it could not be read on white."""
    colour = to_rgb(colour)
    while 1.05 / (relative_luminance(colour) + 0.05) < 4.5:  # the contrast that WCAG 2.1 asks for
        colour = tuple(0.95 * part for part in colour)
    return colour
