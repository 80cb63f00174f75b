# Everything a person runs here. `make` alone lists it. Needs a C compiler, Git, make and a Rust
# toolchain; what else is needed is announced, then installed into the user's cache, once.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# For `make bench`: quick tries take fewer.
BENCH_STACKS ?= 50
BENCH_RUNS ?= 3
BENCH_TERRAGRUNT ?= auto

.PHONY: help demo test check lint bench dev tools clean-tools

help: ## List what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Watch the quickstart project being applied, changed and destroyed
	@scripts/demo.sh

test: ## Run all tests, with real engines and services
	@parts=$$(scripts/services.sh && scripts/engines.sh) && eval "$$parts" && scripts/test.sh

check: ## Before each commit: format, lints, rules of the house, fast tests
	@scripts/lint.sh
	@cargo test --workspace --lib --bins

lint: ## Everything that reads the code without running it
	@scripts/lint.sh --all

bench: ## Measure terrane beside its peers; bench/README.md has the settings
	@BENCH_STACKS=$(BENCH_STACKS) BENCH_RUNS=$(BENCH_RUNS) BENCH_TERRAGRUNT=$(BENCH_TERRAGRUNT) bench/run.sh

dev: ## A shell with a fresh `terrane` and the engine on its path
	@scripts/dev.sh

tools: ## Install what the tests and lints use, and say where it is
	@scripts/services.sh
	@scripts/engines.sh
	@scripts/cargo-deny.sh

clean-tools: ## Remove what was installed into the user's cache
	@scripts/clean-tools.sh
