"""muddle study: ablation, dependence, all, list, table, record, figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from muddle.cli.output import (
    AsJson,
    DataHome,
    count,
    print_json,
    print_table,
    warn,
    warn_damaged,
)
from muddle_bench.cli.benchmark import read_splits, require_folder
from muddle_bench.cli.choices import Backend, Device, Folder, Precision, Retry
from muddle_bench.cli.run_options import (
    HOW,
    WHAT,
    WHERE,
    Address,
    Debug,
    Jobs,
    OnBackend,
    Quiet,
    Resume,
    RunDataHome,
    Threads,
    TimeLimit,
    check_fresh,
    end_at_interrupt,
)

RUNS = Path("runs/studies")
TABLES = Path("results/studies")

Datasets = Annotated[
    list[str] | None,
    typer.Option(
        "--dataset",
        metavar="ID",
        help="A data set, instead of all of the study's. Repeatable.",
        rich_help_panel=WHAT,
    ),
]
Splits = Annotated[
    str,
    typer.Option(
        "--splits",
        metavar="SPLITS",
        help="How many (10: those from 0 to 9; the paper has 100), or which: 0-4, or 3,7.",
        rich_help_panel=WHAT,
    ),
]
Retries = Annotated[
    list[Retry] | None,
    typer.Option(
        "--retry",
        metavar="STATE",
        help="Run these again: failed, timeout, or stale (the settings have changed). Repeatable.",
        rich_help_panel=WHAT,
    ),
]
OnDevice = Annotated[
    Device, typer.Option("--device", help="Where nets are trained.", rich_help_panel=HOW)
]
Together = Annotated[
    bool | None,
    typer.Option(
        "--together/--apart",
        help="The splits of a point in one call, as more nets side by side, or one by one. "
        "Default: together on CUDA. Scores are the same.",
        rich_help_panel=HOW,
    ),
]
InPrecision = Annotated[
    Precision,
    typer.Option(
        "--precision",
        help="Of the products of hidden layers; reduced: TF32 on CUDA, bfloat16 on the CPU.",
        rich_help_panel=HOW,
    ),
]
RunFolder = Annotated[
    Path, typer.Option("--folder", "-f", help="Of the records.", rich_help_panel=WHERE)
]
Out = Annotated[Path, typer.Option("--out", "-o", help="Takes the tables.")]


@dataclass(frozen=True, kw_only=True)
class Options:
    """How studies run, the same for all commands that run some."""

    splits: str
    retry: list[Retry] | None
    time_limit: float | None
    jobs: int | None
    threads: int | None
    device: Device
    precision: Precision
    together: bool | None
    backend: Backend
    address: str | None
    debug: bool
    quiet: bool
    folder: Path
    resume: bool
    data_home: Path | None


def run_ablation(
    context: typer.Context,
    datasets: Datasets = None,
    splits: Splits = "10",
    retry: Retries = None,
    time_limit: TimeLimit = None,
    jobs: Jobs = None,
    threads: Threads = None,
    device: OnDevice = Device.cpu,
    precision: InPrecision = Precision.float32,
    together: Together = None,
    backend: OnBackend = Backend.loky,
    address: Address = None,
    debug: Debug = False,
    quiet: Quiet = False,
    folder: RunFolder = RUNS,
    resume: Resume = True,
    data_home: RunDataHome = None,
) -> None:
    """Take MLR apart: a plain net, ridge, structured dithering, permutations, all of it.

    Also what the paper does not show: losses, activations, the rows of the head, classification.

    Example: `muddle study ablation --dataset concrete-slump-test-3 --splits 3`
    """
    from muddle_bench.studies.points import ABLATIONS

    _run(context, ABLATIONS, datasets, _options(locals()))


def run_dependence(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="structured_noise, permutations, ridge_init, label_noise, width, batch_size or "
            "depth.",
        ),
    ],
    datasets: Datasets = None,
    splits: Splits = "10",
    retry: Retries = None,
    time_limit: TimeLimit = None,
    jobs: Jobs = None,
    threads: Threads = None,
    device: OnDevice = Device.cpu,
    precision: InPrecision = Precision.float32,
    together: Together = None,
    backend: OnBackend = Backend.loky,
    address: Address = None,
    debug: Debug = False,
    quiet: Quiet = False,
    folder: RunFolder = RUNS,
    resume: Resume = True,
    data_home: RunDataHome = None,
) -> None:
    """Vary one setting over the values that the paper shows.

    Example: `muddle study dependence width --device cuda --splits 100`
    """
    from muddle_bench.studies.points import DEPENDENCES, find_study

    _run(context, [find_study(name, DEPENDENCES).name], datasets, _options(locals()))


def run_all(
    context: typer.Context,
    datasets: Datasets = None,
    splits: Splits = "10",
    retry: Retries = None,
    time_limit: TimeLimit = None,
    jobs: Jobs = None,
    threads: Threads = None,
    device: OnDevice = Device.cpu,
    precision: InPrecision = Precision.float32,
    together: Together = None,
    backend: OnBackend = Backend.loky,
    address: Address = None,
    debug: Debug = False,
    quiet: Quiet = False,
    folder: RunFolder = RUNS,
    resume: Resume = True,
    data_home: RunDataHome = None,
) -> None:
    """Run every study, or go on with them: points that have a record are not run again.

    Example: `muddle study all --device cuda`
    """
    from muddle_bench.studies.points import STUDIES

    _run(context, list(STUDIES), datasets, _options(locals()))


def _options(given: dict[str, object]) -> Options:
    """Of a command's arguments, those that say how to run."""
    return Options(**{name: given[name] for name in Options.__dataclass_fields__})  # type: ignore[arg-type]


