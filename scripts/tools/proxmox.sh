#!/usr/bin/env bash
# Prints the directory of a mirror with the Proxmox provider, for the example that plans with it: one built before
# into the user's cache, else built now from its module, pinned, once.
set -euo pipefail

readonly module=github.com/bpg/terraform-provider-proxmox version=0.111.1
readonly cached=${XDG_CACHE_HOME:-$HOME/.cache}/terrane/test-tools/proxmox/$version

if [ -d "$cached" ]; then
  printf '%s\n' "$cached"
  exit 0
fi
if ! command -v go > /dev/null; then
  printf 'error: the Proxmox provider is built from source, and Go is missing\nhint: install it from https://go.dev/dl/ and try again\n' >&2
  exit 1
fi

printf 'tools: building the Proxmox provider %s, once, a minute or two\n' "$version" >&2
mkdir -p "$(dirname "$cached")"
# Two callers at once build it once: the second waits, then finds it.
exec 9> "$cached.lock"
flock 9
if [ ! -d "$cached" ]; then
  scratch=$(mktemp -d "$(dirname "$cached")/new.XXXXXX")
  trap 'chmod -R u+w "$scratch"; rm -rf "$scratch"' EXIT
  # `direct` would turn a miss of the proxy into a slow clone.
  GOPROXY=$(go env GOPROXY)
  export GOPROXY=${GOPROXY%,direct} GOTOOLCHAIN=local CGO_ENABLED=0 GOFLAGS="-mod=mod -p=${TERRANE_TOOLS_JOBS:-2}"
  source=$(go mod download -json "$module@v$version" | sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$/\1/p')
  cp -r "$source" "$scratch/source"
  chmod -R u+w "$scratch/source"
  platform=$(go env GOOS)_$(go env GOARCH)
  place=$scratch/mirror/registry.opentofu.org/bpg/proxmox/$version/$platform
  mkdir -p "$place"
  (cd "$scratch/source" && go build -trimpath -ldflags "-s -w" -o "$place/terraform-provider-proxmox_v$version" .) 2> "$scratch/log" || {
    tail -n 20 "$scratch/log" >&2
    printf 'error: the Proxmox provider could not be built\n' >&2
    exit 1
  }
  chmod 755 "$scratch/mirror"
  mv "$scratch/mirror" "$cached"
fi
printf '%s\n' "$cached"
