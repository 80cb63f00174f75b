#!/usr/bin/env bash
# Installs cargo-deny, pinned, unless that version is there already.
set -euo pipefail

readonly version=0.20.2

if [ "$(cargo deny --version 2> /dev/null || true)" = "cargo-deny $version" ]; then
  printf 'tools: cargo-deny %s is there\n' "$version" >&2
  exit 0
fi
printf 'tools: building cargo-deny %s, once, about three minutes\n' "$version" >&2
cargo install --locked --force --version "$version" cargo-deny
