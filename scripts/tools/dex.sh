#!/usr/bin/env bash
# Prints the directory of dex, an OpenID provider for tests: the program `dex` and its pages in `web`. One in the user's
# cache, else built from its module.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly version=v0.0.0-20260303133905-11d2eeb52b42
readonly dir=$tools_cache/dex/$version

if [ ! -d "$dir" ]; then
  will_install dex 1 "$version is built from source"
  need_go dex
  take_turn "$dir.lock"
fi
if [ ! -d "$dir" ]; then
  scratch=$(mktemp -d "$(dirname "$dir")/new.XXXXXX")
  trap 'rm -rf "$scratch"' EXIT
  copy_module "github.com/dexidp/dex@$version" "$scratch/dex"
  mkdir "$scratch/out"
  cp -R "$scratch/dex/web" "$scratch/out/web"
  cd "$scratch/dex"
  # Its sibling is published, too.
  sed -i.bak '/^replace .*dex\/api\/v2/d' go.mod
  logged dex "$scratch/log" go build -trimpath -buildvcs=false -ldflags "-s -w" -o "$scratch/out/dex" ./cmd/dex
  mv "$scratch/out" "$dir"
fi
printf '%s\n' "$dir"
