#!/usr/bin/env bash
# Prints the directory of PostgreSQL's programs: one that is there, else Debian's package, if this
# user may install it.
set -euo pipefail

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

if find_postgres; then
  exit 0
fi
"$(dirname "${BASH_SOURCE[0]}")/apt-install.sh" postgresql
if ! find_postgres; then
  printf 'error: PostgreSQL is missing\nhint: install it: sudo apt-get install postgresql\n' >&2
  printf '      or name the directory of its programs: TERRANE_TEST_POSTGRES=/path/to/bin\n' >&2
  exit 1
fi
