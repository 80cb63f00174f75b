#!/usr/bin/env bash
# A shell in a copy of the quickstart project, with a fresh `terrane` and the engine on its path.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
repository=$PWD

tofu=$(scripts/tools/opentofu.sh)
cargo build --workspace --bin terrane
target=$(scripts/target-dir.sh)

scratch=$(mktemp -d "${TMPDIR:-/tmp}/terrane-dev.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
cp -R "$repository/examples/quickstart" "$scratch/quickstart"

export TERRANE_HOME=$scratch/home
PATH=$target/debug:$(dirname "$tofu"):$PATH
export PATH
printf 'A copy of examples/quickstart with a home of its own; both go away with this shell.\n' >&2
printf 'After a change of terrane: cargo build --workspace --bin terrane --manifest-path %s/Cargo.toml\n' "$repository" >&2
cd "$scratch/quickstart"
"${SHELL:-bash}" || true
