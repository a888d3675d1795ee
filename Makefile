# The two commands that matter:
#   make demo   set up .venv and superoptimize examples/rmsnorm_matmul.math
#   make test   set up .venv and run every test that needs no GPU

PYTHON ?= python3
JOBS   ?= 2

# What a machine without an NVIDIA GPU gets. pip takes a CPU build of this torch where one is at hand (a local wheel, or
# an index named in PIP_EXTRA_INDEX_URL) instead of the CUDA build of several GB; CPU builds do not bring triton.
TORCH_CPU  := torch==2.13.0
TRITON_CPU := triton==3.6.0
ATHERIS    := atheris==3.0.0
# With the pip 23.2 of Python 3.11 setup takes 49 s, with 26.3 41: it looks longer through lists of versions.
PIP_QUICK  := pip>=25

VENV  := .venv
BIN   := $(VENV)/bin
RUN   := $(BIN)/python -m
READY := $(VENV)/.ready
PIP   := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore $(RUN) pip install -qq --no-compile
# The test tools but hatchling, one a line. Pip unpacks on one core; two of it share out what has no part in common.
TOOLS := $(BIN)/python -c 'import tomllib; extra = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; \
  print(*(name for name in extra["test"] if not name.startswith("hatchling")), sep="\n")'
GPU   := $(wildcard /dev/nvidia0)$(shell command -v nvidia-smi)

.PHONY: setup demo test quick nightly docs gallery mutants random-programs differential golden fuzz faults code-faults check lint types clean sanitize
.DEFAULT_GOAL := help

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1	/p' Makefile

setup: $(READY) ## create .venv and install the project in it, editable, with its test tools

demo: $(READY) ## the main job on one example; its output goes to demo-out/
	@$(BIN)/mirage-py superoptimize examples/rmsnorm_matmul.math -o demo-out

# One thread for each test process: more would only fight over the cores. Neighbours stay in one process, as they share
# what they search and compile. Bytecode is kept, whatever the environment says of it: a hundred processes import torch,
# and without it each compiles what it imports (5 s in place of 1.6 s). Memory of large arrays is kept for the next ones:
# the system takes longer to clear its pages than NumPy to fill them.
KEPT   := MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=4294967296
TESTED := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(KEPT) $(RUN) pytest -q -n $(JOBS) --dist worksteal

test: $(READY) ## all tests but those that need a GPU
	@$(TESTED) -m "not gpu"

quick: $(READY) ## the tests of what is Python alone: no kernel is compiled or run
	@$(TESTED) --quick

nightly: $(READY) ## all tests, with every case and many times the examples; hours
	@HYPOTHESIS_PROFILE=nightly COMPLETENESS=nightly $(TESTED) -m "not gpu"

differential: $(READY) ## every operator, type and pair of odd sizes against float64, in the interpreter
	@OMP_NUM_THREADS=1 $(RUN) benchmarks.checks.differential --interpret --full

# The report is benchmarks/results/mutants.json; `python -m adversarial.mutants_page` puts it into docs/notes/mutants.md.
mutants: $(READY) ## 10,000 wrong µGraphs, none of which may pass verification; some ten minutes (N=, SEED=, JOBS=)
	@OMP_NUM_THREADS=1 PYTHONPATH=tests $(RUN) adversarial.campaign --count $(or $(N),10000) --seed $(or $(SEED),0) --jobs $(JOBS)

random-programs: $(READY) ## random legal programs through the real search, judged in float64 (N=, JOBS=)
	@OMP_NUM_THREADS=1 PYTHONPATH=tests $(RUN) adversarial.random_campaign --count $(or $(N),5000) --jobs $(JOBS)

golden: $(READY) ## accept what the golden tests see now; look at the diff before you commit it
	@$(RUN) pytest -q -m "not gpu" --update-golden
	@git --no-pager diff --stat -- tests/golden

# What `make test` does not do: atheris is installed here and nowhere else. TARGET=spec runs one target.
fuzz: $(READY) ## damaged files at every reader for SECONDS (default 300); needs atheris
	@$(BIN)/python -c 'import importlib.util as u; raise SystemExit(not u.find_spec("atheris"))' || $(PIP) "$(ATHERIS)"
	@OMP_NUM_THREADS=1 nice -n 19 $(BIN)/python tests/fuzz/run.py --seconds $(or $(SECONDS),300) \
	  $(if $(TARGET),--target $(TARGET)) --out fuzz-out

faults: $(READY) ## searches and writers killed at KILLS (default 40) random moments
	@OMP_NUM_THREADS=1 nice -n 19 $(BIN)/python tests/fuzz/campaign.py --kills $(or $(KILLS),40)

code-faults: $(READY) ## the checker of emitted code on the suite and on faults planted into it; needs nvcc or NVRTC (OUT=)
	@OMP_NUM_THREADS=1 nice -n 5 $(RUN) benchmarks.checks.code_faults $(if $(OUT),-o $(OUT))

sanitize: $(READY) ## the best kernels of every example under compute-sanitizer; needs a GPU
	@$(RUN) benchmarks.checks.sanitize_plans sanitize-out/plans
	@$(RUN) benchmarks.checks.sanitize sanitize-out/plans -o sanitize-out

# Material for MkDocs and mkdocstrings are installed here and nowhere else.
docs: $(READY) ## build the documentation as a site, into site/; warnings and dead links are errors
	@$(BIN)/python -c 'import material, mkdocstrings' 2>/dev/null || $(PIP) --no-build-isolation -e ".[docs]"
	@NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build --strict --quiet

gallery: $(READY) ## reports of the examples, a whole model and the suite, into gallery/; needs no GPU
	@$(RUN) benchmarks.gallery gallery

check: lint types ## what a reviewer runs first

lint: $(READY) ## ruff: rules and format
	@$(RUN) ruff check
	@$(RUN) ruff format --check

types: $(READY) ## mypy, strict
	@$(RUN) mypy

clean: ## remove what the other targets made
	rm -rf $(VENV) bench-out sanitize-out demo-out fuzz-out gallery site dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis

# With a GPU the torch that the machine already has is used. A .pth file lends it to .venv, because
# --system-site-packages would look past the virtual environment that $(PYTHON) may itself be.
$(READY): pyproject.toml Makefile
	@echo "setting up $(VENV), which takes minutes ($(if $(GPU),with an NVIDIA GPU,no NVIDIA GPU))"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) "$(PIP_QUICK)"
ifneq ($(GPU),)
	@if site=$$($(PYTHON) -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1])' 2>/dev/null); then \
	  lib=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
	  echo "import site; site.addsitedir('$$site')" > "$$lib/machine_torch.pth"; fi
	@$(PIP) hatchling
else
	@echo "  $(TORCH_CPU), a CPU build if pip finds one, and beside it what needs nothing of it"
	@$(TOOLS) >$(VENV)/tools.txt
	@$(PIP) --no-warn-conflicts --no-deps -r $(VENV)/tools.txt & tools=$$!; \
	  $(PIP) --no-warn-conflicts "$(TORCH_CPU)" hatchling && \
	  { $(BIN)/python -c 'import importlib.util as u; raise SystemExit(not u.find_spec("triton"))' || $(PIP) --no-warn-conflicts "$(TRITON_CPU)"; } && wait $$tools
endif
	@echo "  mirage_py and its test tools"
	@$(PIP) --no-build-isolation -e ".[test]"
	@touch $@
