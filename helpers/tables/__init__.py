"""Many texts as tidy tables, and one text in every map beside every yardstick."""

from helpers.tables.texts import (
    CATEGORIES,
    categories,
    category_shares,
    frequency_ranks,
    mixing_table,
    token_table,
    traces,
)
from helpers.tables.yardsticks import MAPS, YARDSTICKS, Measured, measure, rank_correlation

__all__ = [
    "CATEGORIES",
    "MAPS",
    "YARDSTICKS",
    "Measured",
    "categories",
    "category_shares",
    "frequency_ranks",
    "measure",
    "mixing_table",
    "rank_correlation",
    "token_table",
    "traces",
]
