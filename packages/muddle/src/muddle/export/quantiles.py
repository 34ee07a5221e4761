"""Normal scores of ranks (`preprocessing.numbers.Quantiles`): a search, a line, a quantile.

The ranks of a column are a broken line with steps at values that several rows share. Between two
knots it is straight, on a knot it is the middle of its step; below all knots it is 0, above all 1.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from muddle.export.graph import Graph, Value
from muddle.tables.numbers import LOWEST_RANK

FloatArray = NDArray[np.float64]

# Wichura (1988), algorithm AS 241: the quantile of the normal distribution to 16 digits, in the
# middle by a ratio of polynomials in .425² - (p - .5)², further out in sqrt(-log(p)) - 1.6. Its
# third range, beyond a rank of exp(-25), is never reached here.
MIDDLE = 0.425
CENTRAL = np.array(
    [
        [3.3871328727963666080e0, 1.0],
        [1.3314166789178437745e2, 4.2313330701600911252e1],
        [1.9715909503065514427e3, 6.8718700749205790830e2],
        [1.3731693765509461125e4, 5.3941960214247511077e3],
        [4.5921953931549871457e4, 2.1213794301586595867e4],
        [6.7265770927008700853e4, 3.9307895800092710610e4],
        [3.3430575583588128105e4, 2.8729085735721942674e4],
        [2.5090809287301226727e3, 5.2264952788528545610e3],
    ]
)
TAIL_START = 1.6
TAIL = np.array(
    [
        [1.42343711074968357734e0, 1.0],
        [4.63033784615654529590e0, 2.05319162663775882187e0],
        [5.76949722146069140550e0, 1.67638483018380384940e0],
        [3.64784832476320460504e0, 6.89767334985100004550e-1],
        [1.27045825245236838258e0, 1.48103976427480074590e-1],
        [2.41780725177450611770e-1, 1.51986665636164571966e-2],
        [2.27238449892691845833e-2, 5.47593808499534494600e-4],
        [7.74545014278341407640e-4, 1.05075007164441684324e-9],
    ]
)


@dataclass(frozen=True)
class Ranks:
    """Broken lines of all columns, one after the other, each padded to the same number of knots."""

    knots: FloatArray  # (P, size) ascending, the first below any value; inf behind the last
    middles: FloatArray  # (P, size) rank on a knot
    ends: FloatArray  # (P, size) rank just above it
    slopes: FloatArray  # (P, size) from there to the next

    @property
    def size(self) -> int:
        """A power of two."""
        return int(self.knots.shape[1])


def find_ranks(values: FloatArray) -> Ranks:
    """values (grid, P): at even shares of the rows, from lowest to highest"""
    shares = np.linspace(0, 1, len(values))
    columns = [np.unique(column, return_index=True, return_counts=True) for column in values.T]
    size = 1 << (1 + max(len(knots) for knots, _, _ in columns)).bit_length()
    knots = np.full((len(columns), size), np.inf)
    knots[:, 0] = np.finfo(np.float64).min
    middles, ends, slopes = np.zeros((3, *knots.shape))
    for i, (own, first, count) in enumerate(columns):
        low, high = shares[first], shares[first + count - 1]
        there = slice(1, 1 + len(own))
        knots[i, there] = own
        middles[i, there] = (low + high) / 2
        ends[i, there] = high
        slopes[i, there][:-1] = (low[1:] - high[:-1]) / np.diff(own)
    return Ranks(knots, middles, ends, slopes)


def write_normal_scores(graph: Graph, value: Value, values: FloatArray) -> Value:
    """(N, P) -> (N, P)"""
    ranks = write_ranks(graph, value, find_ranks(values))
    ranks = graph.clip(ranks, np.array(LOWEST_RANK), np.array(1 - LOWEST_RANK))
    return write_normal_quantile(graph, ranks)


def write_ranks(graph: Graph, value: Value, ranks: Ranks) -> Value:
    """(N, P) -> (N, P), from 0 to 1"""

    def look_up(table: FloatArray, position: Value) -> Value:
        return graph.add("Gather", table.ravel(), position, axis=0)

    # The last knot that is not above the value, by halving, for all rows and columns at once.
    step = ranks.size // 2
    starts = np.arange(len(ranks.knots)) * ranks.size
    above = graph.add("Less", value, ranks.knots[:, step])
    position = graph.add("Where", above, starts, starts + step)
    while step > 1:
        step //= 2
        trial = graph.add("Add", position, np.array(step))
        above = graph.add("Less", value, look_up(ranks.knots, trial))
        position = graph.add("Where", above, position, trial)
    knot = look_up(ranks.knots, position)
    beyond = graph.add("Sub", value, knot)
    between = graph.add(
        "Add",
        look_up(ranks.ends, position),
        graph.add("Mul", beyond, look_up(ranks.slopes, position)),
    )
    on_knot = graph.add("Equal", value, knot)
    return graph.add("Where", on_knot, look_up(ranks.middles, position), between)


def write_normal_quantile(graph: Graph, ranks: Value) -> Value:
    """The value that a share `ranks` of a normal distribution lies below."""
    centred = graph.add("Sub", ranks, np.array(0.5))
    square = graph.add("Mul", centred, centred)
    depth = graph.add("Sub", np.array(MIDDLE**2), square)
    central = graph.add("Mul", centred, _divide_polynomials(graph, depth, CENTRAL))
    from_end = graph.add("Min", ranks, graph.add("Sub", np.array(1.0), ranks))
    root = graph.add("Sqrt", graph.add("Neg", graph.add("Log", from_end)))
    tail = _divide_polynomials(graph, graph.add("Sub", root, np.array(TAIL_START)), TAIL)
    tail = graph.add("Mul", tail, graph.add("Sign", centred))
    in_tail = graph.add("Less", depth, np.array(0.0))
    return graph.add("Where", in_tail, tail, central)


def _divide_polynomials(graph: Graph, value: Value, coefficients: FloatArray) -> Value:
    """One polynomial by the other, coefficients (degree + 1, 2) from the constant on."""
    powers = graph.add(
        "Pow",
        graph.add("Unsqueeze", value, np.array([2])),
        np.arange(len(coefficients), dtype=np.float64),
    )
    both = graph.add("MatMul", powers, coefficients)
    above, below = (graph.add("Gather", both, np.array(i), axis=2) for i in (0, 1))
    return graph.add("Div", above, below)
