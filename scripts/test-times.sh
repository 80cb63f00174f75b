#!/usr/bin/env bash
# Turns the durations of the last `make test` into a page: scripts/test-times.sh > docs/reference/tests.md
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

times=$(scripts/target-dir.sh)/test-times.txt
if [ ! -s "$times" ]; then
  printf 'error: there are no durations in %s\nhint: make test\n' "$times" >&2
  exit 1
fi
cat << END
# How long the tests take

Durations of one \`make test\` on a machine with $(getconf _NPROCESSORS_ONLN) processors, written by \`scripts/test-times.sh\` at a release. Tests of a
package run in parallel, so their sum is more than the time that passes.

| package | tests | seconds, summed | slowest |
|---|--:|--:|--:|
END
awk '{ count[$2]++; sum[$2] += $1; if ($1 > most[$2]) most[$2] = $1 }
  END { for (name in count) printf "| %s | %d | %.1f | %.1f |\n", name, count[name], sum[name], most[name] }' "$times" | sort
cat << 'END'

The forty slowest:

| seconds | package | test |
|--:|---|---|
END
sort -rn "$times" | awk 'NR <= 40 { printf "| %.1f | %s | `%s` |\n", $1, $2, $3 }'
