# %% [markdown]
# # Lesson 2: an honest comparison
#
# Is muddle better than gradient boosting *on this table*? The same folds for both, more than one
# score, and a look at wrong probabilities. No network; runs in under a minute.

# %%
import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import log_loss, r2_score, roc_auc_score
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_predict, cross_val_score

from muddle import MuddleClassifier, MuddleRegressor
from muddle.scores import expected_calibration_error

# %% [markdown]
# ## Rules
#
# 1. The same folds for all, fixed before anything is fitted.
# 2. Neither is tuned more than the other. Here: defaults, and muddle's fast preset.
# 3. Everything that learns from rows, the preprocessing too, is fitted within a fold. Both models
#    do that in `fit`.
# 4. The scores were chosen before looking at any.

# %%
models = {
    "muddle": MuddleClassifier(preset="fast", random_state=0),
    "boosting": HistGradientBoostingClassifier(random_state=0),
}
X, y = load_breast_cancer(return_X_y=True)
X, y = X[:300], y[:300]  # few rows: that is the question here
folds = StratifiedKFold(3, shuffle=True, random_state=0)
predicted = {
    name: cross_val_predict(model, X, y, cv=folds, method="predict_proba")
    for name, model in models.items()
}

# %% [markdown]
# ## Three scores, three questions
#
# AUC: are rows in the right *order*? Log-loss: are the *probabilities* good, with a high price for
# wrong certainty? Calibration error: of the rows with a probability of 70 %, are 70 % positive?

# %%
for name, p in predicted.items():
    print(
        f"{name:9} AUC {roc_auc_score(y, p[:, 1]):.3f}  log-loss {log_loss(y, p):.3f}"
        f"  calibration error {expected_calibration_error(p, y):.3f}"
    )

# %% [markdown]
# Often the order is about the same, and the probabilities are not: boosting without early stopping
# becomes overconfident. How often is a model more than 99 % certain, and how often is it
# right then?

# %%
for name, p in predicted.items():
    sure = p.max(axis=1) > 0.99
    right = (p.argmax(axis=1) == y)[sure].mean()
    print(f"{name:9} {sure.mean():.0%} of the rows with more than 99 %; right: {right:.1%}")

# %% [markdown]
# ## A table with text and gaps
#
# Made up, so that the truth is known: homes with an area that is sometimes missing, a kind, and one
# of 30 streets. Boosting needs its categories declared; muddle detects them.

# %%
rng = np.random.default_rng(0)
n = 240
homes = pd.DataFrame(
    {
        "area": np.where(rng.random(n) < 0.15, np.nan, rng.normal(90, 25, n)),
        "kind": rng.choice(["flat", "house", "loft"], n),
        "street": [f"street {i}" for i in rng.integers(0, 30, n)],
        "built": rng.integers(1900, 2020, n),
    }
)
location = homes["street"].map({f"street {i}": 10 * np.sin(i) for i in range(30)})
price = homes["area"].fillna(90) + 30 * (homes["kind"] == "loft") + location + rng.normal(0, 5, n)
declared = homes.astype({"kind": "category", "street": "category"})
by_row = KFold(3, shuffle=True, random_state=0)
candidates = {
    "muddle": (MuddleRegressor(preset="fast", random_state=0), homes),
    "boosting": (HistGradientBoostingRegressor(random_state=0), declared),
}
scores = {
    name: cross_val_score(model, table, price, cv=by_row)
    for name, (model, table) in candidates.items()
}
for name, values in scores.items():
    print(f"{name:9} R² {values.mean():.3f}, by fold {values.round(3)}")

# %% [markdown]
# The best possible score, with the rule that made the prices; the rest is noise:

# %%
best = homes["area"].fillna(90) + 30 * (homes["kind"] == "loft") + location
print(f"the rule  R² {r2_score(price, best):.3f}")

# %% [markdown]
# ## Conclusions
#
# Three folds tell roughly which model to take for *this* table. Repeat a difference of 0.01 with
# other folds; if it changes sign, there is none. Measured on 32 tables, muddle
# wins four of five splits in R² against CatBoost, and about half in AUC on tables that its settings
# were not chosen on: docs/results.md has every table, the lost ones too.
