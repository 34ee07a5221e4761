"""ONNX graphs under construction, and the part of a graph that turns a table into features.

`Graph` and `Value` build any graph: arithmetic on values adds operations. The rest writes what
muddle_runtime.tables computes: columns become inputs, then numbers (also the parts of dates, and
means per level), then flags of gaps, then levels as 0 and 1.

Shapes: N rows, P columns of numbers, D columns of dates, F features.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from muddle_runtime.columns import FloatArray
from muddle_runtime.tables import (
    CLIP,
    LARGEST,
    UNSEEN,
    Levels,
    LevelSource,
    Scale,
    SmoothClip,
    TablePlan,
    warn,
)

Array = NDArray[Any]
Shape = Sequence[int | str]

ML_DOMAIN = "ai.onnx.ml"
ROWS = "N"  # the name of the first axis of inputs and outputs
MOST_BYTES = 2**31 - 2**20  # of a protobuf message
DOUBLE, FLOAT, STRING = TensorProto.DOUBLE, TensorProto.FLOAT, TensorProto.STRING


# --- graphs --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Value:
    """A result in a graph. Operands may be arrays; numbers count as float64."""

    graph: "Graph"
    name: str

    def apply(self, operation: str, *operands: "Operand", **attributes: Any) -> "Value":
        return self.graph.add(operation, self, *operands, **attributes)

    def __add__(self, other: "Operand") -> "Value":
        return self.apply("Add", other)

    def __sub__(self, other: "Operand") -> "Value":
        return self.apply("Sub", other)

    def __mul__(self, other: "Operand") -> "Value":
        return self.apply("Mul", other)

    def __truediv__(self, other: "Operand") -> "Value":
        return self.apply("Div", other)

    def __pow__(self, other: "Operand") -> "Value":
        return self.apply("Pow", other)

    def __matmul__(self, other: "Operand") -> "Value":
        return self.apply("MatMul", other)

    def __floordiv__(self, divisor: float) -> "Value":
        return (self / divisor).apply("Floor")

    def __mod__(self, divisor: float) -> "Value":
        """From 0 to the divisor; exact even where a quotient would round up to a whole number."""
        rest = self.apply("Mod", divisor, fmod=1)
        return rest.apply("Less", 0.0).apply("Where", rest + divisor, rest)

    def cast(self, dtype: int) -> "Value":
        return self.apply("Cast", to=dtype)

    def clip(self, least: "Operand", most: "Operand") -> "Value":
        """Bounds may differ per column, which the operation Clip does not allow."""
        return self.apply("Max", least).apply("Min", most)

    def take(self, positions: Array, n_columns: int) -> "Value":
        """Some columns of (N, n_columns), in this order."""
        if np.array_equal(positions, np.arange(n_columns)):
            return self
        return self.apply("Gather", positions.astype(np.int64), axis=1)

    def sum(self, axis: int, *, keepdims: bool = False) -> "Value":
        return self.apply("ReduceSum", np.array([axis]), keepdims=int(keepdims))


Operand = Value | Array | float


def join(values: Sequence[Value], axis: int = 1) -> Value:
    first, *rest = values
    return first.apply("Concat", *rest, axis=axis) if rest else first


class Graph:
    """Nodes, constants, inputs and outputs, in the order in which they were added.

    An operation or a constant that is already in the graph is not added again.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        """taken: names that results must not have, those of inputs and outputs."""
        self._taken = frozenset(taken)
        self._numbers = count()
        self._nodes: list[NodeProto] = []
        self._constants: list[TensorProto] = []
        self._known: dict[Any, str] = {}  # name of the result, per operation and per constant
        self._inputs: list[ValueInfoProto] = []
        self._outputs: list[ValueInfoProto] = []
        self._n_bytes = 0

    def add_input(self, name: str, dtype: int, shape: Shape) -> Value:
        self._inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return Value(self, name)

    def add_output(self, name: str, value: Value, dtype: int, shape: Shape) -> None:
        self._nodes.append(helper.make_node("Identity", [value.name], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, dtype, shape))

    def add(self, operation: str, *operands: Operand, **attributes: Any) -> Value:
        names = [one.name if isinstance(one, Value) else self._store(one) for one in operands]
        node = helper.make_node(operation, names, [], **attributes)
        content = node.SerializeToString()  # of a forest, many megabytes
        key = hashlib.blake2b(content).digest()
        if key not in self._known:
            self._count_bytes(len(content))
            self._known[key] = self._new_name(operation)
            node.output.append(self._known[key])
            self._nodes.append(node)
        return Value(self, self._known[key])

    def build(self, name: str) -> GraphProto:
        return helper.make_graph(self._nodes, name, self._inputs, self._outputs, self._constants)

    def _store(self, operand: Array | float) -> str:
        number = isinstance(operand, (int, float))
        array = np.asarray(operand, dtype=np.float64 if number else None)
        content = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
        key = (array.dtype.str, array.shape, hashlib.blake2b(content).digest())
        if key not in self._known:
            self._count_bytes(len(content))
            self._known[key] = self._new_name("constant")
            self._constants.append(numpy_helper.from_array(array, self._known[key]))
        return self._known[key]

    def _count_bytes(self, n_bytes: int) -> None:
        self._n_bytes += n_bytes
        if self._n_bytes > MOST_BYTES:
            raise ValueError(
                "an ONNX file must be smaller than 2 GB, got a model of "
                f"{self._n_bytes / 1e9:.1f} GB or more. Export fewer nets (`subset` of an "
                "ensemble), or fit with a lower width or on fewer rows."
            )

    def _new_name(self, stem: str) -> str:
        return next(name for i in self._numbers if (name := f"{stem}_{i}") not in self._taken)


