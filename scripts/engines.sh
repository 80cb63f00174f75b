#!/usr/bin/env bash
# Obtains the engines that tests, demo and bench use, and prints `export` lines for them on stdout:
#   eval "$(scripts/engines.sh)"
# OpenTofu is installed by terrane itself; Terraform is used where it is on PATH.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly tofu_version=1.11.14
readonly go_version=1.26.8 # for a build from source

say() { printf '%s\n' "$*" >&2; }

# The command that puts Go where it is expected, for this machine.
go_install_command() {
  local system machine
  system=$(uname -s | tr '[:upper:]' '[:lower:]')
  case $(uname -m) in
    aarch64 | arm64) machine=arm64 ;;
    *) machine=amd64 ;;
  esac
  # shellcheck disable=SC2016 # to be read, not expanded
  printf 'curl -fsSL https://go.dev/dl/go%s.%s-%s.tar.gz | sudo tar -C /usr/local -xz && export PATH=$PATH:/usr/local/go/bin' \
    "$go_version" "$system" "$machine"
}

# Where `terrane engine install` puts it.
cached_tofu() {
  printf '%s/terrane/engines/tofu/%s/tofu' "${XDG_CACHE_HOME:-$HOME/.cache}" "$tofu_version"
}

# A file that a test can run: not a shim that asks for a version first.
usable() { [ -x "$1" ] && (cd / && "$1" version) > /dev/null 2>&1; }

find_tofu() {
  local found
  if [ -n "${TERRANE_TEST_TOFU:-}" ] && usable "$TERRANE_TEST_TOFU"; then
    printf '%s' "$TERRANE_TEST_TOFU"
    return
  fi
  if usable "$(cached_tofu)"; then
    cached_tofu
    return
  fi
  # One on PATH will do if it is exactly the version that the tests were written for.
  if found=$(command -v tofu) && (cd / && "$found" version) 2> /dev/null | head -n 1 | grep -qF "v$tofu_version"; then
    printf '%s' "$found"
    return
  fi
  return 1
}

# A path of the caller's that does not exist makes the engines stop before they begin.
if [ -n "${TF_CLI_CONFIG_FILE:-}" ] && [ ! -e "$TF_CLI_CONFIG_FILE" ]; then
  unset TF_CLI_CONFIG_FILE
  printf 'unset TF_CLI_CONFIG_FILE\n'
fi

if ! tofu=$(find_tofu); then
  say "engines: building terrane, which installs OpenTofu $tofu_version"
  # Of the whole workspace, as the tests are built: alone it would have its dependencies built once more.
  cargo build --quiet --workspace --bin terrane >&2
  if ! "$(scripts/target-dir.sh)/debug/terrane" engine install tofu "$tofu_version" >&2; then
    say ""
    say "error: OpenTofu $tofu_version could not be installed"
    if ! command -v go > /dev/null; then
      say "hint: its release could not be downloaded, and Go, to build it from source, is missing; to install it:"
      say "      $(go_install_command)"
    else
      say "hint: put a \`tofu\` of that version on PATH, or name it: TERRANE_TEST_TOFU=/path/to/tofu"
    fi
    exit 1
  fi
  if ! tofu=$(find_tofu); then
    say "error: OpenTofu $tofu_version was installed, and is not at $(cached_tofu)"
    exit 1
  fi
fi
say "engines: OpenTofu $tofu_version at $tofu"
printf 'export TERRANE_TEST_TOFU=%q\n' "$tofu"

terraform=${TERRANE_TEST_TERRAFORM:-$(command -v terraform || true)}
if [ -n "$terraform" ] && usable "$terraform"; then
  say "engines: $(cd / && "$terraform" version | head -n 1) at $terraform"
  printf 'export TERRANE_TEST_TERRAFORM=%q\n' "$terraform"
else
  say "engines: no terraform on PATH: tests that use both engines run with OpenTofu alone"
fi
