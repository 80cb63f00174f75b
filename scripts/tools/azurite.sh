#!/usr/bin/env bash
# Prints the path of Azurite's blob server: one installed before into the user's cache, else installed now from
# npm, pinned, once.
set -euo pipefail

readonly version=3.35.0
readonly dir=${XDG_CACHE_HOME:-$HOME/.cache}/terrane/test-tools/azurite/$version
readonly program=$dir/node_modules/.bin/azurite-blob

if [ -x "$program" ]; then
  printf '%s\n' "$program"
  exit 0
fi
if ! command -v npm > /dev/null; then
  printf 'error: Azurite comes from npm, which is missing\nhint: install Node.js, version 20 or newer: https://nodejs.org/\n' >&2
  exit 1
fi

printf 'tools: installing Azurite %s, once, about a minute\n' "$version" >&2
mkdir -p "$dir"
exec 9> "$dir.lock"
flock 9
if [ ! -x "$program" ]; then
  npm install --prefix "$dir" --no-audit --no-fund --omit=dev --omit=optional --loglevel=error "azurite@$version" >&2
fi
printf '%s\n' "$program"
