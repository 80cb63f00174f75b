#!/usr/bin/env bash
# Prints the path of Terragrunt for the bench: one on PATH, else one built from source into the
# user's cache, once. Fails, and says why, if neither is possible.
set -euo pipefail

readonly version=0.89.0
cached=${XDG_CACHE_HOME:-$HOME/.cache}/terrane/bench-tools/terragrunt/$version/terragrunt

if found=$(command -v terragrunt); then
  printf '%s\n' "$found"
  exit 0
fi
if [ -x "$cached" ]; then
  printf '%s\n' "$cached"
  exit 0
fi
if ! command -v go > /dev/null; then
  printf 'bench: no terragrunt on PATH, and no Go to build it: https://go.dev/dl/\n' >&2
  exit 1
fi

printf 'bench: building Terragrunt %s, once, a few minutes\n' "$version" >&2
scratch=$(mktemp -d "${TMPDIR:-/tmp}/terrane-terragrunt.XXXXXX")
trap 'chmod -R u+w "$scratch"; rm -rf "$scratch"' EXIT
# `direct` would turn a miss of the proxy into a slow clone.
GOPROXY=$(go env GOPROXY)
export GOPROXY=${GOPROXY%,direct} GOTOOLCHAIN=local GOFLAGS=-mod=mod CGO_ENABLED=0
module=$(cd "$scratch" && go mod download -json "github.com/gruntwork-io/terragrunt@v$version" \
  | sed -n 's/^[[:space:]]*"Dir": "\(.*\)",*$/\1/p')
cp -R "$module" "$scratch/source"
chmod -R u+w "$scratch/source"
mkdir -p "$(dirname "$cached")"
(cd "$scratch/source" && go build -trimpath -ldflags "-s -w -X github.com/gruntwork-io/go-commons/version.Version=v$version" -o "$cached.new" .) >&2
mv "$cached.new" "$cached"
printf '%s\n' "$cached"
