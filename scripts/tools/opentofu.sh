#!/usr/bin/env bash
# Prints the path of OpenTofu in the version that the tests were written for: one that is named, cached or on PATH; else
# the official release, which `terrane engine install` downloads and verifies; else built from source with Go. Both are
# kept where terrane itself looks.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$tools_dir/../.."

readonly version=1.11.14 module=github.com/opentofu/opentofu
readonly engines=${XDG_CACHE_HOME:-$HOME/.cache}/terrane/engines/tofu
readonly cached=$engines/$version/tofu

# Whether a file is an engine that runs anywhere, and not a shim that requires a version file.
usable() { [ -x "$1" ] && (cd / && "$1" version) > /dev/null 2>&1; }

find_tofu() {
  local found
  if [ -n "${TERRANE_TEST_TOFU:-}" ] && usable "$TERRANE_TEST_TOFU"; then
    printf '%s\n' "$TERRANE_TEST_TOFU"
  elif usable "$cached"; then
    printf '%s\n' "$cached"
  elif found=$(command -v tofu) && (cd / && "$found" version) 2> /dev/null | head -n 1 | grep -qF "v$version"; then
    printf '%s\n' "$found"
  else
    return 1
  fi
}

# The official release, by terrane, which is built as the tests are built.
install_release() {
  cargo build --workspace --bin terrane >&2
  "$(scripts/target-dir.sh)/debug/terrane" engine install tofu "$version" >&2
}

build() {
  need_go OpenTofu
  # The lock of `terrane engine install`.
  take_turn "$engines/.lock"
  if usable "$cached"; then return; fi
  scratch=$(mktemp -d "$engines/.build-XXXXXX")
  trap 'rm -rf "$scratch"' EXIT
  copy_module "$module@v$version" "$scratch/source"
  mkdir "$scratch/out"
  cd "$scratch/source"
  logged OpenTofu "$scratch/log" \
    go build -trimpath -ldflags "-s -w -X $module/version.dev=no" -o "$scratch/out/tofu" ./cmd/tofu
  # What is there without a program that runs is the rest of something broken.
  rm -rf "${cached%/tofu}"
  mv "$scratch/out" "${cached%/tofu}"
}

if find_tofu; then exit 0; fi
if [ -n "${TERRANE_ENGINE_MIRROR:-}" ] || has_releases; then
  will_install tofu 0 "release $version is downloaded, by terrane, which is built first"
  if install_release && find_tofu; then exit 0; fi
  say "tofu: the release cannot be installed; $version is built from source, about 4 minutes"
else
  will_install tofu 4 "$version is built from source"
fi
build
printf '%s\n' "$cached"
