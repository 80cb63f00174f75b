#!/usr/bin/env bash
# Reads the code without running it. `--all` adds what needs a tool that has to be built first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

step() { printf '==> %s\n' "$*" >&2; "$@"; }

step cargo fmt --all --check
step cargo clippy --workspace --all-targets -- -D warnings
# Of the whole workspace, as the tests are built: alone it would be built with other features of its dependencies, and
# these twice.
step cargo build --workspace --bin xtask
xtask=$(scripts/target-dir.sh)/debug/xtask
step "$xtask" tidy
step "$xtask" docs --check
if [ "${1:-}" = --all ]; then
  scripts/cargo-deny.sh
  # Advisories are left out: they need a database from the network, and would fail a build for
  # what somebody else published. Look at them by hand: cargo deny check advisories
  step cargo deny check --hide-inclusion-graph bans licenses sources
fi
