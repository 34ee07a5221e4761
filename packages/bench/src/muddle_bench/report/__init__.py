"""The exported table of a benchmark as one page, with its tables as files beside it; no torch."""

from muddle_bench.report.benchmark_page import write_report

__all__ = ["write_report"]
