#!/usr/bin/env bash
# Removes what `make test`, `make demo` and `make bench` put into the user's cache: engines, services and peers.
# No state lies there.
set -euo pipefail

cache=${XDG_CACHE_HOME:-$HOME/.cache}/terrane
for part in engines test-tools bench-tools; do
  if [ -d "$cache/$part" ]; then
    du -sh "$cache/$part" >&2
    chmod -R u+w "$cache/$part"
    rm -rf "${cache:?}/$part"
  fi
done