# --- inputs --------------------------------------------------------------------------------------

MATRIX = "X"
TEXT_KINDS = ("text", "category")
# How to pass a column as numbers, by what it held in `fit`; plain numbers otherwise.
MEANINGS = {
    "boolean": "0 or 1",
    "duration": "seconds",
    "date": "seconds since 1970-01-01 UTC",
    "date as text": "seconds since 1970-01-01 UTC",
}


@dataclass(frozen=True)
class InputColumn:
    """A column that the model uses."""

    name: str
    holds: str  # in `fit`: number, number as text, date, boolean, text, ...
    position: int  # in the table of `fit`
    input: str  # its own name, unless that cannot be the name of an input

    @property
    def is_text(self) -> bool:
        return self.holds in TEXT_KINDS


def find_columns(plan: TablePlan, outputs: Sequence[str]) -> list[InputColumn]:
    """Columns that the model uses, in the order of the table; one warning for renamed ones."""
    taken = {*plan.names, *outputs}
    kinds = {decision.name: decision.kind for decision in plan.decisions}
    position = {name: i for i, name in enumerate(plan.names)}
    columns, renamed = [], []
    for name in plan.used:
        given = name
        if not given or given in outputs:
            while not given or given in taken:
                given += "_"
            renamed.append(f"column {name!r} is the input {given!r}")
        columns.append(InputColumn(name, kinds[name], position[name], given))
    if renamed:
        warn(f"{', '.join(renamed)}: inputs must have a name, and not the name of an output.")
    return columns


def takes_matrix(plan: TablePlan, columns: Sequence[InputColumn]) -> bool:
    """Whether one input holds all columns: they have no names, and none is text."""
    return not plan.named and not any(column.is_text for column in columns)


def describe_columns(plan: TablePlan, columns: Sequence[InputColumn]) -> list[dict[str, Any]]:
    """The columns for the metadata of the model: values to pass, and values that mean a gap."""
    in_matrix = takes_matrix(plan, columns)
    text_gaps = sorted({"", *plan.missing_values})
    described = []
    for column in columns:
        place: dict[str, Any] = {"input": column.input}
        if in_matrix:
            place = {"input": MATRIX, "position": column.position}
        described.append(
            {
                "column": column.name,
                **place,
                "type": "string" if column.is_text else "double",
                "held": column.holds,
                "value": "text" if column.is_text else MEANINGS.get(column.holds, "number"),
                "gap": text_gaps if column.is_text else "NaN",
            }
        )
    return described


class Inputs:
    """The columns as inputs of a graph: one (N, 1) each, or one matrix for all."""

    def __init__(self, graph: Graph, plan: TablePlan, columns: Sequence[InputColumn]) -> None:
        self.columns = {column.name: column for column in columns}
        self._n_columns = len(plan.names)
        self._values: dict[str, Value] = {}
        self._matrix = None
        if takes_matrix(plan, columns):
            self._matrix = graph.add_input(MATRIX, DOUBLE, (ROWS, self._n_columns))
            return
        for column in columns:
            dtype = STRING if column.is_text else DOUBLE
            self._values[column.name] = graph.add_input(column.input, dtype, (ROWS, 1))

    def stack(self, names: Sequence[str]) -> Value:
        """Columns beside each other, (N, len(names))."""
        if self._matrix is None:
            return join([self._values[name] for name in names])
        positions = np.array([self.columns[name].position for name in names])
        return self._matrix.take(positions, self._n_columns)


