#!/usr/bin/env bash
# Prints the path of `knotd`, a name server: one that is there, else Debian's package, if this user may
# install it.
set -euo pipefail

# Servers are often not on the PATH of people.
find_knot() {
  PATH=$PATH:/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin command -v "${TERRANE_TEST_KNOT:-knotd}"
}

if find_knot; then
  exit 0
fi
install="apt-get install --yes --no-install-recommends knot"
if command -v apt-get > /dev/null; then
  if [ "$(id -u)" = 0 ]; then
    printf 'tools: %s\n' "$install" >&2
    DEBIAN_FRONTEND=noninteractive $install >&2 || true
  elif sudo -n true 2> /dev/null; then
    printf 'tools: sudo %s\n' "$install" >&2
    sudo -n DEBIAN_FRONTEND=noninteractive $install >&2 || true
  fi
fi
if ! find_knot; then
  printf 'error: Knot DNS is missing\nhint: install it: sudo %s\n' "$install" >&2
  printf '      or name the program: TERRANE_TEST_KNOT=/path/to/knotd\n' >&2
  exit 1
fi
