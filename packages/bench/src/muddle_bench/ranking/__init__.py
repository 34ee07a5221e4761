"""Ranks and comparisons of methods, from the exported table of a benchmark; needs no torch."""

from muddle_bench.ranking.duels import (
    average_datasets,
    bradley_terry,
    compare_with,
    find_signal,
    gains_by_dataset,
    lead_by_dataset,
    leave_out_presets,
    list_costs,
    list_fields,
    name_kinds,
    pivot_scores,
    wins_by_dataset,
)
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
from muddle_bench.ranking.significance import RankComparison, compare_ranks, paired_tests

__all__ = ["COLUMNS", "MAIN_METRICS", "METRICS", "PUBLISHED_NAMES", "Metric", "RankComparison"]
__all__ += ["Scores", "bradley_terry", "by_dataset", "compare_published"]
__all__ += ["compare_published_classes", "compare_ranks", "compare_with", "coverage", "find_signal"]
__all__ += ["lead_by_dataset", "leave_out_presets", "list_failures", "list_metrics", "name_kinds"]
__all__ += [
    "paired_tests",
    "pivot_scores",
    "published_classes",
    "published_scores",
    "rank_families",
]
__all__ += ["rank_methods", "read_table", "score_pairs", "summarise_published", "to_latex", "widen"]
__all__ += ["win_rates", "win_rates_against", "wins_by_dataset"]
__all__ += ["average_datasets", "gains_by_dataset", "list_costs", "list_fields"]
