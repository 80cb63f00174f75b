#!/usr/bin/env bash
# Obtains the engines that tests and bench use, and prints `export` lines for them on stdout:
#   eval "$(scripts/engines.sh)"
# Terraform is used where it is on PATH. Where it is not, tests with it are left out by name: TERRANE_TEST_WITHOUT.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'engines: %s\n' "$*" >&2; }

# A path of the caller's that does not exist makes the engines stop before they begin.
if [ -n "${TF_CLI_CONFIG_FILE:-}" ] && [ ! -e "$TF_CLI_CONFIG_FILE" ]; then
  unset TF_CLI_CONFIG_FILE
  printf 'unset TF_CLI_CONFIG_FILE\n'
fi

scripts/services.sh tofu

terraform=${TERRANE_TEST_TERRAFORM:-$(command -v terraform || true)}
if [ -n "$terraform" ] && (cd / && "$terraform" version) > /dev/null 2>&1; then
  say "$(cd / && "$terraform" version | head -n 1) at $terraform"
  printf 'export TERRANE_TEST_TERRAFORM=%q\n' "$terraform"
else
  say "no terraform on PATH: TERRANE_TEST_WITHOUT=terraform, its tests are left out"
  printf 'export TERRANE_TEST_WITHOUT=terraform\n'
fi
