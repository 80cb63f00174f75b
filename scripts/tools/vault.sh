#!/usr/bin/env bash
# Prints the path of a Vault for tests: its own core and HTTP, with the KV store and three ways to log in, in memory.
# `vault/main.go` puts it together, because most of the whole program is not needed. One in the user's cache, else built
# from its modules.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly version=v1.21.4
# Of the program that is put together here.
readonly edition=2
readonly cached=$tools_cache/vault/$version-$edition/vault

if [ ! -x "$cached" ]; then
  will_install vault 4 "$version is built from source"
  need_go vault
  take_turn "$(dirname "$cached").lock"
fi
if [ ! -x "$cached" ]; then
  mkdir -p "$(dirname "$cached")"
  scratch=$(mktemp -d "${TMPDIR:-/tmp}/terrane-vault.XXXXXX")
  trap 'rm -rf "$scratch"' EXIT
  cd "$scratch"
  cp "$tools_dir/vault/main.go" .
  logged vault log go mod init example.io/vault
  # Upstream builds with the SDK beside it, which is that of this version. Required, not got: the whole program's
  # modules would come along, which takes three times as long.
  logged vault log go mod edit -replace github.com/hashicorp/vault/sdk=github.com/hashicorp/vault/sdk@v0.20.0 \
    -require "github.com/hashicorp/vault@$version"
  logged vault log go build -trimpath -ldflags "-s -w" -o "$cached.new" .
  mv "$cached.new" "$cached"
fi
printf '%s\n' "$cached"
