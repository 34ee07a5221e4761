"""The points of the studies: which data set, which setting, and which published row they answer.

A point is a variant of one base configuration. Variants are named by what they change, so that
points of different studies that change the same share their records.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from muddle_bench.data.catalogue import built_in
from muddle_runtime.parameters import suggest

Task = Literal["regression", "classification"]
Setting = str | int | float | None

PREFIX = "study"  # of the methods' names
N_NETS = 10
# The released code's settings of MLR-2, which made the published tables; in the studies with
# batches of min(n, 2^14), as the paper's appendix says. A test compares them with the preset.
BASE: dict[str, Setting] = {
    "width": 1024,
    "activation": "relu",
    "init_gain": 2**0.5,
    "loss": "released",
    "n_permutations": 16,
    "structured_noise": 1.0,
    "dither": 0.03,
    "penalty": "released",
    "batch_size": 2**14,
    "head": "batch",
    "max_loss": 1.0,
}
# A penalty is trained by its logarithm, so 0 is one that no float32 sees beside a Gram matrix.
NO_PENALTY = 1e-30
HEURISTIC, WHOLE = "heuristic", "n"  # values that are no numbers

NOISY = "concrete-slump-test-3"
THREE = (NOISY, "qsar-aquatic-toxicity", "seoul-bike-sharing-demand")
LARGE = "beijing-pm25"
# Small data sets of the development half (docs/decisions/0007-defaults.md).
CLASSES = ("breast-cancer-coimbra", "ionosphere", "qsar-biodegradation")


@dataclass(frozen=True)
class Variant:
    """A configuration: what it changes, against BASE or against the preset of a depth."""

    changes: tuple[tuple[str, Setting], ...] = ()
    depth: int | None = None  # None: MLR-2 as in BASE; else the released preset of that depth

    @property
    def name(self) -> str:
        """The method's, which is in file names."""
        if self.depth is not None:
            return f"{PREFIX}-depth-{self.depth}"
        said = [f"{name.replace('_', '-')}-{_spell(value)}" for name, value in self.changes]
        return "-".join([PREFIX, *(said or ["mlr-2"])])


def vary(**changes: Setting) -> Variant:
    """The variant with these settings; what is as in BASE is no change."""
    unknown = sorted(set(changes) - set(BASE))
    assert not unknown, unknown
    return Variant(tuple((name, value) for name, value in changes.items() if value != BASE[name]))


def _spell(value: Setting) -> str:
    if isinstance(value, (int, float)):
        return f"{value:g}".replace(".", "p").replace("+", "")
    return str(value).lower()


@dataclass(frozen=True)
class Point:
    """One row of a study's table."""

    study: str
    dataset: str
    task: Task
    value: str  # as the table spells it
    is_default: bool
    variant: Variant


@dataclass(frozen=True)
class Study:
    """Points that belong together."""

    name: str
    title: str
    points: tuple[Point, ...]

    @property
    def datasets(self) -> list[str]:
        return list(dict.fromkeys(point.dataset for point in self.points))


STEPS = {
    "FFNN": vary(head="linear", n_permutations=0, structured_noise=0),
    "+ Ridge": vary(n_permutations=0, structured_noise=0),
    "+ Ridge + Struct. Dithering": vary(n_permutations=0),
    "+ Ridge + Permut.": vary(structured_noise=0),
    "MLR": Variant(),
}
# What the paper does not show. The loss limit is the released code's rule to stop a net whose loss
# exceeds 1, which fits no other loss.
MORE = {
    "MLR": Variant(),
    "no loss limit": vary(max_loss=None),
    "σ = 2, no loss limit": vary(structured_noise=2.0, max_loss=None),
    "FFNN, no loss limit": vary(head="linear", n_permutations=0, structured_noise=0, max_loss=None),
    "paper loss": vary(loss="paper", max_loss=None),
    "paper loss, σ = 0": vary(loss="paper", structured_noise=0, max_loss=None),
    "paper settings": vary(
        loss="paper", penalty="paper", init_gain=1.0, batch_size=1024, head="train", max_loss=None
    ),
    "SELU": vary(activation="selu"),
    "Mish": vary(activation="mish"),
    "tanh": vary(activation="tanh"),
    "head on training rows": vary(head="train"),
    "head on all rows": vary(head="all"),
}
SIGMAS = {text: vary(structured_noise=float(text)) for text in ("0", "0.2", "1", "2", "3")}
PERMUTATIONS = {
    text: vary(n_permutations=int(text)) for text in ("0", "1", "2", "4", "16", "256", "1024")
}
PENALTIES = {
    "0": vary(penalty=NO_PENALTY),
    **{
        text: vary(penalty=float(text))
        for text in ("0.001", "0.1", "10", "1000", "100000", "10000000", "1000000000")
    },
    HEURISTIC: Variant(),
}
DITHERS = {text: vary(dither=float(text)) for text in ("0", "0.01", "0.03", "0.1", "0.3")}
WIDTHS = {text: vary(width=int(text)) for text in ("16", "64", "256", "1024", "4096")}
BATCHES = {2**power: str(2**power) for power in (0, *range(4, 14))}
# The largest batch that is smaller than what the paper calls the whole data set.
LARGEST_BATCH = {
    NOISY: 64,
    "qsar-aquatic-toxicity": 256,
    "seoul-bike-sharing-demand": 4096,
    LARGE: 8192,
}
DEPTHS = {str(depth): Variant(depth=depth) for depth in (1, 2, 3, 4)}


