#!/usr/bin/env bash
# Prints the path of moto's server, which answers as AWS does: one installed before into the user's cache, else installed
# now from PyPI, pinned, once.
set -euo pipefail

readonly version=5.2.5
readonly dir=${XDG_CACHE_HOME:-$HOME/.cache}/terrane/test-tools/moto/$version
readonly program=$dir/bin/moto_server

if [ -x "$program" ]; then
  printf '%s\n' "$program"
  exit 0
fi
if ! python3 -c 'import venv, ensurepip' 2> /dev/null; then
  printf 'error: moto comes from PyPI, and Python 3 with `venv` is missing\nhint: install it: sudo apt-get install python3-venv\n' >&2
  exit 1
fi

printf 'tools: installing moto %s, once, a minute or two\n' "$version" >&2
mkdir -p "$dir"
# Two callers at once install it once: the second waits, then finds it.
exec 9> "$dir.lock"
flock 9
if [ ! -x "$program" ]; then
  python3 -m venv --clear "$dir" >&2
  "$dir/bin/pip" install --quiet --disable-pip-version-check "moto[server]==$version" >&2
fi
printf '%s\n' "$program"
