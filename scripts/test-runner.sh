#!/usr/bin/env bash
# How cargo starts a test program (see test.sh): with a time limit for all of it, and with the duration of each test. The
# slowest are listed before libtest's summary; all go to the file that TERRANE_TEST_TIMES names, if it is set.
#   scripts/test-runner.sh PROGRAM [ARGUMENT…]
set -uo pipefail

readonly limit=${TERRANE_TEST_LIMIT:-30m}
# Durations are an unstable option of libtest, which asks this variable whether it may be used.
command=(env RUSTC_BOOTSTRAP=1 "$@" -Zunstable-options --report-time)
if command -v timeout > /dev/null; then
  command=(timeout --foreground --kill-after=30s "$limit" "${command[@]}")
fi

# Passes libtest's output on, line by line.
follow() {
  local line times='' package
  # cargo starts a test program in the directory of its package.
  package=$(basename "$PWD")
  while IFS= read -r line; do
    if [[ $line =~ ^test\ ([^ ]+)\ .*\<([0-9.]+)s\>$ ]]; then
      times+="${BASH_REMATCH[2]} $package ${BASH_REMATCH[1]}"$'\n'
    elif [[ $line = 'test result:'* && -n $times ]]; then
      printf 'slowest:\n'
      printf '%s' "$times" | sort -rn | sed -n '1,5s/^\([^ ]*\) [^ ]* \(.*\)/  \1 s  \2/p'
      if [ -n "${TERRANE_TEST_TIMES:-}" ]; then printf '%s' "$times" >> "$TERRANE_TEST_TIMES"; fi
    fi
    printf '%s\n' "$line"
  done
}

"${command[@]}" | follow
status=$?
if [ "$status" = 124 ]; then
  printf 'error: %s was stopped after %s; a test that is named above as running for over 60 seconds hangs\n' "$1" "$limit" >&2
fi
exit "$status"
