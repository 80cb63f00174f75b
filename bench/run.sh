#!/usr/bin/env bash
# `make bench`: release build, engine, peers, then the table.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

engines=$(scripts/engines.sh)
eval "$engines"
printf 'bench: building terrane and the harness for release\n' >&2
cargo build --release --package terrane --package xtask
target=$(scripts/target-dir.sh)

options=(--stacks "${BENCH_STACKS:-50}" --runs "${BENCH_RUNS:-3}"
  --memory-stacks "${BENCH_MEMORY_STACKS:-200}" --reading-stacks "${BENCH_READING_STACKS:-1000}"
  --terrane "$target/release/terrane" --engine "${BENCH_ENGINE:-$TERRANE_TEST_TOFU}")
case ${BENCH_TERRAGRUNT:-auto} in
  no) ;;
  yes) terragrunt=$(scripts/terragrunt.sh) && options+=(--terragrunt "$terragrunt") ;;
  auto) if terragrunt=$(scripts/terragrunt.sh); then options+=(--terragrunt "$terragrunt"); fi ;;
  *)
    printf 'error: BENCH_TERRAGRUNT is auto, yes or no\n' >&2
    exit 64
    ;;
esac
"$target/release/xtask" bench "${options[@]}"

# How long a publication of facts takes. A figure above the bar is said in the table, and no reason to stop here.
"$target/release/xtask" bench-facts --terrane "$target/release/terrane" \
  --engine "${BENCH_ENGINE:-$TERRANE_TEST_TOFU}" --rounds "${BENCH_FACTS_ROUNDS:-15}" || true

# Files of secrets beside the official tool.
eval "$(scripts/services.sh sops age-keygen)"
"$target/release/xtask" bench-secrets "$target/release/terrane" "$TERRANE_TEST_SOPS" "$TERRANE_TEST_AGE_KEYGEN"

# The state service beside its peers. Peers are measured if they are on PATH; the table says which are not.
state=(--terrane "$target/release/terrane" --rounds "${BENCH_RUNS:-3}" --seconds "${BENCH_STATE_SECONDS:-3}")
if services=$(scripts/services.sh postgres); then
  eval "$services"
  state+=(--postgres "$TERRANE_TEST_POSTGRES")
fi
if peer=$(command -v terraform-backend); then state+=(--nimbolus "$peer"); fi
if peer=$(command -v tfstated); then state+=(--tfstated "$peer"); fi
exec "$target/release/xtask" bench-state "${state[@]}"