def _regression_sets() -> list[str]:
    """The paper's sixteen."""
    return [e.id for e in built_in().values() if e.task == "regression" and e.id != LARGE]


def _cross(
    study: str,
    datasets: Iterable[str],
    variants: dict[str, Variant],
    default: str,
    task: Task = "regression",
) -> list[Point]:
    return [
        Point(study, dataset, task, value, value == default, variant)
        for dataset in datasets
        for value, variant in variants.items()
    ]


def _batches(dataset: str, largest: int) -> list[Point]:
    sizes = {text: vary(batch_size=size) for size, text in BATCHES.items() if size <= largest} | {
        WHOLE: Variant()
    }
    return _cross("batch_size", [dataset], sizes, WHOLE)


def _make_studies() -> dict[str, Study]:
    def over(name: str, title: str, variants: dict[str, Variant], default: str) -> Study:
        return Study(name, title, tuple(_cross(name, THREE, variants, default)))

    batches = [point for pair in LARGEST_BATCH.items() for point in _batches(*pair)]
    depths = _cross("depth", _regression_sets(), DEPTHS, "2")
    more = _cross("ablation_more", THREE, MORE, "MLR")
    more += _cross("ablation_more", CLASSES, STEPS, "MLR", "classification")
    studies = (
        over("ablation", "the steps from a plain net to MLR", STEPS, "MLR"),
        over("structured_noise", "σ of the structured dithering", SIGMAS, "1"),
        over("permutations", "T, permuted copies of the labels", PERMUTATIONS, "16"),
        over("ridge_init", "the first ridge penalty λ", PENALTIES, HEURISTIC),
        over("label_noise", "σ̃ of the label dithering", DITHERS, "0.03"),
        over("width", "J, units of a hidden layer", WIDTHS, "1024"),
        Study("batch_size", "rows of a batch", tuple(batches)),
        Study("depth", "hidden layers", tuple(depths)),
        Study("ablation_more", "steps that the paper does not show", tuple(more)),
    )
    return {study.name: study for study in studies}


STUDIES = _make_studies()
ABLATIONS = ("ablation", "ablation_more")
DEPENDENCES = tuple(name for name in STUDIES if name not in ABLATIONS)


def find_study(name: str, among: Sequence[str] = tuple(STUDIES)) -> Study:
    if name not in among:
        raise ValueError(
            f"no study named {name!r}.{suggest(name, among)} There are {', '.join(among)}."
        )
    return STUDIES[name]


def choose_points(names: Iterable[str], datasets: Iterable[str] | None = None) -> list[Point]:
    """The points of these studies, on these data sets or on all of theirs."""
    points = [point for name in names for point in find_study(name).points]
    if datasets is None:
        return points
    known = list(dict.fromkeys(point.dataset for point in points))
    wanted = set(datasets)
    for name in sorted(wanted - set(known)):
        raise ValueError(
            f"no point is on the data set {name!r}.{suggest(name, known)} There are points on "
            f"{', '.join(known)}."
        )
    return [point for point in points if point.dataset in wanted]


def all_variants() -> dict[str, Variant]:
    """Every variant once, by name."""
    found: dict[str, Variant] = {}
    for study in STUDIES.values():
        for point in study.points:
            first = found.setdefault(point.variant.name, point.variant)
            assert first == point.variant, point
    return found