# --- features ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Features:
    """The matrix of features, and the rows that `predict` would refuse."""

    matrix: Value  # (N, F) double
    n_features: int  # F
    refusal: Value | None  # (N, 1) double: 0, or NaN for a row with a number out of range
    bounded: bool  # numbers are so small that float32 has the phase of a wave to six digits


def write_features(plan: TablePlan, inputs: Inputs) -> Features:
    blocks = []
    numbers, refusal = _write_numbers(plan, inputs)
    if numbers is not None:
        blocks += _scale_numbers(plan, numbers)
    first = len(plan.block.flagged)  # flags of gaps have the first offsets
    for source in plan.one_hot:
        # Rows of the table: a feature row per code; the last, which is row UNSEEN, for no level.
        codes = np.array([*range(len(source.levels)), UNSEEN])
        table = np.empty((len(codes), len(source.names)))
        source.write_one_hot(codes, table)
        last = first + len(source.names)
        blocks.append(_look_up(plan, inputs, source, table - plan.offsets[first:last]))
        first = last
    steps = plan.block.steps
    return Features(
        join(blocks), plan.n_features, refusal, bool(steps) and isinstance(steps[-1], SmoothClip)
    )


def _write_numbers(plan: TablePlan, inputs: Inputs) -> tuple[Value | None, Value | None]:
    """All columns of numbers with their gaps, (N, P), and which rows are refused."""
    plain = [source.name for source in plan.numbers if source.kind != "date"]
    dates = [source.name for source in plan.numbers if source.kind == "date"]
    n_given = len(plain) + len(dates)
    blocks, refusal = [], None
    if n_given:
        given = inputs.stack([*plain, *dates])
        too_large = given.apply("Abs").apply("Greater", LARGEST).cast(FLOAT)
        any_too_large = too_large.apply("ReduceMax", axes=[1], keepdims=1).cast(TensorProto.BOOL)
        refusal = any_too_large.apply("Where", math.nan, 0.0)
        if plain:
            blocks.append(given.take(np.arange(len(plain)), n_given))
        if dates:
            seconds = given.take(np.arange(len(plain), n_given), n_given)
            blocks.append(write_date_parts(seconds))
    for source in plan.means:
        assert source.means is not None
        blocks.append(_look_up(plan, inputs, source, source.means.T))
    if not blocks:
        return None, None
    # The graph has one part of all dates after the other, the plan all parts of each date.
    place = {name: i for i, name in enumerate([*plain, *dates])}
    order: list[int] = []
    for number in plan.numbers:
        order += [place[number.name] + part * len(dates) for part in range(len(number.names))]
    n_numbers = len(plan.block.fill)
    order += range(len(order), n_numbers)
    return join(blocks).take(np.array(order), n_numbers), refusal


def _scale_numbers(plan: TablePlan, numbers: Value) -> list[Value]:
    """Columns that vary, filled and scaled, and flags of gaps."""
    block, n_numbers = plan.block, len(plan.block.fill)
    gaps = numbers.apply("IsNaN")
    features = []
    if len(block.kept):
        scaled = gaps.apply("Where", block.fill, numbers).take(block.kept, n_numbers)
        for step in block.steps:
            scaled = STEPS[type(step)](scaled, step)
        features.append(scaled)
    if len(block.flagged):
        flags = gaps.take(block.flagged, n_numbers).cast(DOUBLE)
        features.append(flags - plan.offsets[: len(block.flagged)])
    return features


def _standardise(numbers: Value, step: Scale) -> Value:
    return (numbers - step.mean) / step.deviation


def _clip_smoothly(numbers: Value, step: SmoothClip) -> Value:
    # Beyond 1e100 the curve is at its end in every digit, and the square is still finite.
    scaled = ((numbers - step.median) / step.spread).clip(-1e100, 1e100)
    return scaled * CLIP / (scaled * scaled + CLIP**2).apply("Sqrt")


STEPS: Mapping[type, Callable[[Value, Any], Value]] = {
    Scale: _standardise,
    SmoothClip: _clip_smoothly,
}


# --- dates ---------------------------------------------------------------------------------------

SECOND = 1e6  # microseconds
DAY = 86_400 * SECOND


