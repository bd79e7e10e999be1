# Every target sets up what it needs: a virtual environment in .venv, made once and kept until pyproject.toml changes.
#   make test | demo | lint | types | bench | chaos | parity | gpu-check | clean
# PYTHON=python3.12 chooses the interpreter; the default is the first one found that is new enough.

CANDIDATES := python3 python3.14 python3.13 python3.12 python3.11
PYTHON ?= $(shell for p in $(CANDIDATES); do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PEER_VENV := .venv-peer
PEER_READY := $(PEER_VENV)/.ready
# An interpreter that already has PyTorch; without it one is made in .venv-peer.
PEER_PYTHON ?=
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_PYTHON_VERSION_WARNING := 1

.PHONY: demo test lint types bench chaos parity gpu-check clean

demo: $(READY)
	$(BIN)/ddprun --nproc-per-node 2 examples/train_digits.py

test: $(READY)
	$(BIN)/python -m pytest $(ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python benchmarks/compare.py $(if $(PEER_PYTHON),--peer-python $(PEER_PYTHON)) $(ARGS)

chaos: $(READY)
	CHAOS_TRIALS=200 $(BIN)/python -m pytest tests/comm/test_chaos.py
	$(BIN)/python tests/chaos/chaos.py $(ARGS)

# Needs a GPU, and CuPy in .venv: .venv/bin/pip install -e '.[cuda13]'
gpu-check: $(READY)
	$(BIN)/python tests/gpu/check.py $(if $(PEER_PYTHON),--peer-python $(PEER_PYTHON)) $(ARGS)

ifeq ($(PEER_PYTHON),)
parity: $(PEER_READY)
	$(PEER_VENV)/bin/python -m pytest -m torch tests $(ARGS)
else
parity:
	$(PEER_PYTHON) -m pytest -m torch tests $(ARGS)
endif

clean:
	rm -rf $(VENV) $(PEER_VENV) build dist .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo "ddpflow needs Python 3.11 or newer; set PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else \
		"ddpflow needs Python 3.11 or newer, and $(PYTHON) is %d.%d; set PYTHON=" % v[:2])'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[examples,bf16]' --group dev
	$(BIN)/python -m pip install --quiet --editable '.[mpi]' || \
		echo "MPI cannot be installed here: its tests and comparisons are left out" >&2
	touch $@

$(PEER_READY): pyproject.toml
	test -x $(PEER_VENV)/bin/python || $(PYTHON) -m venv $(PEER_VENV)
	$(PEER_VENV)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(PEER_VENV)/bin/python -m pip install --quiet torch==2.13.0 expecttest --editable '.[examples,bf16]' --group dev
	touch $@
