# %% [markdown]
# # Spark: predictions, and an output layer for rows that lie in Spark
#
# A net is fitted here on a sample. Spark predicts all rows with it as a pandas UDF, and adds up the
# sums that its output layer needs, so that the layer becomes that of all rows without moving them.
# The workers need `muddle-runtime` alone: no torch, no scikit-learn. Needs pyspark and Java 17.
# Writes `spark.muddle` into the current folder.

# %%
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from pyspark import SparkFiles
from pyspark.sql import SparkSession
from pyspark.sql.functions import pandas_udf

from muddle import MLRRegressor

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # on a cluster: that of its machines
spark = (
    SparkSession.builder.master(os.environ.get("SPARK_MASTER", "local[2]"))
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "4")
    .getOrCreate()
)
rng = np.random.default_rng(0)
table = pd.DataFrame(rng.normal(size=(20_000, 4)), columns=["a", "b", "c", "d"])
table["town"] = rng.choice(["north", "south", "west"], len(table))
table["y"] = np.sin(2 * table.a) + table.b * (table.town == "west") + 0.3 * rng.normal(size=20_000)
rows = spark.createDataFrame(table[:15_000]).repartition(8)  # what lies in Spark
test, sample = table[15_000:], rows.limit(500).toPandas()

# %% [markdown]
# ## The net, and its predictions as a pandas UDF
#
# `spark.sparkContext.addFile` brings the file to every machine; every task reads it once.

# %%
COLUMNS = ["a", "b", "c", "d", "town"]
model = MLRRegressor(width=64, keep_statistics=True, random_state=0)
model.fit(sample[COLUMNS], sample["y"])
path = model.save("spark.muddle")
spark.sparkContext.addFile(str(path.absolute()))


def load_here() -> Any:
    """The model, in a worker."""
    import muddle_runtime

    return muddle_runtime.load_model(SparkFiles.get("spark.muddle"))


def predict_batches(batches: Iterator[tuple[pd.Series, ...]]) -> Iterator[pd.Series]:
    here = load_here()
    for columns in batches:
        yield pd.Series(here.predict(pd.concat(columns, axis=1, keys=COLUMNS)))


predict = pandas_udf(predict_batches, "double")
predicted = rows.withColumn("predicted", predict(*COLUMNS)).toPandas()
there, here = predicted["predicted"], model.predict(predicted[COLUMNS])
print(f"{len(predicted)} rows predicted, largest difference {np.abs(there - here).max():.1e}")

# %% [markdown]
# ## The output layer of all rows
#
# A ridge depends on its rows through two sums: hidden' hidden and hidden' labels, 64 × 64 and
# 64 × 1 numbers here whatever the rows. Every partition adds up its own in float64, `treeAggregate`
# adds up the partitions, and one machine solves.

# %%


Sums = tuple[Any, ...]


def add_up(batches: Iterable[pd.DataFrame]) -> Iterator[Sums]:
    """The sums of a partition, from batches of its rows."""
    fitted = load_here()
    found: Sums | None = None
    for batch in batches:
        hidden = np.asarray(fitted.hidden(batch[COLUMNS]), dtype=float)
        labels = fitted.target.scale.apply(batch[["y"]].to_numpy(float))
        sums = hidden.T @ hidden, hidden.T @ labels, float(len(batch))
        found = sums if found is None else add(found, sums)
    if found is not None:
        yield found


def add(one: Sums, other: Sums) -> Sums:
    return tuple(left + right for left, right in zip(one, other, strict=True))


def in_batches(partition: Iterable[Any], size: int = 2_000) -> Iterator[pd.DataFrame]:
    """Rows of Spark as frames of `size` rows."""
    records = []
    for row in partition:
        records.append(row.asDict())
        if len(records) == size:
            yield pd.DataFrame.from_records(records)
            records = []
    if records:
        yield pd.DataFrame.from_records(records)


width = 64
nothing = np.zeros((width, width)), np.zeros((width, 1)), 0.0
partitions = rows.rdd.mapPartitions(lambda part: add_up(in_batches(part)))
gram, right, n_rows = partitions.treeAggregate(nothing, add, add, depth=2)
print(f"sums of {n_rows:.0f} rows: {gram.nbytes + right.nbytes} bytes from each partition")

# %% [markdown]
# The penalty per row is the net's own. With `head` in place of the old one the model is a model as
# before: it predicts, is saved and goes back to Spark.

# %%
fitted: Any = model.model_
penalty = float(fitted.statistics.penalties[0][0]) * n_rows
head = np.linalg.solve(gram + penalty * np.eye(width), right)
(member,) = fitted.members
renewed = replace(fitted, members=(replace(member, head=head[None]),), statistics=None)


def r2(predictions: Any) -> float:
    return float(1 - np.mean((test["y"] - predictions) ** 2) / np.var(test["y"]))


print(f"R² of the sample's layer {r2(model.predict(test[COLUMNS])):.4f}")
print(f"R² of all rows' layer    {r2(renewed.predict(test[COLUMNS])):.4f}")

# %% [markdown]
# It is the layer that one machine would have solved on the same rows.

# %%
whole = rows.toPandas()
hidden = np.asarray(fitted.hidden(whole[COLUMNS]), dtype=float)
labels = fitted.target.scale.apply(whole[["y"]].to_numpy(float))
alone = np.linalg.solve(hidden.T @ hidden + penalty * np.eye(width), hidden.T @ labels)
print(f"largest difference of a weight {np.abs(alone - head).max():.1e}")
spark.stop()
