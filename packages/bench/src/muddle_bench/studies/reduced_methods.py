"""The same variants with `precision="reduced"`: hidden layers are multiplied in TF32 on CUDA.

Nearly all of the time on large data sets is in these products. Scores move by less than a tenth of
what other seeds move them (results/README.md, "Reduced precision"). A plugin by the name of this
module.
"""

from muddle_bench.studies.points import make_methods

METHODS = make_methods(precision="reduced")
