#!/usr/bin/env bash
# Prints the path of `knotd`, a name server: one that is installed, else Debian's package, if this user may install it.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Servers are often not on the PATH of people.
find_knot() {
  PATH=$PATH:/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin command -v "${TERRANE_TEST_KNOT:-knotd}"
}

if find_knot; then exit 0; fi
install_package knot
find_knot || fail "Knot DNS is missing" "install it: sudo apt-get install knot" \
  "or name the program: TERRANE_TEST_KNOT=/path/to/knotd"
