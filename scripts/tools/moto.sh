#!/usr/bin/env bash
# Prints the path of moto's server, which answers as AWS does: one in the user's cache, else installed from PyPI.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly version=5.2.5
readonly dir=$tools_cache/moto/$version
readonly program=$dir/bin/moto_server

if [ ! -x "$program" ]; then
  will_install moto 2 "$version is installed from PyPI"
  need_python moto
  take_turn "$dir.lock"
fi
if [ ! -x "$program" ]; then
  python3 -m venv --clear "$dir" >&2
  "$dir/bin/pip" install --disable-pip-version-check "moto[server]==$version" >&2
fi
printf '%s\n' "$program"