def write_date_parts(seconds: Value) -> Value:
    """Seconds since 1970 (N, D) -> the parts of tables.date_parts, each of all D dates, (N, 6 D).

    Numbers are whole and exact up to 2**53 microseconds, the year 2255; later ones are off by less
    than a millisecond. NaN stays NaN.
    """
    moment = _to_microseconds(seconds)
    since_midnight = moment % DAY
    days = (moment - since_midnight) / DAY
    years, months = _find_year_and_month(days)
    new_year = _count_days_before(years - 1) - 719_162
    return join(
        [
            moment / DAY,
            years,
            months,
            (days + 3) % 7,  # 1970 began on a Thursday
            days - new_year + 1,
            since_midnight / (3600 * SECOND),
        ]
    )


def _to_microseconds(seconds: Value) -> Value:
    return (seconds * SECOND).apply("Round")


def _find_year_and_month(days: Value) -> tuple[Value, Value]:
    """Year and month of days since 1970, after Hinnant's civil_from_days: years begin in March, so
    that the leap day is the last, and eras of 400 years are all alike."""
    since_0000 = days + 719_468
    era, day = since_0000 // 146_097, since_0000 % 146_097
    year = (day + day // 36_524 - day // 1_460 - day // 146_096) // 365
    month = ((day - _count_days_before(year)) * 5 + 2) // 153  # 0 is March
    next_year = month.apply("GreaterOrEqual", 10.0).cast(DOUBLE)
    return era * 400 + year + next_year, month - next_year * 12 + 3


def _count_days_before(year: Value) -> Value:
    """Days in all years from 0 to this one, each with the leap day of the calendar."""
    return year * 365 + year // 4 - year // 100 + year // 400


# --- levels --------------------------------------------------------------------------------------

# A text of blanks is a gap however long it is; a graph can only list them.
BLANKS = ("", *(" " * n for n in range(1, 17)), "\t", "\n")


def _look_up(plan: TablePlan, inputs: Inputs, source: LevelSource, table: FloatArray) -> Value:
    """The row of the table per level. table (levels + 1, features) -> (N, features)

    One look-up does what encoding, one-hot columns, centring and shares of unseen levels do in
    turn. Codes are those of `Levels`; UNSEEN is the last row of the table.
    """
    levels, column = source.levels, inputs.columns[source.name]
    codes = dict.fromkeys(sorted(levels.rare), levels.other)
    codes |= {level: code for code, level in enumerate(levels.known)}
    gap = levels.other if levels.missing == UNSEEN else levels.missing
    value = inputs.stack([source.name])
    if not column.is_text:
        return _look_up_numbers(value, column, levels, codes, table, gap)
    codes |= dict.fromkeys((*sorted(plan.missing_values), *BLANKS), gap)
    code = value.apply(
        "LabelEncoder",
        domain=ML_DOMAIN,
        keys_strings=list(codes),
        values_int64s=list(codes.values()),
        default_int64=levels.other,
    )
    return value.graph.add("Gather", table, code.apply("Squeeze", np.array([1])), axis=0)


def _look_up_numbers(
    value: Value,
    column: InputColumn,
    levels: Levels,
    codes: Mapping[str, int],
    table: FloatArray,
    gap: int,
) -> Value:
    """Levels that are numbers are compared as numbers: 1, 1.0 and "1" are one level."""
    numbers = np.array([_parse_level(level, column) for level in codes], dtype=np.float64)
    if len(np.unique(numbers)) < len(numbers):
        raise ValueError(
            f"levels of column {column.name!r} must be different numbers to be told apart in an "
            f"ONNX graph, got {sorted(codes)}. Write each number in one way and fit again, or pass "
            f"TablePreprocessor(categorical=[{column.name!r}]) to keep them as text."
        )
    if column.holds == "date":
        value = _to_microseconds(value)
    equal = join([value.apply("Equal", numbers[None]), value.apply("IsNaN")])
    # At most one of them is 1, and a product picks its row; without any, the unseen row is left.
    unseen: FloatArray = table[levels.other]
    beyond: FloatArray = table[[*codes.values(), gap]] - unseen
    return equal.cast(DOUBLE) @ beyond + unseen


def _parse_level(level: str, column: InputColumn) -> float:
    if column.holds == "boolean":
        return {"False": 0.0, "True": 1.0}.get(level, math.nan)
    if column.holds == "date":
        return (datetime.fromisoformat(level) - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    return float(level)
