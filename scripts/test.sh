#!/usr/bin/env bash
# All tests; engines and services are in the environment already (`make test` puts them there). The store's own
# tests run on every kind of store: the same SQL, the same promises. Always the whole workspace: a part of it would be
# built anew, with other features of its dependencies.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for store in serving postgres; do
  printf 'test: the store, as %s\n' "$store" >&2
  TERRANE_TEST_STORE=$store cargo test --quiet --workspace --lib
done
printf 'test: everything\n' >&2
exec cargo test --workspace --lib --bins --tests
