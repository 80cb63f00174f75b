#!/usr/bin/env bash
# Prints the directory of PostgreSQL's programs: one that is installed, else Debian's package, if this user may install it.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# The newest one; `initdb` is often not on PATH.
find_postgres() {
  local dir
  for dir in ${TERRANE_TEST_POSTGRES:+"$TERRANE_TEST_POSTGRES"} $(printf '%s\n' /usr/lib/postgresql/*/bin /opt/homebrew/opt/postgresql*/bin /usr/pgsql-*/bin | sort -rV); do
    if [ -x "$dir/initdb" ] && [ -x "$dir/postgres" ]; then
      printf '%s\n' "$dir"
      return
    fi
  done
  if dir=$(command -v initdb); then
    dirname "$dir"
    return
  fi
  return 1
}

if find_postgres; then exit 0; fi
install_package postgresql
find_postgres || fail "PostgreSQL is missing" "install it: sudo apt-get install postgresql" \
  "or name the directory of its programs: TERRANE_TEST_POSTGRES=/path/to/bin"
