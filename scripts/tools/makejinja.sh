#!/usr/bin/env bash
# Prints the path of makejinja, which ours is compared with: one installed before into the user's cache, else
# installed now from PyPI, pinned, once.
set -euo pipefail

readonly version=2.8.1 jinja=3.1.6 yaml=6.0.3
readonly dir=${XDG_CACHE_HOME:-$HOME/.cache}/terrane/test-tools/makejinja/$version

if [ ! -e "$dir/complete" ]; then
  if ! command -v python3 > /dev/null; then
    printf 'error: makejinja is written in Python, and Python is missing\nhint: install `python3` and `python3-venv` and try again\n' >&2
    exit 1
  fi
  printf 'tools: installing makejinja %s, once\n' "$version" >&2
  mkdir -p "$(dirname "$dir")"
  # Two callers at once install it once: the second waits, then finds it.
  exec 9> "$dir.lock"
  flock 9
  if [ ! -e "$dir/complete" ]; then
    rm -rf "$dir"
    log=$(mktemp "${TMPDIR:-/tmp}/terrane-makejinja.XXXXXX")
    {
      python3 -m venv "$dir"
      "$dir/bin/pip" install --disable-pip-version-check "makejinja==$version" "jinja2==$jinja" "pyyaml==$yaml"
    } > "$log" 2>&1 || {
      tail -n 20 "$log" >&2
      printf 'error: makejinja %s could not be installed\n' "$version" >&2
      exit 1
    }
    rm -f "$log"
    touch "$dir/complete"
  fi
fi
printf '%s\n' "$dir/bin/makejinja"
