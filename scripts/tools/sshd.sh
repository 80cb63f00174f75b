#!/usr/bin/env bash
# Prints the path of OpenSSH's server: one that is installed, else Debian's package, if this user may install it.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

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

if find_sshd; then exit 0; fi
install_package openssh-server
find_sshd || fail "the OpenSSH server is missing" "install it: sudo apt-get install openssh-server" \
  "or name it: TERRANE_TEST_SSHD=/path/to/sshd"
