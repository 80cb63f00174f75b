#!/usr/bin/env bash
# Prints the path of makejinja, which `terrane render` is compared with: one in the user's cache, else installed from PyPI.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly version=2.8.1 jinja=3.1.6 yaml=6.0.3
readonly dir=$tools_cache/makejinja/$version

if [ ! -e "$dir/complete" ]; then
  will_install makejinja 1 "$version is installed from PyPI"
  need_python makejinja
  take_turn "$dir.lock"
fi
if [ ! -e "$dir/complete" ]; then
  python3 -m venv --clear "$dir" >&2
  "$dir/bin/pip" install --disable-pip-version-check "makejinja==$version" "jinja2==$jinja" "pyyaml==$yaml" >&2
  touch "$dir/complete"
fi
printf '%s\n' "$dir/bin/makejinja"
