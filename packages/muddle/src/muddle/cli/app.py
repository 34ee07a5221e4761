"""The app `muddle`: its commands with their options and help, errors in one line, plugins.

The work of the six commands is done in fitting.py, predicting.py and info.py; the first two are
imported when a command runs, so that `--help` does not wait for pandas.
"""

from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup

from muddle import __version__
from muddle.cli.info import describe_model, is_model, load_model, print_info, report_model
from muddle.cli.output import (
    AsJson,
    Notes,
    Task,
    echo,
    finite,
    option,
    print_importances,
    print_json,
    translate,
)
from muddle.errors import MissingPackageError, MuddleError
from muddle.page.html import count
from muddle_runtime.findings import list_names
from muddle_runtime.whole_file import FULL

if TYPE_CHECKING:
    from muddle.cli.predicting import Asked, Outputs
    from muddle.tables.read import TextOptions

OPTIONS: dict[str, Any] = {"pretty_exceptions_enable": False, "rich_markup_mode": "markdown"}
INTERRUPTED = 130  # the exit code that shells expect after Ctrl-C
# Commands of other packages: each entry point is a function that adds its commands to the app.
PLUGINS = "muddle.commands"
BENCH_COMMANDS = ("datasets", "methods", "benchmark", "study", "report")


class PlainFlags:
    """Help in which a flag has no value; typer would show `<bool>` beside it."""

    def get_params(self, ctx: Any) -> Any:
        params = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False) and param.metavar is None:
                param.metavar = ""
        return params


class PlainCommand(PlainFlags, TyperCommand):
    pass


class PlainGroup(PlainFlags, TyperGroup):
    pass


