"""Who is better, and by how much: from the exported table of a benchmark alone, without torch."""

from muddle_bench.ranking.comparison import (
    compare_published,
    compare_published_classes,
    summarise_published,
)
from muddle_bench.ranking.families import rank_families
from muddle_bench.ranking.published import PUBLISHED_NAMES, published_classes, published_scores
from muddle_bench.ranking.ranks import rank_methods, win_rates, win_rates_against
from muddle_bench.ranking.scores import (
    Scores,
    by_dataset,
    coverage,
    list_failures,
    score_pairs,
    widen,
)
from muddle_bench.ranking.significance import RankComparison, compare_ranks
from muddle_bench.ranking.tables import (
    COLUMNS,
    MAIN_METRICS,
    METRICS,
    Metric,
    list_metrics,
    read_table,
)
from muddle_bench.ranking.text import format_interval, format_number, to_latex

__all__ = [
    "COLUMNS",
    "MAIN_METRICS",
    "METRICS",
    "PUBLISHED_NAMES",
    "Metric",
    "RankComparison",
    "Scores",
    "by_dataset",
    "compare_published",
    "compare_published_classes",
    "compare_ranks",
    "coverage",
    "format_interval",
    "format_number",
    "list_failures",
    "list_metrics",
    "published_classes",
    "published_scores",
    "rank_families",
    "rank_methods",
    "read_table",
    "score_pairs",
    "summarise_published",
    "to_latex",
    "widen",
    "win_rates",
    "win_rates_against",
]
