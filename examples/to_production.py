# %% [markdown]
# # Lesson 3: to production
#
# A model leaves the notebook: saved as one file, loaded where there is no torch, exported for other
# languages, and watched for rows that differ from the training rows. Needs the extra `onnx`, and
# onnxruntime to run the graph. Writes `wine.muddle` and `wine.onnx` into the current folder.

# %%
import subprocess
import sys
import warnings

import numpy as np
import onnxruntime
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split

import muddle
import muddle_runtime
from muddle import MuddleClassifier
from muddle.errors import ModelFileError

# %% [markdown]
# ## The model
#
# Three growers of wine, recognised by chemistry. Labels are text, as they would be in a database.

# %%
X, y = load_wine(return_X_y=True, as_frame=True)
growers = np.array(["first", "second", "third"])[y]
X_train, X_test, y_train, y_test = train_test_split(X, growers, stratify=y, random_state=0)
model = MuddleClassifier(preset="fast", random_state=0).fit(X_train, y_train)
print(f"accuracy {model.score(X_test, y_test):.3f}")

# %% [markdown]
# ## One file
#
# Weights and text: no pickle, so a file from elsewhere cannot run code. A damaged file is an error
# that can be caught.

# %%
path = model.save("wine.muddle")
print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
with open("broken.muddle", "wb") as file:
    file.write(path.read_bytes()[:1000])
try:
    muddle.load_model("broken.muddle")
except ModelFileError as error:
    print("refused:", error)

# %% [markdown]
# ## Without torch
#
# The package `muddle-runtime` predicts with numpy and safetensors only. In a fresh process, to see
# what is imported:

# %%
service = """
import json, sys
import muddle_runtime
model = muddle_runtime.load_model("wine.muddle")
row = json.loads(sys.stdin.read())  # the body of a request
label = model.predict([row])[0]
heavy = {"torch", "pandas", "sklearn", "scipy"} & set(sys.modules)
print(label, "imported besides numpy:", heavy or "nothing heavy")
"""
request = X_test.iloc[0].to_json()
answer = subprocess.run(
    [sys.executable, "-c", service], input=request, capture_output=True, text=True, check=True
)
print(answer.stdout.strip(), "| true class:", y_test[0])

# %%
light = muddle_runtime.load_model(path)
difference = np.abs(light.predict_proba(X_test) - model.predict_proba(X_test)).max()
print(f"largest difference to the estimator: {difference:.1e}")

# %% [markdown]
# ## For other languages
#
# ONNX, preprocessing included: one input per column, with the column's name.

# %%
model.to_onnx("wine.onnx")
session = onnxruntime.InferenceSession("wine.onnx", providers=["CPUExecutionProvider"])
types = {"tensor(float)": np.float32, "tensor(double)": np.float64}
inputs = {
    one.name: X_test[[one.name]].to_numpy(dtype=types[one.type]) for one in session.get_inputs()
}
labels, probabilities = session.run(["label", "probabilities"], inputs)
difference = np.abs(probabilities - model.predict_proba(X_test)).max()
print(f"largest difference of the ONNX graph: {difference:.1e}")
print("same labels:", bool(np.all(labels == model.predict(X_test))))

# %% [markdown]
# ## New rows that differ
#
# An odd row is predicted, with a warning; a service logs it.

# %%
odd = X_test.head(3).copy()
odd.loc[odd.index[0], "alcohol"] = np.nan
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    print(light.predict(odd))
print(*(str(warning.message) for warning in caught), sep="\n")

# %% [markdown]
# Slow change does not show in single rows. The file keeps a summary of the training table (no rows
# of it), to compare a batch of new rows with:

# %%
later = X_test.assign(alcohol=X_test["alcohol"] + 2.0)  # another year, or another instrument
for record in light.drift(later):  # dicts; `muddle.load_model(path).drift(later)` is a data frame
    print(f"{record['severity']}: {record['text']}")
print("as before:", light.drift(X_test) or "nothing found")

# %% [markdown]
# The same from a shell:
#
#     muddle info wine.muddle
#     muddle predict wine.muddle new.csv -o predictions.csv --proba
