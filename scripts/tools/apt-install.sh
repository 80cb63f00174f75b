#!/usr/bin/env bash
# `apt-install.sh PACKAGE`: installs a package of Debian's, if there is `apt-get` and this user may. Never fails: whoever
# calls looks again, and says what is missing. No service that comes with it is started: tests start theirs.
set -euo pipefail

install=(apt-get install --yes --no-install-recommends "$1")
settings=(DEBIAN_FRONTEND=noninteractive RUNLEVEL=1)
if ! command -v apt-get > /dev/null; then
  exit 0
fi
if [ "$(id -u)" = 0 ]; then
  printf 'tools: %s\n' "${install[*]}" >&2
  env "${settings[@]}" "${install[@]}" >&2 || true
elif sudo -n true 2> /dev/null; then
  printf 'tools: sudo %s\n' "${install[*]}" >&2
  sudo -n env "${settings[@]}" "${install[@]}" >&2 || true
fi
