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
"$(dirname "${BASH_SOURCE[0]}")/apt-install.sh" knot
if ! find_knot; then
  printf 'error: Knot DNS is missing\nhint: install it: sudo apt-get install knot\n' >&2
  printf '      or name the program: TERRANE_TEST_KNOT=/path/to/knotd\n' >&2
  exit 1
fi
