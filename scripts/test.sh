#!/usr/bin/env bash
# All tests; engines and services are in the environment already (`make test` puts them there). The store's own
# tests run on every kind of store: the same SQL, the same promises.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for store in serving postgres; do
  printf 'test: the store, as %s\n' "$store" >&2
  TERRANE_TEST_STORE=$store cargo test --quiet --package terrane-store --lib
done
printf 'test: everything\n' >&2
exec cargo test --workspace --lib --bins --tests
