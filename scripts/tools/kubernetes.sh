#!/usr/bin/env bash
# Prints the directory of a Kubernetes API server for tests: `kube-apiserver`, `etcd`, and in `manifests` the published
# resource definitions of Argo CD, Flux, Gateway API and cert-manager, and Argo CD's own `install.yaml`. One in the
# user's cache, else built from Go modules.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly version=1.36.3 etcd=v3.7.3
readonly dir=$tools_cache/kubernetes/v$version-1

if [ ! -d "$dir" ]; then
  will_install kubernetes 10 "kube-apiserver $version and etcd are built from source"
  need_go Kubernetes
  take_turn "$dir.lock"
fi
if [ -d "$dir" ]; then
  printf '%s\n' "$dir"
  exit 0
fi
scratch=$(mktemp -d "$(dirname "$dir")/new.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/out/manifests"
cp "$("$tools_dir/go-tool.sh" etcd go.etcd.io/etcd/server/v3 "$etcd" 2)" "$scratch/out/etcd"

# manifests MODULE@VERSION PATTERN…
manifests() {
  local at
  at=$(module_dir "$1")
  shift
  # shellcheck disable=SC2048,SC2086 # patterns, expanded there
  (cd "$at" && install -m 644 -- $* "$scratch/out/manifests/")
}
manifests github.com/argoproj/argo-cd/v3@v3.5.6 'manifests/crds/*-crd.yaml' manifests/install.yaml
mv "$scratch/out/manifests/install.yaml" "$scratch/out/argocd-install.yaml"
manifests github.com/fluxcd/kustomize-controller@v1.9.1 'config/crd/bases/*.yaml'
manifests github.com/fluxcd/source-controller@v1.9.1 'config/crd/bases/*.yaml'
manifests github.com/fluxcd/helm-controller@v1.6.1 'config/crd/bases/*.yaml'
manifests sigs.k8s.io/gateway-api@v1.4.0 'config/crd/standard/*_gateway*.yaml'
manifests github.com/cert-manager/cert-manager@v1.19.0 'deploy/crds/cert-manager.io_certificates.yaml'

copy_module "k8s.io/kubernetes@v$version" "$scratch/kubernetes"
cd "$scratch/kubernetes"
rm -rf go.work go.work.sum vendor
# The module's siblings are published under the same version, with 0 in front.
sed -i.bak -E -e '/k8s\.io\/sample-/d' -e "s,=> \./staging/src/(k8s\.io/[a-z-]+),=> \1 v0.${version#1.}," go.mod
readonly at=k8s.io/component-base/version
logged kube-apiserver "$scratch/log" go build -trimpath -o "$scratch/out/kube-apiserver" \
  -ldflags "-s -w -X $at.gitVersion=v$version -X $at.gitMajor=1 -X $at.gitMinor=36" ./cmd/kube-apiserver
mv "$scratch/out" "$dir"
printf '%s\n' "$dir"
