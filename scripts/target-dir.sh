#!/usr/bin/env bash
# Prints the directory that cargo builds into, wherever the user's settings put it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo metadata --format-version 1 --no-deps --offline \
  | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p'
