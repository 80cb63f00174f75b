#!/usr/bin/env bash
# Prints the directory of a mirror with the Proxmox provider, for the example that plans with it: one in the user's
# cache, else built from its module.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly module=github.com/bpg/terraform-provider-proxmox version=0.111.1
readonly cached=$tools_cache/proxmox/$version

if [ ! -d "$cached" ]; then
  will_install proxmox 2 "the provider's $version is built from source"
  need_go "the Proxmox provider"
  take_turn "$cached.lock"
fi
if [ ! -d "$cached" ]; then
  scratch=$(mktemp -d "$(dirname "$cached")/new.XXXXXX")
  trap 'rm -rf "$scratch"' EXIT
  copy_module "$module@v$version" "$scratch/source"
  place=$scratch/mirror/registry.opentofu.org/bpg/proxmox/$version/$(go env GOOS)_$(go env GOARCH)
  mkdir -p "$place"
  cd "$scratch/source"
  logged "the Proxmox provider" "$scratch/log" \
    go build -trimpath -ldflags "-s -w" -o "$place/terraform-provider-proxmox_v$version" .
  mv "$scratch/mirror" "$cached"
fi
printf '%s\n' "$cached"
