"""New rows through a model, chunk after chunk: never more than one of them in memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pandas as pd

from muddle.cli.models.answers import Loaded, Wanted, answer
from muddle.cli.models.notes import Notes
from muddle.cli.models.rows import each_prepared
from muddle.errors import DataFormatError
from muddle.table_files.columns import check_column
from muddle.table_files.fields import TextOptions
from muddle.table_files.reading import Chunk, OpenTable, open_table
from muddle.table_files.writing import open_output


@dataclass(frozen=True)
class Prediction:
    """What is asked of which model."""

    loaded: Loaded
    wanted: Wanted
    kept: list[str] | None  # columns of the table to write in front; None: all
    notes: Notes

    def write(
        self, data: str, options: TextOptions, chunk_rows: int, output: str, *, as_json: bool
    ) -> int:
        """Read, predict and write; the number of rows."""
        drift = self._make_drift_counter()
        with open_table(data, options, chunk_rows) as table:
            names = self._choose_kept(table)
            prepared = each_prepared(table, self.loaded.needs, self.notes)
            # What cannot be read at all is an error before anything is written.
            first = next(prepared)
            with open_output(output, as_json=as_json) as writer:
                for chunk, rows in chain([first], prepared):
                    with self.notes.take_warnings(of_chunk=True), _name_rows(table, chunk):
                        said = answer(self.loaded, rows, self.wanted)
                        if drift is not None:
                            drift.add(rows)
                    writer.write(_join(table, chunk.keep(names), said))
        self.notes.conclude()
        for finding in [] if drift is None else drift.findings():
            self.notes.say(finding.text)
        return table.n_rows

    def _choose_kept(self, table: OpenTable) -> list[str]:
        if self.kept is None:
            return table.names
        for name in self.kept:
            check_column(name, table.names, table.title, "--keep")
        return self.kept

    def _make_drift_counter(self) -> Any:
        """Of the training rows a model file has a summary, or none."""
        from muddle.page.drift import DriftCounter

        summary = self.loaded.header["training"].get("table")
        return None if summary is None else DriftCounter(summary)


@contextmanager
def _name_rows(table: OpenTable, chunk: Chunk) -> Iterator[None]:
    """Rows of a message count from the start of their chunk: say where that is."""
    try:
        yield
    except ValueError as error:
        if chunk.first_row == 0:
            raise
        raise DataFormatError(
            f"{error} (Rows are counted from row {chunk.first_row} of {table.title}.)"
        ) from error


def _join(table: OpenTable, kept: pd.DataFrame, said: pd.DataFrame) -> pd.DataFrame:
    both = sorted(set(kept.columns) & set(said.columns))
    if both:
        raise DataFormatError(
            f"{table.title} must not have a kept column of the same name as the answer, got "
            f"{both[0]!r}. Leave it out of --keep, or rename it."
        )
    return pd.concat([kept.reset_index(drop=True), said], axis=1)
