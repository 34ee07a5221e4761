# %% [markdown]
# # Lesson 1: a first model
#
# Fit a table, measure how good and how certain the model is, see which columns matter, and save it.
# Runs from top to bottom in well under a minute, on data that ships with scikit-learn; writes
# `first_model.muddle` and `first_model.html` into the current folder.

# %%
import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes
from sklearn.metrics import r2_score
from sklearn.model_selection import train_test_split

import muddle
from muddle import MuddleRegressor

# %% [markdown]
# ## The table
#
# 442 people, ten columns, and a number for how far their diabetes progressed within a year. A
# quarter of the rows is set aside for the end.

# %%
X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
print(X_train.head(3))

# %% [markdown]
# ## Fit
#
# Nothing is scaled, encoded or tuned beforehand: `fit` decides by predictions of rows that its
# models had not seen. `preset="fast"` takes a smaller pool; leave it out for the better one.

# %%
model = MuddleRegressor(preset="fast", random_state=0).fit(X_train, y_train)
print(model.leaderboard_[["configuration", "iteration", "score", "weight"]])

# %% [markdown]
# ## How good?
#
# Two scores: out of fold, which costs no rows, and on the rows set aside. Drawing rows again and
# again (the bootstrap) tells how much either would change with other rows.

# %%
rng = np.random.default_rng(0)


def score_rows(target: pd.Series, predicted: np.ndarray) -> str:
    """R² and its standard error, by 500 draws of the rows."""
    target = target.to_numpy()
    draws = rng.integers(0, len(target), (500, len(target)))
    error = np.std([r2_score(target[rows], predicted[rows]) for rows in draws])
    return f"{r2_score(target, predicted):.2f} ± {error:.2f}"


print("R² out of fold:     ", score_rows(y_train, model.out_of_fold_))
print("R² on the test rows:", score_rows(y_test, model.predict(X_test)))

# %% [markdown]
# The two differ, and a hundred test rows cannot tell which is nearer to the truth: one split of a
# small table is a lottery. (With `random_state=0`, linear regression and forests also score lower
# than with 1 to 5.) More splits tell more: lesson 2. In any case these ten columns leave about half
# of the variance unexplained, so the next question matters more.
#
# ## How certain?
#
# A 90 % interval should contain nine of ten new targets. It is wider where errors were larger.

# %%
low, high = model.predict_interval(X_test, coverage=0.9).T
inside = np.mean((low <= y_test) & (y_test <= high))
widths = high - low
print(f"{inside:.0%} of the test rows are inside")
print(f"the narrowest interval is {widths.min():.0f} wide, the widest {widths.max():.0f}")

# %% [markdown]
# ## Which columns matter?
#
# Importance: how much the out-of-fold error rises, in units of the target's variance, when the
# column is shuffled. Small negative numbers are noise around 0.

# %%
by_column = dict(zip(X.columns, model.feature_importances_, strict=True))
for column, importance in sorted(by_column.items(), key=lambda item: -item[1]):
    print(f"{column:5} {importance:6.3f}")

# %% [markdown]
# ## A report
#
# One HTML page: the table, the pool, errors, intervals, importances, and warnings about the table.

# %%
print(model.report("first_model.html", X_train, y_train, title="Diabetes after a year"))

# %% [markdown]
# ## Save it
#
# One file, without code and without the training rows. The loaded model gives the same predictions.

# %%
path = model.save("first_model.muddle")
again = muddle.load_model(path)
difference = np.abs(again.predict(X_test) - model.predict(X_test)).max()
print(f"{path}: {path.stat().st_size / 1e6:.1f} MB; largest difference {difference:.1e}")
