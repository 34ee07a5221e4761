"""What a notebook shows of an estimator."""

import re

import muddle
from muddle import EnsMLRRegressor, MuddleRegressor
from muddle.page.notebook import MOST_MEMBERS, show_fit


def read_cells(html):
    rows = re.findall(r"<tr>(.*?)</tr>", html)
    return [re.findall(r"<t[dh]>(.*?)</t[dh]>", row) for row in rows]


def test_a_notebook_shows_the_fit_below_the_diagram(regressor, homes):
    for html in (regressor._repr_html_(), regressor._repr_mimebundle_()["text/html"]):
        assert "sk-top-container" in html
        assert html.endswith(show_fit(regressor))
    assert "<td>Rows</td>" not in MuddleRegressor()._repr_html_()
    cells = read_cells(show_fit(regressor))
    facts = {row[0]: row[1:] for row in cells}
    assert facts["Rows"] == ["90", ""]
    assert facts["Columns"] == ["5", "4 used"]
    r2 = 1 - (homes[1] - regressor.out_of_fold_).var() / homes[1].var()
    assert abs(float(facts["R²"][0]) - r2) < 0.01
    assert facts["Fit"][0].endswith(" s")
    weights = [float(row[2].strip("%\N{NO-BREAK SPACE}")) for row in cells if row[2].endswith("%")]
    assert abs(sum(weights) - 100) < 0.1 * len(weights)
    names = set(regressor.leaderboard_["configuration"])
    assert all(row[0].partition(", iteration")[0] in names for row in cells[-2:])


def test_a_notebook_shows_nets_and_models_from_files(trees, net, tiny, regressor, tmp_path):
    assert ["Member", "Validation AUC", "Weight"] in read_cells(net._repr_html_())
    many = EnsMLRRegressor(**tiny, n_nets=6).fit(trees[0], trees[0]["a"])
    *_, last, others = read_cells(show_fit(many))
    assert last[0].startswith("net ")
    assert others == [f"{12 - MOST_MEMBERS} others", "", "33.3\N{NO-BREAK SPACE}%"]
    loaded = muddle.load_model(regressor.save(tmp_path / "model.muddle"))
    assert "best member, out of fold" in show_fit(loaded)


def test_names_are_escaped_in_a_notebook(regressor):
    board = regressor.model_.training.frames["leaderboard"].columns
    kept = board["configuration"]
    board["configuration"] = ["<script>alert(1)</script>\x1b[31m"] * len(kept)
    try:
        html = regressor._repr_html_()
    finally:
        board["configuration"] = kept
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(1)" in html
    assert "\x1b" not in html
