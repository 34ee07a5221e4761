"""The same variants with `precision="reduced"`: hidden layers are multiplied in TF32 on CUDA.

The time of large data sets is nearly all products. Scores move by less than a tenth of what other
seeds move them (results/README.md, "Reduced precision"). A plugin by the name of this module.
"""

from muddle_bench.studies.methods import make_methods

PLUGIN = __name__
METHODS = make_methods(precision="reduced")
