"""The variants of the studies as methods of the benchmark: a plugin by the name of this module."""

from functools import partial
from typing import Any

from muddle_bench.methods.entries import Method, Request
from muddle_bench.studies.points import BASE, N_NETS, Setting, Variant, all_variants

PLUGIN = __name__
FAMILY = "Study"


def make_point(
    request: Request, variant: Variant, n_nets: int, overrides: tuple[tuple[str, Setting], ...]
) -> Any:
    """The unfitted nets of a variant."""
    from muddle_bench.studies.nets import StudyNets, make_bag

    depth = 2 if variant.depth is None else variant.depth
    base = {"batch_size": BASE["batch_size"]} if variant.depth is None else {}
    settings: dict[str, Any] = {**base, **dict(variant.changes), **dict(overrides)}
    bag = make_bag(
        request.task,
        depth,
        n_nets=n_nets,
        random_state=request.seed,
        device=request.device,
        **settings,
    )
    return StudyNets(bag)


def measure_point(model: Any, problem: Any) -> dict[str, Any]:
    from muddle_bench.studies.nets import measure

    return measure(model, problem)


def make_methods(n_nets: int = N_NETS, **overrides: Setting) -> list[Method]:
    """One method per variant; overrides are settings for all of them, e.g. a small width."""
    return [
        Method(
            name,
            FAMILY,
            partial(
                make_point,
                variant=variant,
                n_nets=n_nets,
                overrides=tuple(sorted(overrides.items())),
            ),
            title=f"{n_nets} nets of the studies",
            packages=("torch",),
            input="table",
            details=measure_point,
        )
        for name, variant in all_variants().items()
    ]


METHODS = make_methods()
