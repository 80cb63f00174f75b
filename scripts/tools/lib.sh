# Functions that the scripts beside this one share. Sourced, never run.
#
# A script here prints one path on stdout: a program or a directory that tests use. It takes what is installed, else a
# release archive with a pinned checksum, else it builds from source into the user's cache, once. With
# TERRANE_TOOLS_LOOK=1 it installs nothing: it prints "MINUTES how it would be installed" and exits with 3.
# shellcheck shell=bash

tools_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck disable=SC2034 # used by those who source this
tools_cache=${XDG_CACHE_HOME:-$HOME/.cache}/terrane/test-tools
# A mirror with the same paths can be named instead.
releases=${TERRANE_TOOLS_MIRROR:-https://github.com}

say() { printf 'tools: %s\n' "$*" >&2; }

# fail MESSAGE [HINT…]
fail() {
  printf 'error: %s\n' "$1" >&2
  shift
  if [ $# != 0 ]; then printf 'hint: %s\n' "$@" >&2; fi
  exit 1
}

# Says that something has to be installed, and about how many minutes it takes on two cores: will_install NAME MINUTES HOW
will_install() {
  if [ -n "${TERRANE_TOOLS_LOOK:-}" ]; then
    printf '%s %s\n' "$2" "$3"
    exit 3
  fi
  say "$1: $3"
}

# Two callers at once install it once: the second waits here, and should look again.
take_turn() {
  mkdir -p "$(dirname "$1")"
  exec 9> "$1"
  flock 9
}

# Runs a command with its output in a log, which is shown if the command fails: logged NAME LOG COMMAND…
logged() {
  local tool=$1 log=$2
  shift 2
  "$@" >> "$log" 2>&1 || {
    tail -n 20 "$log" >&2
    fail "cannot install $tool: \`$1 ${2:-}\` failed, its last lines are above"
  }
}

# Whether release archives can be downloaded. Whoever starts several of these scripts asks once, for all of them.
has_releases() {
  if [ -z "${TERRANE_TOOLS_RELEASES:-}" ]; then
    if curl --silent --head --output /dev/null --connect-timeout 3 --max-time 5 "$releases" 2> /dev/null; then
      export TERRANE_TOOLS_RELEASES=yes
    else
      export TERRANE_TOOLS_RELEASES=no
    fi
  fi
  [ "$TERRANE_TOOLS_RELEASES" = yes ]
}

platform() {
  local machine
  case $(uname -m) in
    aarch64 | arm64) machine=arm64 ;;
    *) machine=amd64 ;;
  esac
  printf '%s_%s' "$(uname -s | tr '[:upper:]' '[:lower:]')" "$machine"
}

# The line of a program in releases.txt for this machine: release_of NAME VERSION
release_of() {
  has_releases && grep "^$1 $2 $(platform) " "$tools_dir/releases.txt"
}

# Downloads a program from its release: fetch_release NAME VERSION FILE. Fails, and leaves no file, if there is none for
# this machine, if it cannot be downloaded, or if its checksum is not the pinned one.
fetch_release() {
  local line sum path member scratch seen
  line=$(release_of "$1" "$2") || return 1
  read -r _ _ _ sum path member <<< "$line"
  scratch=$(mktemp -d "${TMPDIR:-/tmp}/terrane-release.XXXXXX")
  if ! curl --silent --show-error --fail --location --connect-timeout 10 --max-time 600 \
    --output "$scratch/archive" "$releases/$path"; then
    say "$1: the release cannot be downloaded"
    rm -rf "$scratch"
    return 1
  fi
  seen=$(sha256 "$scratch/archive")
  if [ "$seen" != "$sum" ]; then
    say "$1: the release is not used: its checksum is $seen instead of $sum"
    rm -rf "$scratch"
    return 1
  fi
  if [ "$member" = - ]; then
    mv "$scratch/archive" "$scratch/program"
  else
    tar -xzf "$scratch/archive" -C "$scratch" "$member"
    mv "$scratch/$member" "$scratch/program"
  fi
  chmod 755 "$scratch/program"
  mv "$scratch/program" "$3"
  rm -rf "$scratch"
}

sha256() {
  if command -v sha256sum > /dev/null; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -d ' ' -f 1
}

# Go's settings for all builds; they share Go's own build cache. need_go NAME
need_go() {
  command -v go > /dev/null \
    || fail "$1 is built from source, and Go is missing" "install Go from https://go.dev/dl/ and try again"
  # `direct` would turn a miss of the proxy into a slow clone.
  GOPROXY=$(go env GOPROXY)
  export GOPROXY=${GOPROXY%,direct} GOTOOLCHAIN=local CGO_ENABLED=0
  export GOFLAGS="-mod=mod -p=${TERRANE_TOOLS_JOBS:-2}"
}

# Copies the source of a module, which is read-only in Go's cache, to a directory: copy_module MODULE@VERSION DIRECTORY
copy_module() {
  local from
  from=$(module_dir "$1")
  cp -R "$from" "$2"
  chmod -R u+w "$2"
}

# The directory of a module in Go's cache: module_dir MODULE@VERSION
module_dir() {
  local from
  from=$( (cd "${TMPDIR:-/tmp}" && go mod download -json "$1") | sed -n 's/^[[:space:]]*"Dir": "\(.*\)",\{0,1\}$/\1/p')
  [ -n "$from" ] || fail "the source of $1 cannot be downloaded"
  printf '%s' "$from"
}

need_python() {
  python3 -c 'import venv, ensurepip' 2> /dev/null \
    || fail "$1 comes from PyPI, and Python 3 with \`venv\` is missing" "install it: sudo apt-get install python3-venv"
}

# Installs a package of Debian's, if there is `apt-get` and this user may. Never fails: the caller looks again, and says
# what is missing. No service that comes with it is started: tests start theirs.
install_package() {
  local command=(env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install --yes --no-install-recommends "$1")
  will_install "$1" 1 "the package \`$1\` is installed by apt-get"
  if ! command -v apt-get > /dev/null; then return; fi
  if [ "$(id -u)" = 0 ]; then
    "${command[@]}" >&2 || true
  elif sudo -n true 2> /dev/null; then
    sudo -n "${command[@]}" >&2 || true
  fi
}
