"""The studies of the paper's two small data sets on 100 splits, as many as the paper has.

    python scripts/study_splits.py runs/studies_100 --device cuda

One net per split instead of ten: as many nets as ten splits of ten, and less chance, because
splits differ more than nets do. The ablation has ten nets, as its bags are printed too. Seoul bike
is left out: its share of 1,000 fits takes ten times as long as both together.
`muddle study table runs/studies_100 --out results/studies_100` makes the tables.
"""

import argparse
from pathlib import Path

from muddle_bench.run.records import Store
from muddle_bench.studies.points import NOISY, STUDIES, choose_points, make_methods
from muddle_bench.studies.running import run_points

DATASETS = [NOISY, "qsar-aquatic-toxicity"]
WITH_BAGS = "ablation"
METHODS = make_methods(n_nets=1)


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="of the records")
    parser.add_argument("--splits", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data-home", default=None)
    arguments = parser.parse_args(given)
    options = {
        "splits": arguments.splits,
        "device": arguments.device,
        "data_home": arguments.data_home,
    }
    # Points of the ablation that other studies share have ten nets in all of them.
    bags = choose_points([WITH_BAGS], DATASETS)
    names = {point.variant.name for point in bags}
    others = [name for name in STUDIES if name != WITH_BAGS]
    rest = [p for p in choose_points(others, DATASETS) if p.variant.name not in names]
    store = Store(arguments.folder)
    run_points(rest, store, plugin=Path(__file__), **options)
    run_points(bags, store, **options)


if __name__ == "__main__":
    main()
