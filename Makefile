# make help   shows what there is. Needs Python 3.11 to 3.14, make and pip.
.DEFAULT_GOAL := help
.PHONY: help lab test notebooks check bench lint

VENV  := .venv
PY    := $(VENV)/bin/python
READY := $(VENV)/.ready

# Another Python:       make lab PYTHON=/opt/python3.12/bin/python3
# Flags for JupyterLab: make lab LAB_FLAGS=--no-browser
# Flags for pytest:     make test TEST_FLAGS="-k rollout"
# Some notebooks only:  make notebooks NOTEBOOKS=notebooks/01_raw_attention.ipynb
PYTHON     ?=
LAB_FLAGS  ?=
TEST_FLAGS ?=
NOTEBOOKS  ?=

# The kernel and the widgets must come from .venv, whatever else is installed in the user's home.
export JUPYTER_PREFER_ENV_PATH := 1
export JUPYTER_PATH := $(CURDIR)/$(VENV)/share/jupyter
unexport PYTHONHOME PYTHONPATH MPLBACKEND

# What is committed and compared must not depend on models that happen to be on this machine.
test notebooks check: export HF_HUB_OFFLINE := 1
test notebooks check: export HF_HUB_CACHE := $(CURDIR)/$(VENV)/no-models
# Two processes share the cores, and threads of torch that wait for each other keep them busy.
test notebooks: export OMP_NUM_THREADS := 1
# The networks of the course are small. Where other programs use the processors too, torch's own
# choice, a thread per core, is several times slower than one thread. A number that you set stays.
lab check: export OMP_NUM_THREADS ?= 1
# The same for notebooks whose kernel is in .venv but which `make lab` did not start, as in VS Code.
KERNEL_CONFIG := import os; os.environ.setdefault("OMP_NUM_THREADS", "1")

help:
	@echo "make lab        set up .venv if needed and open the course in JupyterLab"
	@echo "make check      check this computer: one OK or FAIL line per thing"
	@echo "make test       run all tests, and every notebook against its stored outputs"
	@echo "make notebooks  execute every notebook and write it in its committed form"
	@echo "make lint       ruff: lint and format, notebooks too"
	@echo "make bench      compare the helpers with naive reference code"

lab: $(READY)
	@$(PY) -m jupyterlab --ServerApp.root_dir="$(CURDIR)" \
	  --LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb \
	  $$(test "$$(id -u)" = 0 && echo --allow-root) $(LAB_FLAGS)

test: $(READY)
	@$(PY) -m pytest -q -n 2 --dist loadscope --no-loadscope-reorder $(TEST_FLAGS)

notebooks: $(READY)
	@$(PY) tools/rebuild.py $(NOTEBOOKS)

check: $(READY)
	@$(PY) -P helpers/checks/environment.py

bench: $(READY)
	@$(PY) -m benchmarks.run

lint: $(READY)
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

# Set up again only when what is to be installed changes. The stamp is written last, so a set-up that
# was stopped half way is done again. A .venv with a suitable Python is kept: what is in it is reused.
SUITABLE := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))

$(READY): pyproject.toml constraints.txt
	@rm -f $@
	@if ! $(PY) -c '$(SUITABLE)' 2>/dev/null; then \
	  for python in $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11); do \
	    "$$python" -c '$(SUITABLE)' 2>/dev/null && found="$$python" && break; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo "This course needs Python 3.11, 3.12, 3.13 or 3.14, and found none of them as" \
	      "$(or $(PYTHON),python3 or python3.11 to python3.14)." >&2; \
	    echo "Install one (https://www.python.org/downloads/) or name it: make lab PYTHON=/path/to/python3" >&2; \
	    exit 1; \
	  fi; \
	  echo "Setting up $(VENV). The first time this downloads PyTorch and takes some minutes."; \
	  "$$found" -m venv --clear $(VENV) >/dev/null 2>&1 \
	    || { "$$found" -m venv --clear --without-pip $(VENV) \
	      && "$$found" -m pip --python $(PY) install --quiet pip; }; \
	fi
	@$(PY) -m pip install --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@mkdir -p $(VENV)/etc/ipython
	@echo '$(KERNEL_CONFIG)' >$(VENV)/etc/ipython/ipython_kernel_config.py
	@$(PY) -c 'import matplotlib.font_manager'  # builds the font cache now, not in a lesson
	@touch $@