class OneLineErrors(PlainGroup):
    """Prints errors that a user can act on as one line; with --debug they are raised."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            echo("Stopped.", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:  # as in `muddle datasets | head`; typer ends quietly
            raise
        except (MuddleError, ValueError, OSError) as error:
            if ctx.params.get("debug"):
                raise
            echo(f"Error: {_write_error(error)}", err=True)
            raise typer.Exit(1) from error


def _write_error(error: Exception) -> str:
    """An error of the system names its file first."""
    if isinstance(error, OSError) and error.strerror:
        # `write_whole` names the files that fill a disk.
        place = error.filename or ("the standard output" if error.errno in FULL else None)
        return error.strerror if place is None else f"{place}: {error.strerror}"
    return translate(" ".join(str(error).splitlines()))


def make_app() -> typer.Typer:
    app = typer.Typer(cls=OneLineErrors, no_args_is_help=True, **OPTIONS)
    app.callback()(read_global_options)
    for command in (fit, predict, evaluate, explain, distil, info):
        app.command()(command)
    add_plugins(app)
    use_plain_flags(app)
    return app


def use_plain_flags(app: typer.Typer) -> None:
    for command in app.registered_commands:
        command.cls = PlainCommand
    for group in app.registered_groups:
        assert group.typer_instance is not None
        group.cls = PlainGroup
        use_plain_flags(group.typer_instance)


def add_plugins(app: typer.Typer) -> None:
    """Add the commands of other packages; without muddle-bench, its commands say how to get it."""
    for plugin in entry_points(group=PLUGINS):
        plugin.load()(app)
    known = {command.name for command in app.registered_commands}
    known |= {group.name for group in app.registered_groups}
    for name in BENCH_COMMANDS:
        if name not in known:
            settings = {"ignore_unknown_options": True, "allow_extra_args": True}
            command = report if name == "report" else ask_for_bench
            hidden = command is ask_for_bench
            app.command(name, hidden=hidden, context_settings=settings)(command)


def report(
    ctx: typer.Context,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file.")],
    output: Annotated[Path, option("--output -o FILE", "The page.")] = Path("report.html"),
) -> None:
    """Write one HTML page about a model."""
    if not is_model(model):
        ask_for_bench(ctx)
    report_model(model, output)


def ask_for_bench(ctx: typer.Context) -> None:
    raise MissingPackageError(
        f"`muddle {ctx.info_name}` needs the package muddle-bench: pip install muddle-bench."
    )


def print_version(asked: bool) -> None:
    if asked:
        echo(f"muddle {__version__}")
        raise typer.Exit()


def read_global_options(
    version: Annotated[
        bool, option("--version", "Print the version.", callback=print_version)
    ] = False,
    debug: Annotated[bool, option("--debug", "Show the traceback of an error.")] = False,
) -> None:
    """Fit models to small tables, use them, and compare methods."""


# Options that several commands share.


FILE_PANEL = "Format of the table"
SEARCH_PANEL = "Search over settings"
FOLDER_PANEL = "A folder of Parquet files"
TABLE_HELP = (
    "The table: CSV, TSV, Parquet or Feather; text may be gzipped. '-' is the standard input."
)
FOLDER_HELP = TABLE_HELP + " Or a folder of Parquet files."
Data = Annotated[str, typer.Argument(metavar="DATA", help=TABLE_HELP)]
Rows = Annotated[str, typer.Argument(metavar="DATA", help=FOLDER_HELP)]
Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="The model file that `muddle fit` wrote.")
]
OnBad = Annotated[
    Literal["raise", "skip"],
    option(
        "--on-bad-file",
        "A file of a folder that cannot be read, or has other columns: an error, or left out.",
        FOLDER_PANEL,
        metavar=None,
    ),
]
Separator = Annotated[
    str | None,
    option(
        "--separator CHARACTER",
        "Character between fields, 'tab' or 'blanks'. Default: guessed.",
        FILE_PANEL,
    ),
]
Encoding = Annotated[
    str, option("--encoding NAME", "Encoding of a text file, e.g. latin-1.", FILE_PANEL)
]
Decimal = Annotated[
    str | None,
    option(
        "--decimal SIGN",
        "Decimal sign: '.' (as in 1,234.5) or ',' (as in 1.234,5). Default: guessed.",
        FILE_PANEL,
    ),
]
NoHeader = Annotated[
    bool,
    option(
        "--no-header", "The first line is a row; the columns are named 0, 1, 2, ...", FILE_PANEL
    ),
]
TargetColumn = Annotated[
    str | None,
    option(
        "--target COLUMN",
        "Column with the true values. Default: the target's name in the training table.",
    ),
]
DeviceName = Annotated[str, option("--device NAME", "Device: auto, cpu, cuda or cuda:1.")]
Seed = Annotated[
    int, option("--seed N", "Random seed; the same seed gives the same result.", min=0)
]
Quiet = Annotated[bool, option("--quiet -q", "Print neither progress nor notes.")]


def read_text_options(
    separator: str | None, encoding: str, decimal: str | None, no_header: bool
) -> "TextOptions":
    from muddle.tables.read import TextOptions

    named = {"tab": "\t", "\\t": "\t", "blanks": " ", "blank": " "}
    character = None if separator is None else named.get(separator, separator)
    if character is not None and (len(character) != 1 or character in '"\r\n'):
        raise ValueError(
            "--separator must be one character, 'tab' or 'blanks' (any run of blanks), got "
            f"{separator!r}."
        )
    if decimal not in (None, ".", ","):
        raise ValueError(f"--decimal must be '.' or ',', got {decimal!r}.")
    return TextOptions(
        separator=character, encoding=encoding, decimal=decimal, header=not no_header
    )


def refuse_overwriting(output: str | Path, *inputs: str | Path) -> None:
    """Raise if an output would replace an input."""
    place = Path(output).expanduser()
    for source in (Path(path).expanduser() for path in inputs):
        if place.exists() and source.exists() and place.samefile(source):
            raise ValueError(
                f"the output must not be a file that is read, got {output}. Choose another name."
            )


# The commands.


def fit(
    data: Rows,
    target: Annotated[
        list[str], option("--target COLUMN", "Column to predict. Repeatable, for numbers.")
    ],
    output: Annotated[
        Path, option("--output -o FILE", "Model file to write; replaced if it exists.")
    ],
    task: Annotated[
        Task | None,
        option("--task", "Kind of target. Default: guessed from the column.", metavar=None),
    ] = None,
    time_limit: Annotated[
        float | None, option("--time-limit SECONDS", "Limit for the whole fit.", min=0)
    ] = None,
    preset: Annotated[
        Literal["fast", "default", "best", "compact"],
        option(
            "--preset",
            "How much to train; compact: as default, and one small net learns to answer like it.",
            metavar=None,
        ),
    ] = "default",
    search: Annotated[
        int | None,
        option(
            "--search N",
            "Try N settings of --model and fit the best (needs optuna).",
            SEARCH_PANEL,
            min=1,
        ),
    ] = None,
    model: Annotated[
        Literal["flagship", "bag", "mlr"],
        option(
            "--model",
            "What to search: the flagship, a bag of MLR nets or one net.",
            SEARCH_PANEL,
            metavar=None,
        ),
    ] = "flagship",
    search_storage: Annotated[
        Path | None,
        option(
            "--search-storage FILE",
            "Keep the search in this file; the same command goes on where it was interrupted.",
            SEARCH_PANEL,
        ),
    ] = None,
    without_rows: Annotated[
        bool,
        option(
            "--without-rows", "Keep no single training row in the model: no kernel, larger leaves."
        ),
    ] = False,
    drop: Annotated[
        list[str] | None, option("--drop COLUMN", "Column to leave out. Repeatable.")
    ] = None,
    categorical: Annotated[
        list[str] | None,
        option(
            "--categorical COLUMN",
            "Column to read as categories even if it contains numbers. Repeatable.",
        ),
    ] = None,
    weight: Annotated[
        str | None, option("--weight COLUMN", "Column with the weight of each row, 0 or more.")
    ] = None,
    groups: Annotated[
        str | None,
        option(
            "--groups COLUMN",
            "Column that says which rows belong together, such as a patient; it is no feature. "
            "Scores and intervals are then for new groups.",
        ),
    ] = None,
    time: Annotated[
        str | None,
        option(
            "--time COLUMN",
            "Column of numbers or dates in whose order rows are held out: later ones are predicted "
            "from earlier ones. It stays a feature unless dropped.",
        ),
    ] = None,
    report: Annotated[
        Path | None, option("--report FILE", "Also write a report on the fit (HTML).")
    ] = None,
    device: DeviceName = "auto",
    seed: Seed = 0,
    missing: Annotated[
        list[str] | None,
        option(
            "--missing TEXT",
            "Text that means a missing value, besides '', '?', NA, nan, null. Repeatable.",
            FILE_PANEL,
        ),
    ] = None,
    on_bad_file: OnBad = "raise",
    separator: Separator = None,
    encoding: Encoding = "utf-8",
    decimal: Decimal = None,
    no_header: NoHeader = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Fit a model to a table, or to a folder of Parquet files, and write it to a file."""
    options = read_text_options(separator, encoding, decimal, no_header)
    from muddle.cli import fitting

    output = output.expanduser()  # shells leave ~ as it is in --output=~/m.muddle
    report = None if report is None else report.expanduser()
    fitting.check_outputs(output, report)
    sought = None
    if search is None:
        for name, given in (("--model", model != "flagship"), ("--search-storage", search_storage)):
            if given:
                raise ValueError(f"{name} is an option of a search: pass --search N, too.")
    else:
        from muddle.cli.searching import Search

        if preset != "default" or (without_rows and model != "flagship"):
            name = "--preset" if preset != "default" else "--without-rows"
            raise ValueError(
                f"{name} does not go with --search"
                + (f" of --model {model}." if model != "flagship" else ", which chooses it.")
            )
        search_storage = None if search_storage is None else search_storage.expanduser()
        sought = Search(search, model, search_storage)
        sought.check()
    for path in filter(None, (output, report, search_storage)):
        refuse_overwriting(path, data)
    columns = fitting.Columns(
        target,
        weight,
        drop=drop or [],
        groups=groups,
        time=time,
        categorical=categorical or [],
        missing=missing or [],
    )
    notes = Notes(quiet)
    settings = {"preset": preset, "time_limit": time_limit, "device": device, "random_state": seed}
    settings["keep_rows"] = not without_rows
    if Path(data).expanduser().is_dir():
        rows_only: dict[str, Any] = {"--weight": weight, "--groups": groups, "--time": time}
        rows_only |= {"--search": search, "--report": report}
        for name, value in rows_only.items():
            if value is not None:
                raise ValueError(f"{name} goes with a file, got it with the folder {data}.")
        place = Path(data).expanduser()
        _, result = fitting.fit_folder(place, columns, task, settings, on_bad_file, output, notes)
        if as_json:
            print_json(finite(result))
        else:
            fitting.print_fit(result)
        return
    training = fitting.read_training(data, options, columns, task, notes)
    if not (quiet or as_json):
        n_rows, n_columns = training.X.shape
        targets = f"target{'' if len(target) == 1 else 's'} {list_names(target, len(target))}"
        about = f"{n_rows:,} rows, {count(n_columns, 'feature')}, {targets}"
        echo(f"{training.title}: {about}: {training.task}")
    estimator, result = fitting.fit_model(training, columns, settings, output, notes, sought)
    if not as_json:  # before the report, which may take long or fail: the model is saved
        fitting.print_fit(result)
    try:
        if report is not None:
            if not quiet:
                echo(f"Writing {report}", err=True)
            fitting.write_report(estimator, training, columns, report, notes)
            result["report"] = str(report)
            if not as_json:
                echo(f"Wrote {report}")
    finally:
        if as_json:
            print_json(finite(result))


