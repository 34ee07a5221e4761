"""A symbol for every family: a colour of Okabe and Ito's palette and a shape, so that neither has
to be told apart alone."""

from collections.abc import Iterable
from dataclasses import dataclass

from muddle.page.palette import BLUE, GREEN, GREY, ORANGE, PINK, SKY, VERMILLION, YELLOW

# Outlines in a box from -5 to 5.
SHAPES = {
    "circle": "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z",
    "square": "M-3.5,-3.5h7v7h-7z",
    "up": "M0,-4.5L4.4,3.6H-4.4z",
    "down": "M0,4.5L4.4,-3.6H-4.4z",
    "diamond": "M0,-4.8L4.3,0L0,4.8L-4.3,0z",
    "plus": "M-1.5,-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
    "star": "M0,-5L1.3,-1.6L4.8,-1.5L2,0.6L3,4L0,2L-3,4L-2,0.6L-4.8,-1.5L-1.3,-1.6z",
    "bar": "M-1.5,-4.8h3v9.6h-3z",
}


@dataclass(frozen=True)
class Symbol:
    id: str
    family: str
    color: str
    shape: str
    filled: bool = True

    @property
    def path(self) -> str:
        return SHAPES[self.shape]


KNOWN = {
    "Flagship": (VERMILLION, "star", False),
    "MLR": (VERMILLION, "circle", True),
    "MLR-paper": (VERMILLION, "circle", False),
    "GBDT": (BLUE, "square", True),
    "RF": (GREEN, "up", True),
    "SVM": (PINK, "diamond", True),
    "NN": (SKY, "down", True),
    "NN-today": (BLUE, "down", False),
    "GLM": (ORANGE, "plus", True),
    "MARS": (YELLOW, "star", True),
    "TREE": (GREEN, "up", False),
    "QDA": (PINK, "diamond", False),
    "Baseline": (GREY, "bar", True),
}
# For families of plugins, in the order they come.
SPARE = [
    (color, shape, filled)
    for filled in (False, True)
    for shape in ("square", "star", "plus", "bar")
    for color in (ORANGE, SKY, PINK, GREEN, VERMILLION)
    if (color, shape, filled) not in KNOWN.values()
]


def assign_symbols(families: Iterable[str]) -> dict[str, Symbol]:
    """One symbol per family, the same in every report for those muddle knows."""
    order = {family: place for place, family in enumerate(KNOWN)}
    present = sorted(set(families), key=lambda family: (order.get(family, len(order)), family))
    unknown = [family for family in present if family not in KNOWN]
    looks = KNOWN | {family: SPARE[i % len(SPARE)] for i, family in enumerate(unknown)}
    return {
        family: Symbol(f"family-{number}", family, *looks[family])
        for number, family in enumerate(present)
    }
