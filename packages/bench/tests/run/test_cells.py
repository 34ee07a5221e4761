"""Which cells a suite or a choice comes to, and what is said of a wrong one."""

import pytest

from muddle_bench.methods.registry import METHODS
from muddle_bench.run.cells import SUITES, build_cells

SMALL = {"datasets": ["servo", "ionosphere"], "methods": ["ridge", "qda", "svm"], "splits": [0]}


def test_suites_hold_every_method_that_can_split_by_split_and_small_data_sets_first():
    cells = build_cells("smoke")
    assert len(cells) == 10
    assert {cell.task for cell in cells} == {"regression", "classification"}
    assert {cell.split for cell in cells} == {0}
    assert not any(METHODS[cell.method].packages for cell in cells)
    assert {METHODS[cell.method].family for cell in cells} >= {"MLR", "Baseline"}
    cells = build_cells("regression")
    able = [method for method in METHODS.values() if "regression" in method.tasks]
    assert len(SUITES["classification"].datasets) == 16
    assert len(cells) == 16 * len(able) * 10
    assert len(set(cells)) == len(cells)
    cells = build_cells("all", methods=["baseline"], max_rows=200, splits=2)
    assert [cell.split for cell in cells] == [0] * 7 + [1] * 7
    assert cells[0].dataset == "cervical-cancer-behavior-risk"
    assert cells[6].dataset == "servo"


def test_what_is_given_takes_the_place_of_the_suites_choice(choose_cells):
    cells = build_cells("smoke", splits=2, methods=["baseline"], recipe="clean")
    assert len(cells) == 2 * 2
    assert {cell.split for cell in build_cells(**SMALL | {"splits": [4, 7, 4]})} == {4, 7}
    trees = build_cells(datasets="servo", methods=["TREE"], splits=3)
    assert {METHODS[cell.method].family for cell in trees} == {"TREE"}
    assert {cell.recipe for cell in cells} == {"clean"}
    assert {cell.dataset for cell in build_cells("smoke", datasets=["servo"])} == {"servo"}
    cells = choose_cells(["linear", "bad-raise"])
    found = [(cell.dataset, cell.method) for cell in cells]
    assert found == [("hills", "linear"), ("hills", "bad-raise"), ("trees", "linear")]


def test_a_part_leaves_out_the_other_and_the_suite_of_your_own_has_your_tables(tables):
    options = {"methods": ["baseline"], "splits": 1, "recipe": "clean"}
    chosen = build_cells("all", part="development", **options)
    others = build_cells("all", part="evaluation", **options)
    assert len(chosen) + len(others) == 32
    assert {"servo", "qsar-fish-toxicity"} <= {cell.dataset for cell in chosen}
    assert {"abalone", "adult"} <= {cell.dataset for cell in others}
    own = build_cells("own", data_home=tables, part="evaluation", **options)
    assert [cell.dataset for cell in own] == ["trees", "hills"]
    with pytest.raises(ValueError, match="none of the data sets is in the development part"):
        build_cells("own", data_home=tables, part="development", **options)
    with pytest.raises(ValueError, match=r"names none\. docs/datasets.md tells how"):
        build_cells("own", data_home=tables / "raw", **options)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"suite": "smok"}, ValueError, "Did you mean 'smoke'?"),
        (SMALL | {"recipe": "clear"}, ValueError, "Did you mean 'clean'?"),
        (SMALL | {"max_rows": 0}, ValueError, "max_rows must be at least 1"),
        (SMALL | {"splits": [-1]}, ValueError, "a split must be at least 0"),
        (SMALL | {"splits": [0.5]}, TypeError, "a split must be a whole number"),
        (SMALL | {"splits": []}, ValueError, "at least one split, got none"),
        (
            SMALL | {"datasets": ["servo"]},
            ValueError,
            "'qda' cannot be paired: it does no regression",
        ),
    ],
)
def test_a_wrong_choice_is_an_error_that_says_what_to_do(options, error, said):
    with pytest.raises(error) as caught:
        build_cells(**options)
    assert said in str(caught.value)