def predict(
    model: Model,
    data: Rows,
    output: Annotated[
        str,
        option(
            "--output -o FILE",
            "File to write: .csv, .tsv (both also .gz), .parquet or .feather. '-' is the "
            "standard output.",
        ),
    ] = "-",
    proba: Annotated[bool, option("--proba", "Add the probability of each class.")] = False,
    interval: Annotated[
        float | None,
        option(
            "--interval COVERAGE",
            "Add the bounds of prediction intervals with this coverage, e.g. 0.9.",
        ),
    ] = None,
    quantile: Annotated[
        list[float] | None, option("--quantile LEVEL", "Add this quantile. Repeatable.")
    ] = None,
    set_: Annotated[
        float | None,
        option(
            "--set COVERAGE",
            "Add for each class whether it is in a set that holds the true class with this "
            "probability, e.g. 0.9.",
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        option("--keep COLUMN", "Columns of DATA to copy to the front of the output. Repeatable."),
    ] = None,
    keep_all: Annotated[
        bool, option("--keep-all", "Copy all columns of DATA to the front of the output.")
    ] = False,
    escape_formulas: Annotated[
        bool,
        option(
            "--escape-formulas",
            "Put an apostrophe before texts that a spreadsheet would run as a formula.",
        ),
    ] = False,
    chunk_rows: Annotated[
        int, option("--chunk-rows N", "Rows to hold in memory at a time.", min=1)
    ] = 10_000,
    jobs: Annotated[
        int | None,
        option("--jobs N", "Processes for a folder. Default: one per core.", FOLDER_PANEL, min=1),
    ] = None,
    remake: Annotated[
        bool,
        option(
            "--remake", "Write parts anew that another model or other options made.", FOLDER_PANEL
        ),
    ] = False,
    on_bad_file: OnBad = "raise",
    device: DeviceName = "cpu",
    separator: Separator = None,
    encoding: Encoding = "utf-8",
    decimal: Decimal = None,
    no_header: NoHeader = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Predict the rows of a table, which may be larger than memory, or of a folder of Parquet."""
    options = read_text_options(separator, encoding, decimal, no_header)
    from muddle.cli import predicting
    from muddle.tables.write import check_output

    if keep and keep_all:
        raise ValueError("--keep and --keep-all exclude each other: pass one of them.")
    if Path(data).expanduser().is_dir():
        outputs = predicting.Outputs(
            proba=proba, interval=interval, quantiles=tuple(quantile or ()), sets=set_
        )
        if device != "cpu" or escape_formulas:
            name = "--escape-formulas" if escape_formulas else "--device"
            raise ValueError(f"{name} does not go with a folder, whose parts are Parquet.")
        if output == "-":
            raise ValueError("--output must name a folder if DATA is one: pass -o FOLDER.")
        _predict_folder(
            model,
            Path(data),
            Path(output),
            outputs,
            None if keep_all else keep or [],
            {
                "chunk_rows": chunk_rows,
                "n_jobs": jobs,
                "on_bad_file": on_bad_file,
                "remake": remake,
            },
            quiet,
            as_json,
        )
        return
    for name, given in (("--jobs", jobs is not None), ("--remake", remake)):
        if given:
            raise ValueError(f"{name} goes with a folder of Parquet files, got the file {data}.")
    check_output(output)
    refuse_overwriting(output, data, model)
    notes = Notes(quiet)
    with notes.take_warnings():
        fitted = load_model(model, device=device)
    outputs = predicting.Outputs(
        proba=proba, interval=interval, quantiles=tuple(quantile or ()), sets=set_
    )
    predicting.check_outputs(outputs, fitted)
    n_rows = predicting.predict_file(
        fitted,
        data,
        options,
        output,
        notes,
        outputs=outputs,
        keep=None if keep_all else keep or [],
        chunk_rows=chunk_rows,
        as_json=as_json,
        escape_formulas=escape_formulas,
    )
    if output == "-":
        return
    if as_json:
        print_json({"output": output, "rows": n_rows, "notes": notes.texts})
    elif not quiet:
        echo(f"Wrote {output}: {n_rows:,} rows")


def _predict_folder(
    model: Path,
    source: Path,
    output: Path,
    outputs: "Outputs",
    keep: list[str] | None,
    settings: dict[str, Any],
    quiet: bool,
    as_json: bool,
) -> None:
    """`muddle predict MODEL FOLDER`."""
    from muddle.cli import bulk, predicting

    notes = Notes(quiet)
    with notes.take_warnings():
        predicting.check_outputs(outputs, load_model(model))
        result = bulk.predict_folder(
            model,
            source.expanduser(),
            output.expanduser(),
            notes,
            outputs=outputs,
            keep=keep,
            **settings,
        )
    if as_json:
        print_json(finite(result))
    elif not quiet:
        bulk.print_predicted(result)


def evaluate(
    model: Model,
    data: Data,
    target: TargetColumn = None,
    interval: Annotated[
        float, option("--interval COVERAGE", "Coverage of the intervals to check.")
    ] = 0.9,
    device: DeviceName = "cpu",
    separator: Separator = None,
    encoding: Encoding = "utf-8",
    decimal: Decimal = None,
    no_header: NoHeader = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Score a model on rows whose target is known."""
    options = read_text_options(separator, encoding, decimal, no_header)
    from muddle.cli import predicting

    notes = Notes(quiet)
    with notes.take_warnings():
        fitted = load_model(model, device=device)
        result = predicting.evaluate_file(fitted, data, options, target, interval, notes)
    if as_json:
        print_json(finite({"model": str(model), **result, "notes": notes.texts}))
    else:
        predicting.print_evaluation(result)


def explain(
    model: Model,
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA", help=TABLE_HELP + " Without it: the importances from the fit."
        ),
    ] = None,
    target: TargetColumn = None,
    plot: Annotated[
        Path | None, option("--plot FILE", "Also draw a picture: PNG, SVG or PDF.")
    ] = None,
    top: Annotated[
        int | None,
        option(
            "--top N", "Number of columns to show. Default: 20, or 3 in lines of --rows.", min=1
        ),
    ] = None,
    repeats: Annotated[int, option("--repeats N", "Shuffles per column.", min=1)] = 5,
    max_rows: Annotated[
        int | None,
        option(
            "--max-rows N",
            "Rows of DATA to use, drawn at random. Default: 1,000, or 100 with --rows.",
            min=1,
        ),
    ] = None,
    rows: Annotated[
        bool,
        option("--rows", "Explain each row of DATA: how far each column moved its prediction."),
    ] = False,
    output: Annotated[
        str | None,
        option(
            "--output -o FILE",
            "Table of all values of --rows: .csv, .tsv (both also .gz), .parquet or .feather.",
        ),
    ] = None,
    of: Annotated[
        str | None,
        option(
            "--of NAME",
            "With --rows: the class or target to explain. Default: the class that is predicted.",
        ),
    ] = None,
    log_odds: Annotated[
        bool, option("--log-odds", "With --rows: explain log-odds, not probabilities.")
    ] = False,
    background: Annotated[
        str | None,
        option(
            "--background FILE",
            "With --rows: a table of rows to compare with. Default: those that the model keeps.",
        ),
    ] = None,
    max_seconds: Annotated[
        float | None, option("--max-seconds SECONDS", "With --rows: time to take at most.")
    ] = None,
    seed: Seed = 0,
    device: DeviceName = "cpu",
    separator: Separator = None,
    encoding: Encoding = "utf-8",
    decimal: Decimal = None,
    no_header: NoHeader = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Rank the columns of a table by their importance to a model, or explain each of its rows."""
    options = read_text_options(separator, encoding, decimal, no_header)
    from muddle.cli import predicting

    if plot is not None:
        predicting.check_plot(plot)
        refuse_overwriting(plot, model, *filter(None, [data]))
    own = {"--output": output, "--of": of, "--background": background, "--max-seconds": max_seconds}
    given = [name for name, value in own.items() if value is not None]
    given += ["--log-odds"] if log_odds else []
    notes = Notes(quiet)
    if rows:
        asked = predicting.Asked(
            of=of,
            log_odds=log_odds,
            background=background,
            max_rows=max_rows or predicting.MOST_EXPLAINED,
            max_seconds=max_seconds,
            seed=seed,
        )
        _explain_rows(
            model, data, options, target, asked, output, plot, top, device, notes, as_json
        )
        return
    if given:
        raise ValueError(f"{given[0]} goes with --rows, which explains each row of DATA.")
    if max_rows == 1:
        raise ValueError("--max-rows must be at least 2 without --rows, got 1: rows are shuffled.")
    found = None
    with notes.take_warnings():
        fitted = load_model(model, device=device)
        if data is not None:
            most = max_rows or 1000
            found = predicting.explain_file(
                fitted, data, options, target, notes, max_rows=most, repeats=repeats, seed=seed
            )
        if found is None:
            found = predicting.read_importances(fitted, model)
    drawn, most = None, top or 20
    try:
        if plot is not None:
            predicting.draw_importances(plot, found["importances"], most)
            drawn = str(plot)
    finally:  # shuffling took its time
        if as_json:
            print_json({"model": str(model), **found, "plot": drawn, "notes": notes.texts})
        else:
            print_importances(found["importances"], f"{found['from']}: {found['measure']}", most)
    if drawn and not as_json:
        echo(f"Wrote {drawn}")


def _explain_rows(
    model: Path,
    data: str | None,
    options: "TextOptions",
    target: str | None,
    asked: "Asked",
    output: str | None,
    plot: Path | None,
    top: int | None,
    device: str,
    notes: Notes,
    as_json: bool,
) -> None:
    """`muddle explain MODEL DATA --rows`."""
    from muddle.cli import predicting
    from muddle.tables.write import check_output

    if data is None:
        raise ValueError("--rows explains the rows of DATA: pass a table.")
    if output is not None:
        check_output(output)
        refuse_overwriting(output, data, model)
    with notes.take_warnings():
        fitted = load_model(model, device=device)
        predicting.check_asked(asked, fitted, plot is not None)
        found, places = predicting.explain_rows(fitted, data, options, target, notes, asked)
    records = predicting.list_explained(found, places, asked.of)
    wrote = []
    try:
        if output is not None:
            predicting.write_explained(found, places, output)
            wrote.append(output)
        if plot is not None:
            predicting.draw_explained(plot, found, asked.of, top or 20)
            wrote.append(str(plot))
    finally:  # explaining took its time
        if as_json:
            about = {"model": str(model), "data": places.title, "rows": records}
            print_json({**about, "wrote": wrote, "notes": notes.texts})
        elif output != "-":
            title = predicting.describe_explained(found, places, asked.of)
            predicting.print_explained(records, title, top or 3)
    for path in wrote:
        if not as_json and path != "-":
            echo(f"Wrote {path}")


def distil(
    model: Model,
    output: Annotated[
        Path, option("--output -o FILE", "Model file to write; replaced if it exists.")
    ],
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help=TABLE_HELP + " Rows like those to come. Without it, they are made up from the "
            "model's summary of each column, which does not know how columns depend on each other.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        option(
            "--target COLUMN",
            "Column of DATA with true values that the model was not fitted on: intervals and "
            "probabilities are fitted on them.",
        ),
    ] = None,
    budget: Annotated[
        int | None, option("--budget N", "Weights of the net at most. Default: 100,000.")
    ] = None,
    time_limit: Annotated[
        float | None, option("--time-limit SECONDS", "Limit for the whole.", min=0)
    ] = None,
    device: DeviceName = "auto",
    separator: Separator = None,
    encoding: Encoding = "utf-8",
    decimal: Decimal = None,
    no_header: NoHeader = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Teach one small, fast net to answer like a model of `muddle fit`."""
    options = read_text_options(separator, encoding, decimal, no_header)
    from muddle.cli import fitting

    if target is not None and data is None:
        raise ValueError("--target is a column of DATA: pass DATA, too.")
    output = output.expanduser()
    fitting.check_outputs(output, None)
    refuse_overwriting(output, model, *filter(None, [data]))
    notes = Notes(quiet)
    settings: dict[str, Any] = {"time_limit": time_limit}
    if budget is not None:
        settings["budget"] = budget
    result = fitting.distil_model(model, data, options, target, settings, device, output, notes)
    if as_json:
        print_json(finite(result))
    elif not quiet:
        fitting.print_distilled(result)


def info(model: Model, as_json: AsJson = False) -> None:
    """Show a model file: the model, the columns it needs, its training."""
    facts = describe_model(model)
    if as_json:
        print_json(facts)
    else:
        print_info(facts)
