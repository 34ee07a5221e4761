"""Ranks and comparisons of methods, from the exported table of a benchmark; needs no torch."""

from muddle_bench.ranking.duels import compare_with, find_signal, name_kinds, wins_by_dataset
from muddle_bench.ranking.families import (
    PUBLISHED_NAMES,
    compare_published,
    compare_published_classes,
    published_classes,
    published_scores,
    rank_families,
    summarise_published,
)
from muddle_bench.ranking.ranks import (
    Scores,
    by_dataset,
    coverage,
    list_failures,
    rank_methods,
    score_pairs,
    widen,
    win_rates,
    win_rates_against,
)
from muddle_bench.ranking.results_table import (
    COLUMNS,
    MAIN_METRICS,
    METRICS,
    Metric,
    list_metrics,
    read_table,
    to_latex,
)
from muddle_bench.ranking.significance import RankComparison, compare_ranks

__all__ = ["COLUMNS", "MAIN_METRICS", "METRICS", "PUBLISHED_NAMES", "Metric", "RankComparison"]
__all__ += ["Scores", "by_dataset", "compare_published", "compare_published_classes"]
__all__ += ["compare_ranks", "compare_with", "coverage", "find_signal", "list_failures"]
__all__ += ["list_metrics", "name_kinds", "published_classes"]
__all__ += ["published_scores", "rank_families", "rank_methods", "read_table", "score_pairs"]
__all__ += ["summarise_published", "to_latex", "widen", "win_rates", "win_rates_against"]
__all__ += ["wins_by_dataset"]
