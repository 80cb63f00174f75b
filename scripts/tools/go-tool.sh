#!/usr/bin/env bash
# Prints the path of a program: one in the user's cache, else its release, else built from its Go module. What the
# module replaces upstream is ignored.
#   scripts/tools/go-tool.sh NAME MODULE VERSION MINUTES [PACKAGE]
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly name=$1 module=$2 version=$3 minutes=$4
readonly package=${5:-$module}
readonly cached=$tools_cache/$name/$version/$name

if [ ! -x "$cached" ]; then
  if release_of "$name" "$version" > /dev/null; then
    will_install "$name" 0 "release $version is downloaded"
  else
    will_install "$name" "$minutes" "$version is built from source"
  fi
  take_turn "$(dirname "$cached").lock"
fi
if [ ! -x "$cached" ] && { mkdir -p "$(dirname "$cached")" && ! fetch_release "$name" "$version" "$cached"; }; then
  need_go "$name"
  scratch=$(mktemp -d "${TMPDIR:-/tmp}/terrane-$name.XXXXXX")
  trap 'rm -rf "$scratch"' EXIT
  cd "$scratch"
  logged "$name" log go mod init example.io/tool
  logged "$name" log go get "$module@$version"
  logged "$name" log go build -trimpath -ldflags "-s -w" -o "$cached.new" "$package"
  mv "$cached.new" "$cached"
fi
printf '%s\n' "$cached"