def _run(
    context: typer.Context, names: Sequence[str], datasets: list[str] | None, options: Options
) -> None:
    from muddle_bench.run.progress import make_reporter
    from muddle_bench.run.store import Store
    from muddle_bench.studies.points import choose_points
    from muddle_bench.studies.running import run_points

    if options.debug:
        context.find_root().params["debug"] = True  # where errors are shown
    points = choose_points(names, datasets)
    folder = options.folder
    check_fresh(folder, resume=options.resume)
    with end_at_interrupt(quiet=options.quiet):
        summary = run_points(
            points,
            Store(folder),
            splits=read_splits(options.splits),
            together=options.together,
            time_limit=options.time_limit,
            jobs=options.jobs,
            threads=options.threads,
            device=options.device.value,
            backend=options.backend.value,
            address=options.address,
            data_home=options.data_home,
            retry=["skipped", *(state.value for state in options.retry or ())],
            debug=options.debug,
            reporter=make_reporter(quiet=options.quiet),
            precision=options.precision.value,
        )
    if not summary.n_planned:
        typer.echo(f"Nothing to do: {folder} has a record of each of the {summary.n_before} cells.")
    elif options.quiet:  # otherwise the progress has ended with the counts
        typer.echo(f"{summary}, in {folder}")
    typer.echo(f"Next: muddle study table {folder}")


def list_studies(as_json: AsJson = False) -> None:
    """List the studies: how many points each has, on which data sets."""
    from muddle_bench.studies.points import STUDIES

    rows = [
        {
            "study": study.name,
            "points": len(study.points),
            "datasets": len(study.datasets),
            "about": study.title,
        }
        for study in STUDIES.values()
    ]
    if as_json:
        print_json(rows)
    else:
        print_table(["study", "points", "datasets", "about"], rows, wrap=["about"])


def write_study_tables(
    folder: Folder = RUNS,
    out: Out = TABLES,
    commit: Annotated[
        str,
        typer.Option(
            "--commit", metavar="TEXT", help="Of the code, where records do not know theirs."
        ),
    ] = "",
) -> None:
    """Write one table per study from the records, with the published numbers beside ours.

    Example: `muddle study table runs/studies --out results/studies`
    """
    from muddle_bench.run.store import Store
    from muddle_bench.studies.tables import write_tables

    written = write_tables(Store(require_folder(folder)), out, commit=commit)
    warn_damaged(written.damaged)
    if not written.paths:
        raise ValueError(
            f"there are no records of studies in {folder}. `muddle study all` makes some."
        )
    for name, n_missing in written.n_missing.items():
        if n_missing:
            warn(f"{name}: {count(n_missing, 'row')} without a score")
    typer.echo(f"{count(len(written.paths), 'table')} in {out}")


def write_history(
    dataset: Annotated[
        str, typer.Argument(metavar="ID", help="A regression data set.")
    ] = "concrete-slump-test-3",
    out: Out = TABLES,
    device: Annotated[Device, typer.Option("--device", help="Where it is trained.")] = Device.cpu,
    data_home: DataHome = None,
) -> None:
    """Train one net and write its validation score and penalty, iteration by iteration.

    Example: `muddle study record qsar-aquatic-toxicity`
    """
    from muddle_bench.studies.training_record import write_training_record

    path = write_training_record(out, dataset, device=device.value, data_home=data_home)
    typer.echo(f"{path}")


def write_study_figures(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Tables of `muddle study table`.")
    ] = TABLES,
    out: Annotated[Path, typer.Option("--out", "-o", help="Takes the figures.")] = TABLES,
) -> None:
    """Draw every study that has a table, as SVG and PNG.

    Example: `muddle study figures results/studies --out figures`
    """
    from muddle_bench.studies.figures import write_figures

    paths = write_figures(folder, out)
    if not paths:
        raise ValueError(f"there are no tables of studies in {folder}: `muddle study table` first.")
    typer.echo(f"{count(len(paths), 'file')} in {out}")
