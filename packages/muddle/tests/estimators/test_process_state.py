"""The process after a fit is as it was before."""

import subprocess
import sys

CODE = """
import os, sys, warnings
from pathlib import Path

import numpy as np
import torch
from muddle import EnsMLRClassifier, MLRRegressor, MuddleRegressor, load_model


def read_state():
    backends = torch.backends.cuda.matmul, getattr(torch.backends.mkldnn, "matmul", None)
    return {
        "environment": dict(os.environ),
        "filters": list(warnings.filters),
        "errors": np.geterr(),
        "numpy": repr(np.random.get_state()),
        "torch": torch.get_rng_state().tolist(),
        "threads": torch.get_num_threads(),
        "precision": torch.get_float32_matmul_precision(),
        "precisions": [getattr(backend, "fp32_precision", None) for backend in backends],
        "flags": [torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic],
        "dtype": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "folder": os.getcwd(),
    }


X = np.random.default_rng(0).normal(size=(60, 3))
y = X[:, 0] + X[:, 1] ** 2
path = Path(sys.argv[1])
before = read_state()
small = {"width": 16, "max_iter": 3, "random_state": 0}
for model, target in [
    (MLRRegressor(**small), y),
    (EnsMLRClassifier(n_nets=2, precision="reduced", time_limit=60, **small), y > 0),
    (MuddleRegressor(preset="fast", random_state=0), y),
]:
    model.fit(X, target).predict(X)
    load_model(model.save(path)).predict(X)
    after = read_state()
    assert after == before, {name: after[name] for name in after if after[name] != before[name]}
loaded = sorted(name for name in sys.modules if name.startswith(("torch._dynamo", "sympy")))
assert not loaded, f"loaded within a fit, for seconds: {loaded[:3]}"
"""


def test_a_fit_leaves_the_process_as_it_was_and_loads_no_compiler(tmp_path):
    run = [sys.executable, "-c", CODE, str(tmp_path / "model.muddle")]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
