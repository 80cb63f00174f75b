#!/usr/bin/env bash
# Prints the path of OpenSSH's server: one that is there, else Debian's package, if this user may install it.
set -euo pipefail

find_sshd() {
  local path
  for path in ${TERRANE_TEST_SSHD:+"$TERRANE_TEST_SSHD"} /usr/sbin/sshd /usr/local/sbin/sshd /opt/homebrew/sbin/sshd; do
    if [ -x "$path" ]; then
      printf '%s\n' "$path"
      return
    fi
  done
  return 1
}

if find_sshd; then
  exit 0
fi
"$(dirname "${BASH_SOURCE[0]}")/apt-install.sh" openssh-server
if ! find_sshd; then
  printf 'error: the OpenSSH server is missing\nhint: install it: sudo apt-get install openssh-server\n' >&2
  printf '      or name it: TERRANE_TEST_SSHD=/path/to/sshd\n' >&2
  exit 1
fi
