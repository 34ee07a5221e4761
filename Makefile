# Plain `make` lists the targets. Everything runs inside .venv, made on first use.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 21

install: $(READY) ## make .venv with the three packages and the development tools

PACKAGES := --editable packages/runtime --editable 'packages/muddle[cli,plot,report,onnx,dask,ray,progress]' --editable packages/bench

$(READY): packages/runtime/pyproject.toml packages/muddle/pyproject.toml packages/bench/pyproject.toml requirements-dev.txt constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt $(PACKAGES) --requirement requirements-dev.txt
	@touch $@

demo: $(READY) ## compare muddle with scikit-learn's models on built-in data; writes demo.png
	$(BIN)/python examples/demo.py

check: $(READY) ## ruff, format check, mypy, direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --config pyproject.toml --no-cache

fix: $(READY) ## let ruff repair what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# One thread per worker: torch's threads wait actively, and more of them than cores crawl.
test: check ## checks and the fast tests
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto

test-slow: $(READY) ## the tests that take minutes
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto -m slow

bench: $(READY) ## speed of ensembles, of one net and of the preprocessing, each against a baseline
	$(BIN)/python benchmarks/speed.py --rows 82 436
	$(BIN)/python benchmarks/core.py
	$(BIN)/python benchmarks/preprocessing.py
	$(BIN)/python benchmarks/runner.py

smoke: $(READY) ## two data sets, five methods, one split of the benchmark, and its report (2 minutes)
	$(BIN)/muddle benchmark run --suite smoke --jobs 2 --threads 1
	$(BIN)/muddle report runs/smoke --output runs/smoke.html

# Tables that are not there yet are left out of the page.
CLEAN := $(wildcard $(addprefix results/benchmark_, clean.csv.gz collection.csv.gz peers.csv.gz))
PUBLISHED := $(wildcard $(addprefix results/benchmark_, published.csv.gz related.csv.gz))
ABLATION := $(wildcard results/ablation_muddling.csv.gz)

report: $(READY) ## report.html from the records in results/ (a minute)
	OMP_NUM_THREADS=1 $(BIN)/muddle report $(CLEAN) $(PUBLISHED) --output report.html \
	  --title "muddle: the benchmark" --intervals results/intervals.csv \
	  $(if $(ABLATION),--ablation $(ABLATION)) \
	  --command "make report  # results/README.md has the commands that made the tables"

results: $(READY) ## accuracy on README and docs, and results/*.txt, from the tables in results/
	OMP_NUM_THREADS=1 $(BIN)/python scripts/write_claims.py

results-check: $(READY) ## fails, and says where, if these pages differ from the tables
	OMP_NUM_THREADS=1 $(BIN)/python scripts/write_claims.py --check

docs: $(READY) ## the documentation as a site, in site/; every broken link is an error
	$(BIN)/mkdocs build --strict

package: $(READY) ## sdists and wheels of the three packages, in dist/
	for package in runtime muddle bench; do $(BIN)/python -m build --no-isolation --outdir dist packages/$$package || exit 1; done

install-peers: $(READY) ## into .venv, the packages the benchmark compares with (CatBoost, XGBoost, ...)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt $(PACKAGES) --editable 'packages/bench[peers]' --requirement requirements-dev.txt

clean: ## remove .venv and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis demo.png report.html report_tables site dist

.PHONY: help install install-peers demo check fix test test-slow bench smoke report results results-check docs package clean
.DEFAULT_GOAL := help
