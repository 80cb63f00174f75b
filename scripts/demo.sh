#!/usr/bin/env bash
# `make demo`: the quickstart project from an empty home to applied, changed and destroyed, then facts and gates, in
# temporary copies. Leaves nothing behind but the engine in the user's cache.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
repository=$PWD

cat >&2 << 'END'
demo: first, terrane is built (about ten minutes the first time, seconds later), and OpenTofu is obtained: one on PATH,
demo: else its release is downloaded, else it is built from source (about four minutes, with Go). Nothing else is installed.
END
cargo build --workspace --bin terrane
target=$(scripts/target-dir.sh)

scratch=$(mktemp -d "${TMPDIR:-/tmp}/terrane-demo.XXXXXX")
server=
cleanup() {
  cd "$repository"
  if [ -n "$server" ]; then kill "$server" || true; fi
  rm -rf "$scratch"
}
trap cleanup EXIT

cp -R examples/quickstart "$scratch/quickstart"
export PATH=$target/debug:$PATH
# A home and a key of the demo's own: nothing in the project, nothing among the user's data.
export TERRANE_HOME=$scratch/home XDG_CONFIG_HOME=$scratch/config
cd "$scratch/quickstart"
if ! terrane engine install >&2; then
  tofu=$("$repository/scripts/tools/opentofu.sh")
  PATH=$(dirname "$tofu"):$PATH
fi
git init --quiet
git add --all
git -c user.name=demo -c user.email=demo@example.io -c commit.gpgsign=false commit --quiet --message "quickstart"

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\e[1m' plain=$'\e[0m'; else bold='' plain=''; fi
number=0
heading() {
  number=$((number + 1))
  printf '\n%s── %d. %s%s\n' "$bold" "$number" "$1" "$plain"
  printf '   %s\n\n' "$2"
}
# A port that nobody listens on now.
free_port() {
  local port
  while :; do
    port=$((20000 + RANDOM % 20000))
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      printf '%s' "$port"
      return
    fi
  done
}
run() {
  printf '$ %s\n' "$*"
  "$@"
}

heading "Is the project sound?" \
  "Files, graph, inputs and outputs are checked against the modules' own source; no engine runs."
run terrane validate

heading "What depends on what?" \
  "Seven stacks in three layers; the edges carry typed values or just an order."
run terrane graph

heading "Apply everything" \
  "Stacks run as soon as what they need is there; values of one become variables of the next."
run terrane apply --auto-approve

heading "What came out?" \
  "Read from the state that terrane keeps. The password is shown only when asked for by name."
run terrane output web-production
run terrane output database

heading "Change one value" \
  "Another release of the cluster: its control plane must be replaced."
run sed -i.bak 's/release = "1.33"/release = "1.34"/' terrane.hcl
rm terrane.hcl.bak
run git --no-pager diff --unified=0 --no-color

heading "Plan what changed since the last commit" \
  "Only \`cluster\` is planned: its block differs. See what forces the replacement."
run terrane plan changed:HEAD

heading "Apply" \
  "Those who use the new endpoint follow with its real value; \`network\`, \`dns\` and \`database\` stay as they are."
run terrane apply --auto-approve

heading "Apply again" \
  "Nothing changed, and it says so quickly."
run terrane apply --auto-approve

heading "Destroy" \
  "Backwards: apps first, foundation last."
run terrane destroy --auto-approve

heading "Applied is not done" \
  "Another project: its stack \`edge\` publishes facts for GitOps, and gates look at the world. The port is still closed."
cp -R "$repository/examples/edge" "$scratch/edge"
cd "$scratch/edge"
git init --quiet --bare ../facts.git
EDGE_PORT=$(free_port)
export EDGE_PORT
status=0
run terrane apply --auto-approve || status=$?
if [ "$status" != 5 ]; then
  printf 'error: a gate should have failed (exit 5), not %s\n' "$status" >&2
  exit 1
fi

heading "What was published?" \
  "One commit on a branch that only terrane writes: the run, the state and the source are in its trailers."
run git --git-dir ../facts.git --no-pager log --format='%B' facts
run git --git-dir ../facts.git --no-pager show facts:clusters/local/edge.yaml

heading "Fix the cause and continue" \
  "A server listens now. The retry begins at the gate; \`site\`, which waited for it, follows."
TERRANE_HOME=$scratch/served terrane server --listen "127.0.0.1:$EDGE_PORT" 2>"$scratch/server.log" &
server=$!
run terrane apply --resume --auto-approve

heading "Look again, at any time" \
  "Exit code 5 if a gate does not pass: for a schedule, or for the person on call."
run terrane verify
kill "$server"
wait "$server" || true
server=

if find "$scratch/quickstart" -name '*.tfstate*' -print -quit | grep -q .; then
  printf 'error: a state was left in the source tree\n' >&2
  exit 1
fi
printf '\n%sThat was all of it.%s No state ever lay in the project; the copy and its home are removed now.\n' "$bold" "$plain"
printf 'Next: README.md has a tour to do by hand, docs/guide/getting-started.md brings in a project of your own.\n'
