# `make demo` and `make test` each set everything up first. Python 3.11 to 3.13 must be there, and for full speed a C++
# compiler.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test slow lesser wheel setup lint docs bench clean

demo: setup
	$(BIN)/headstart demo

# Bytecode is kept even where the environment says otherwise: tests start many processes, and each would compile it all.
test slow lesser: export PYTHONDONTWRITEBYTECODE :=

test: setup
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

# All of it, or what is named: make slow WHICH=tests/engine
WHICH ?= tests
slow: setup
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow $(WHICH)

# What computes logits, as on a processor that has AVX2 and nothing newer: PyTorch, oneDNN and MKL are held to it, and the
# kernels are those of that level. What is made of logits is the same on every processor, so those tests run once.
LESSER := tests/model/native tests/model/decoders tests/model/quantised tests/model/gguf/test_packed.py \
	tests/model/gguf/test_architectures.py tests/model/recipes/test_families.py tests/model/test_growing.py \
	tests/model/test_int4.py tests/model/test_runner.py tests/loading/test_gguf_packed.py tests/loading/test_self_int4.py \
	tests/drafters/test_eagle.py tests/drafters/test_dflash.py tests/drafters/test_gemma4_assistant.py \
	tests/engine/test_greedy_identity.py
lesser: export ATEN_CPU_CAPABILITY := avx2
lesser: export ONEDNN_MAX_CPU_ISA := AVX2
lesser: export MKL_ENABLE_INSTRUCTIONS := AVX2
lesser: export HEADSTART_LEVEL := $(if $(filter x86_64,$(shell uname -m)),avx2,neon)
lesser: setup
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" $(LESSER)

# Builds the wheel, with the kernels of every level, and runs it where there is no compiler.
wheel: setup
	$(BIN)/python tools/try_wheel.py

lint: setup
	$(BIN)/ruff check src tests tools benchmarks hatch_build.py
	$(BIN)/ruff format --check src tests tools benchmarks hatch_build.py
	$(BIN)/mypy
	$(BIN)/lint-imports

# The documentation as static files, in site/; a broken link is an error.
docs: setup $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# make bench PROMPTS=file TARGET=dir DRAFTER=dir ENVIRONMENTS=dir [OPTIONS="--limit 4"]; how to make the environments:
# benchmarks/peer_workers/README.md
bench: setup
	@for given in "PROMPTS=$(PROMPTS)" "TARGET=$(TARGET)" "DRAFTER=$(DRAFTER)" "ENVIRONMENTS=$(ENVIRONMENTS)"; do \
		if [ -z "$${given#*=}" ]; then \
			echo "make bench needs $$given..., as in: make bench PROMPTS=prompts.jsonl TARGET=dir DRAFTER=dir ENVIRONMENTS=dir" >&2; \
			exit 2; \
		fi; \
	done
	$(BIN)/python benchmarks/peers.py --prompts "$(PROMPTS)" --target "$(TARGET)" --drafter "$(DRAFTER)" \
		--environments "$(ENVIRONMENTS)" --markdown $(OPTIONS)

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "torch==2.13.0"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	touch $@

clean:
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache .hypothesis
