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
install="apt-get install --yes --no-install-recommends openssh-server"
if command -v apt-get > /dev/null; then
  if [ "$(id -u)" = 0 ]; then
    printf 'tools: %s\n' "$install" >&2
    # Its own service is not wanted: tests start theirs, on loopback.
    DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 $install >&2 || true
  elif sudo -n true 2> /dev/null; then
    printf 'tools: sudo %s\n' "$install" >&2
    sudo -n DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 $install >&2 || true
  fi
fi
if ! find_sshd; then
  printf 'error: the OpenSSH server is missing\nhint: install it: sudo %s\n' "$install" >&2
  printf '      or name it: TERRANE_TEST_SSHD=/path/to/sshd\n' >&2
  exit 1
fi
