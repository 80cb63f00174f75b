#!/usr/bin/env bash
# Prints the directory of a mirror with the small provider that tests use: one in the user's cache, else built from
# crates/testkit/provider.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$tools_dir/../../crates/testkit/provider"

digest=$(cat main.go go.mod go.sum | sha256sum | cut -c 1-16)
readonly cached=$tools_cache/provider/$digest

if [ ! -d "$cached" ]; then
  will_install provider 1 "the provider of the tests is built from source"
  need_go "the provider of the tests"
  take_turn "$cached.lock"
fi
if [ ! -d "$cached" ]; then
  scratch=$(mktemp -d "$(dirname "$cached")/new.XXXXXX")
  trap 'rm -rf "$scratch"' EXIT
  place=$scratch/mirror/example.io/test/thing/1.0.0/$(go env GOOS)_$(go env GOARCH)
  mkdir -p "$place"
  # The module's own list of checksums is complete.
  GOFLAGS=${GOFLAGS/-mod=mod /}
  logged "the provider of the tests" "$scratch/log" \
    go build -trimpath -buildvcs=false -ldflags "-s -w" -o "$place/terraform-provider-thing_v1.0.0" .
  mv "$scratch/mirror" "$cached"
fi
printf '%s\n' "$cached"
