#!/usr/bin/env bash
# Prints the path of Azurite's blob server: one in the user's cache, else installed from npm.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly version=3.35.0
readonly dir=$tools_cache/azurite/$version
readonly program=$dir/node_modules/.bin/azurite-blob

if [ ! -x "$program" ]; then
  will_install azurite 1 "$version is installed from npm"
  command -v npm > /dev/null \
    || fail "Azurite comes from npm, which is missing" "install Node.js, version 20 or newer: https://nodejs.org/"
  take_turn "$dir.lock"
fi
if [ ! -x "$program" ]; then
  mkdir -p "$dir"
  npm install --prefix "$dir" --no-audit --no-fund --omit=dev --omit=optional --loglevel=error "azurite@$version" >&2
fi
printf '%s\n' "$program"
