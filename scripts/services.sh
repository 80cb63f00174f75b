#!/usr/bin/env bash
# Obtains OpenTofu and the services that tests use, several at a time, and prints `export` lines for them on stdout:
#   eval "$(scripts/services.sh)"
# Nothing is started: each test process starts its own and stops it. `scripts/services.sh postgres` obtains only that one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/tools/lib.sh

# Each list in turn or two at a time, and the lists beside each other; what takes longest comes first.
compiled=(kubernetes vault tofu minio sops proxmox fake-gcs-server dex age-plugin-pq age-keygen provider)
system=(postgres knot sshd)
packages=(moto azurite makejinja)

obtain() {
  case $1 in
    tofu) scripts/tools/opentofu.sh ;;
    minio) scripts/tools/go-tool.sh minio github.com/minio/minio v0.0.0-20260212201848-7aac2a2c5b7c 4 ;;
    fake-gcs-server) scripts/tools/go-tool.sh fake-gcs-server github.com/fsouza/fake-gcs-server v1.56.1 2 ;;
    sops) scripts/tools/go-tool.sh sops github.com/getsops/sops/v3 v3.13.3 3 github.com/getsops/sops/v3/cmd/sops ;;
    age-keygen) scripts/tools/go-tool.sh age-keygen filippo.io/age v1.3.2 1 filippo.io/age/cmd/age-keygen ;;
    age-plugin-pq) scripts/tools/go-tool.sh age-plugin-pq filippo.io/age v1.3.2 1 filippo.io/age/extra/age-plugin-pq ;;
    postgres | azurite | knot | provider | sshd | makejinja | proxmox | dex | kubernetes | moto | vault)
      "scripts/tools/$1.sh"
      ;;
    *) fail "there is no tool \`$1\`" "one of: ${compiled[*]} ${system[*]} ${packages[*]}" ;;
  esac
}

# One of several at a time, with its output in a log: `--into DIRECTORY [NAME]`.
if [ "${1:-}" = --into ]; then
  if [ $# = 2 ]; then exit 0; fi # an empty list
  begun=$SECONDS
  if obtain "$3" > "$2/$3.path" 2> "$2/$3.log"; then
    say "$3: ready after $((SECONDS - begun)) s"
  else
    say "$3: failed"
    touch "$2/$3.failed"
  fi
  exit 0
fi

if [ $# = 0 ]; then set -- "${compiled[@]}" "${system[@]}" "${packages[@]}"; fi
work=$(mktemp -d "${TMPDIR:-/tmp}/terrane-tools.XXXXXX")
trap 'rm -rf "$work"' EXIT
cores=$(getconf _NPROCESSORS_ONLN)
export TERRANE_TOOLS_JOBS=${TERRANE_TOOLS_JOBS:-$cores}

# First what is there, and what is not. Whether releases can be downloaded is asked once, and only if something is missing.
look() {
  TERRANE_TOOLS_LOOK=1 TERRANE_TOOLS_RELEASES=${TERRANE_TOOLS_RELEASES:-no} obtain "$1" > "$work/$1.path"
}
missing=()
minutes=0
for name in "$@"; do
  status=0
  look "$name" || status=$?
  if [ "$status" = 0 ]; then continue; fi
  if [ "$status" != 3 ]; then exit "$status"; fi
  if [ ${#missing[@]} = 0 ]; then
    say "to be installed, once:"
    has_releases || true
  fi
  look "$name" || true
  read -r takes how < "$work/$name.path"
  missing+=("$name")
  minutes=$((minutes + takes))
  printf '  %-16s %s%s\n' "$name" "$how" "$([ "$takes" = 0 ] || printf ', about %s min' "$takes")" >&2
done

# Those of a list that are missing.
missing_of() {
  local name
  for name in "$@"; do
    if [[ " ${missing[*]} " = *" $name "* ]]; then printf '%s\n' "$name"; fi
  done
}
if [ ${#missing[@]} != 0 ]; then
  say "into ${XDG_CACHE_HOME:-$HOME/.cache}/terrane (\`make clean-tools\` removes it) or by the system's packages, about $((minutes * 2 / cores + 1)) min in all"
  # Two builds at a time share Go's cache, and one compiles while the other links.
  missing_of "${compiled[@]}" | xargs -n 1 -P 2 "$0" --into "$work" &
  # The system's packages lock each other out.
  missing_of "${system[@]}" | xargs -n 1 -P 1 "$0" --into "$work" &
  missing_of "${packages[@]}" | xargs -n 1 -P 2 "$0" --into "$work" &
  wait
fi

failed=0
for name in "$@"; do
  if [ -e "$work/$name.failed" ]; then
    printf '\nerror: cannot install %s; its log ends with:\n' "$name" >&2
    tail -n 30 "$work/$name.log" >&2
    failed=1
    continue
  fi
  path=$(tail -n 1 "$work/$name.path")
  say "$name at $path"
  variable=TERRANE_TEST_$(printf '%s' "$name" | tr 'a-z-' 'A-Z_')
  printf 'export %s=%q\n' "$variable" "$path"
done
exit "$failed"
