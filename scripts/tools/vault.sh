#!/usr/bin/env bash
# Prints the path of a Vault for tests: its own core and HTTP, with the KV store and three ways to log in, in memory. It is put
# together by `vault/main.go`, since most of the whole program is not needed. One built before into the user's cache, else
# built now from its modules, pinned, once.
set -euo pipefail

readonly version=v1.21.4
# Of the program that is put together here.
readonly edition=2
readonly cached=${XDG_CACHE_HOME:-$HOME/.cache}/terrane/test-tools/vault/$version-$edition/vault
main=$(cd "$(dirname "${BASH_SOURCE[0]}")/vault" && pwd)/main.go

if [ -x "$cached" ]; then
  printf '%s\n' "$cached"
  exit 0
fi
if ! command -v go > /dev/null; then
  printf 'error: vault is built from source, and Go is missing\nhint: install it from https://go.dev/dl/ and try again\n' >&2
  exit 1
fi

printf 'tools: building vault %s, once, some minutes\n' "$version" >&2
mkdir -p "$(dirname "$cached")"
# Two callers at once build it once: the second waits, then finds it.
exec 9> "$(dirname "$cached").lock"
flock 9
if [ ! -x "$cached" ]; then
  scratch=$(mktemp -d "${TMPDIR:-/tmp}/terrane-vault.XXXXXX")
  trap 'rm -rf "$scratch"' EXIT
  # `direct` would turn a miss of the proxy into a slow clone.
  GOPROXY=$(go env GOPROXY)
  export GOPROXY=${GOPROXY%,direct} GOTOOLCHAIN=local CGO_ENABLED=0
  export GOFLAGS="-mod=mod -p=${TERRANE_TOOLS_JOBS:-2}"
  cd "$scratch"
  cp "$main" .
  {
    go mod init example.io/vault
    # Upstream builds with the SDK beside it, which is that of this version. Required, not got: the whole program's
    # modules would come along, which takes three times as long.
    go mod edit -replace github.com/hashicorp/vault/sdk=github.com/hashicorp/vault/sdk@v0.20.0 \
      -require "github.com/hashicorp/vault@$version"
    go build -trimpath -ldflags "-s -w" -o "$cached.new" .
  } 2> "$scratch/log" || {
    tail -n 20 "$scratch/log" >&2
    printf 'error: vault %s could not be built\n' "$version" >&2
    exit 1
  }
  mv "$cached.new" "$cached"
fi
printf '%s\n' "$cached"
