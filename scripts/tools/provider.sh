#!/usr/bin/env bash
# Prints the directory of a mirror with the small provider that tests use: one built before into the user's
# cache, else built now from crates/testkit/provider, once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../crates/testkit/provider"

digest=$(cat main.go go.mod go.sum | sha256sum | cut -c 1-16)
readonly cached=${XDG_CACHE_HOME:-$HOME/.cache}/terrane/test-tools/provider/$digest
if [ -d "$cached" ]; then
  printf '%s\n' "$cached"
  exit 0
fi
if ! command -v go > /dev/null; then
  printf 'error: the provider of the tests is built from source, and Go is missing\nhint: install it from https://go.dev/dl/ and try again\n' >&2
  exit 1
fi

printf 'tools: building the provider of the tests, once, a minute\n' >&2
mkdir -p "$(dirname "$cached")"
# Two callers at once build it once: the second waits, then finds it.
exec 9> "$cached.lock"
flock 9
if [ ! -d "$cached" ]; then
  scratch=$(mktemp -d "$(dirname "$cached")/new.XXXXXX")
  trap 'rm -rf "$scratch"' EXIT
  # `direct` would turn a miss of the proxy into a slow clone.
  GOPROXY=$(go env GOPROXY)
  export GOPROXY=${GOPROXY%,direct} GOTOOLCHAIN=local CGO_ENABLED=0 GOFLAGS="-p=${TERRANE_TOOLS_JOBS:-2}"
  place=$scratch/mirror/example.io/test/thing/1.0.0/$(go env GOOS)_$(go env GOARCH)
  mkdir -p "$place"
  go build -trimpath -buildvcs=false -ldflags "-s -w" -o "$place/terraform-provider-thing_v1.0.0" . 2> "$scratch/log" || {
    tail -n 20 "$scratch/log" >&2
    printf 'error: the provider of the tests could not be built\n' >&2
    exit 1
  }
  chmod 755 "$scratch/mirror"
  mv "$scratch/mirror" "$cached"
fi
printf '%s\n' "$cached"
