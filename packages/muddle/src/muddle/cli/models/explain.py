"""muddle explain: what a model looks at."""

from pathlib import Path
from typing import Annotated, Any

import typer

from muddle.cli.models.options import (
    TABLE_HELP,
    Decimal,
    DeviceName,
    Encoding,
    Model,
    ModelRuntime,
    NoHeader,
    Quiet,
    Runtime,
    Separator,
    Target,
    read_text_options,
    refuse_overwriting,
)
from muddle.cli.output import AsJson, make_console, print_json

PICTURES = (".png", ".svg", ".pdf")


def explain_model(
    model: Model,
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="[DATA]", help=TABLE_HELP + " Without it: what was found in the fit."
        ),
    ] = None,
    target: Target = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Also a picture: PNG, SVG or PDF.")
    ] = None,
    top: Annotated[int, typer.Option("--top", metavar="N", min=1, help="Columns shown.")] = 20,
    repeats: Annotated[
        int, typer.Option("--repeats", metavar="N", min=1, help="Shuffles of each column.")
    ] = 5,
    max_rows: Annotated[
        int,
        typer.Option("--max-rows", metavar="N", min=2, help="Of DATA, drawn at random."),
    ] = 1000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same gives the same.")] = 0,
    runtime: Runtime = ModelRuntime.torch,
    device: DeviceName = "auto",
    separator: Separator = None,
    encoding: Encoding = "utf-8",
    decimal: Decimal = None,
    no_header: NoHeader = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Rank the columns of a table by what they are worth to a model."""
    options = read_text_options(separator, encoding, decimal, no_header)
    if plot is not None:
        check_plot(plot, model, data)
    from muddle.cli.models.answers import load_model
    from muddle.cli.models.explain_columns import explain_rows, read_stored
    from muddle.cli.models.notes import Notes
    from muddle.cli.models.printing import print_importances
    from muddle.table_files.sources import check_source

    if data is not None:
        check_source(data)
    notes = Notes(quiet)
    with notes.take_warnings():
        loaded = load_model(model, runtime=runtime.value, device=device)
        found = None
        if data is not None:
            found = explain_rows(
                loaded, data, options, target, notes, max_rows=max_rows, repeats=repeats, seed=seed
            )
        if found is None:
            found = read_stored(loaded)
    if plot is not None:
        draw(plot, found.rows, top)
    if as_json:
        print_json(
            {
                "model": str(model),
                "from": found.source,
                "measure": found.measure,
                "importances": found.rows,
                "plot": None if plot is None else str(plot),
                "notes": notes.said,
            }
        )
        return
    print_importances(found.rows, f"{found.source}: {found.measure}", top)
    if plot is not None:
        make_console().print(f"Wrote {plot}", soft_wrap=True)


def check_plot(plot: Path, model: Path, data: str | None) -> None:
    """An error, before any work, where the picture cannot be drawn or written."""
    from muddle.errors import MissingPackageError
    from muddle_runtime.whole_file import check_place

    if plot.suffix.lower() not in PICTURES:
        raise ValueError(f"--plot must end in {', '.join(PICTURES)}, got {plot}.")
    check_place(plot.expanduser())
    refuse_overwriting(plot, [model] if data is None else [model, data])
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingPackageError(
            "--plot needs the package matplotlib: pip install 'muddle[plot]'."
        ) from error


def draw(path: Path, rows: list[dict[str, Any]], top: int) -> None:
    """Write the picture, whole or not at all."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from muddle.page.plots import plot_importances
    from muddle_runtime.whole_file import write_whole

    # Not by pyplot, which would look for a display.
    figure = Figure(figsize=(7, max(2.4, 1.2 + 0.28 * min(top, len(rows)))), layout="constrained")
    FigureCanvasAgg(figure)
    spread = [row["deviation"] for row in rows]
    plot_importances(
        [row["importance"] for row in rows],
        None if None in spread else spread,
        [row["column"] for row in rows],
        top=top,
        ax=figure.add_subplot(),
    )
    with write_whole(path.expanduser()) as file:
        figure.savefig(file, format=path.suffix[1:].lower())
