#!/usr/bin/env bash
# Prints the directory of dex, an OpenID provider for tests: the program `dex` and its pages in `web`. One made before into
# the user's cache, else made now from its module, pinned, once.
set -euo pipefail

readonly version=v0.0.0-20260303133905-11d2eeb52b42
readonly dir=${XDG_CACHE_HOME:-$HOME/.cache}/terrane/test-tools/dex/$version

if [ -d "$dir" ]; then
  printf '%s\n' "$dir"
  exit 0
fi
if ! command -v go > /dev/null; then
  printf 'error: dex is built from source, and Go is missing\nhint: install it from https://go.dev/dl/ and try again\n' >&2
  exit 1
fi

printf 'tools: building dex, once, a minute\n' >&2
mkdir -p "$(dirname "$dir")"
# Two callers at once build it once: the second waits, then finds it.
exec 9> "$dir.lock"
flock 9
if [ ! -d "$dir" ]; then
  scratch=$(mktemp -d "$(dirname "$dir")/new.XXXXXX")
  trap 'rm -rf "$scratch"' EXIT
  # `direct` would turn a miss of the proxy into a slow clone.
  GOPROXY=$(go env GOPROXY)
  export GOPROXY=${GOPROXY%,direct} GOTOOLCHAIN=local CGO_ENABLED=0
  export GOFLAGS="-mod=mod -p=${TERRANE_TOOLS_JOBS:-2}"
  source=$( (cd "$scratch" && go mod download -json "github.com/dexidp/dex@$version" 2> /dev/null) | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
  if [ -z "$source" ]; then
    printf 'error: the source of dex could not be had\n' >&2
    exit 1
  fi
  mkdir -p "$scratch/out"
  cp -r "$source" "$scratch/dex"
  chmod -R u+w "$scratch/dex"
  cp -r "$scratch/dex/web" "$scratch/out/web"
  cd "$scratch/dex"
  # Its sibling is published, too.
  sed -i '/^replace .*dex\/api\/v2/d' go.mod
  go build -trimpath -buildvcs=false -ldflags "-s -w" -o "$scratch/out/dex" ./cmd/dex 2> "$scratch/log" || {
    tail -n 20 "$scratch/log" >&2
    printf 'error: dex could not be built\n' >&2
    exit 1
  }
  chmod 755 "$scratch/out"
  mv "$scratch/out" "$dir"
fi
printf '%s\n' "$dir"
