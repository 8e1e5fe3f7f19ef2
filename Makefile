# `make demo` and `make test` are all that a newcomer needs; both create the environment first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test check serve bench proto docs hooks clean

help: ## Show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Espalier needs Python 3.11 or newer: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	@echo "Installing into $(VENV); the first time this takes a few minutes"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[server,dev]'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps xgrammar apache-tvm-ffi  # without triton
	touch $@

demo: $(STAMP) ## Fetch the default model, start a server, send constrained requests over gRPC
	$(BIN)/espalier demo

test: $(STAMP) ## Run every test
	$(BIN)/python -m pytest

check: $(STAMP) ## Lint, types and import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

serve: $(STAMP) ## Serve the default model on 127.0.0.1:50051
	$(BIN)/espalier serve

bench: $(STAMP) ## Throughput table beside transformers
	$(BIN)/python -m tests.bench.throughput

proto: $(STAMP) ## Generate the modules beside service/v1/*.proto
	$(BIN)/python -m grpc_tools.protoc --proto_path=. --python_out=. --grpc_python_out=. \
		--mypy_out=. --mypy_grpc_out=. \
		--plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy --plugin=protoc-gen-mypy_grpc=$(BIN)/protoc-gen-mypy_grpc \
		service/v1/*.proto
	rm -f service/v1/common_pb2_grpc.py service/v1/common_pb2_grpc.pyi  # no services in it

docs: $(STAMP) ## Write the flag tables of README.md from the parsers
	$(BIN)/python -m tests.flag_tables

hooks: $(STAMP) ## Check every commit before it is made
	$(BIN)/pre-commit install

clean: ## Remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
