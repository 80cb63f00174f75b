#!/usr/bin/env bash
# All tests; engines and services are in the environment already (`make test` puts them there). The store's own tests run
# on every kind of store. Always the whole workspace: a part of it would be built again, with other features of its
# dependencies. libtest's summary comes last.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'test: %s\n' "$*" >&2; }
runner="target.'cfg(all())'.runner = ['$PWD/scripts/test-runner.sh']"

say "building terrane and its tests, about 15 minutes on two cores the first time; then about 12 minutes of tests"
cargo test --workspace --lib --bins --tests --no-run
for store in serving postgres; do
  say "the store, as $store"
  TERRANE_TEST_STORE=$store cargo test --workspace --lib --config "$runner" -- --quiet
done
say "everything; the durations go to test-times.txt in cargo's target directory"
TERRANE_TEST_TIMES=$(scripts/target-dir.sh)/test-times.txt
export TERRANE_TEST_TIMES
: > "$TERRANE_TEST_TIMES"
exec cargo test --workspace --lib --bins --tests --config "$runner"
