#!/usr/bin/env bash
# Prints the path of a Go program: one built before into the user's cache, else built now from its
# module, pinned, once. No source is copied; what the module replaces upstream is ignored.
#   scripts/tools/go-tool.sh NAME MODULE VERSION [PACKAGE]
set -euo pipefail

readonly name=$1 module=$2 version=$3
readonly package=${4:-$module}
readonly cached=${XDG_CACHE_HOME:-$HOME/.cache}/terrane/test-tools/$name/$version/$name

if [ -x "$cached" ]; then
  printf '%s\n' "$cached"
  exit 0
fi
if ! command -v go > /dev/null; then
  printf 'error: %s is built from source, and Go is missing\nhint: install it from https://go.dev/dl/ and try again\n' "$name" >&2
  exit 1
fi

printf 'tools: building %s %s, once, a few minutes\n' "$name" "$version" >&2
mkdir -p "$(dirname "$cached")"
# Two callers at once build it once: the second waits, then finds it.
exec 9> "$(dirname "$cached").lock"
flock 9
if [ ! -x "$cached" ]; then
  scratch=$(mktemp -d "${TMPDIR:-/tmp}/terrane-$name.XXXXXX")
  trap 'rm -rf "$scratch"' EXIT
  # `direct` would turn a miss of the proxy into a slow clone.
  GOPROXY=$(go env GOPROXY)
  export GOPROXY=${GOPROXY%,direct} GOTOOLCHAIN=local CGO_ENABLED=0
  export GOFLAGS="-mod=mod -p=${TERRANE_TOOLS_JOBS:-2}"
  cd "$scratch"
  {
    go mod init example.io/tool
    go get "$module@$version"
    go build -trimpath -ldflags "-s -w" -o "$cached.new" "$package"
  } 2> "$scratch/log" || {
    tail -n 20 "$scratch/log" >&2
    printf 'error: %s %s could not be built\n' "$name" "$version" >&2
    exit 1
  }
  mv "$cached.new" "$cached"
fi
printf '%s\n' "$cached"
