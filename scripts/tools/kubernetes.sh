#!/usr/bin/env bash
# Prints the directory of a Kubernetes API server for tests: `kube-apiserver`, `etcd`, and in `manifests` the published
# resource definitions of Argo CD, Flux, Gateway API and cert-manager, and Argo CD's own `install.yaml`. One made before
# into the user's cache, else made now from Go modules, pinned, once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly version=1.36.3 etcd=v3.7.3
readonly dir=${XDG_CACHE_HOME:-$HOME/.cache}/terrane/test-tools/kubernetes/v$version-1

if [ -d "$dir" ]; then
  printf '%s\n' "$dir"
  exit 0
fi
if ! command -v go > /dev/null; then
  printf 'error: Kubernetes is built from source, and Go is missing\nhint: install it from https://go.dev/dl/ and try again\n' >&2
  exit 1
fi

printf 'tools: building kube-apiserver %s, once, about ten minutes\n' "$version" >&2
mkdir -p "$(dirname "$dir")"
# Two callers at once build it once: the second waits, then finds it.
exec 9> "$dir.lock"
flock 9
if [ -d "$dir" ]; then
  printf '%s\n' "$dir"
  exit 0
fi
scratch=$(mktemp -d "$(dirname "$dir")/new.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/out/manifests"
cp "$(scripts/tools/go-tool.sh etcd go.etcd.io/etcd/server/v3 "$etcd")" "$scratch/out/etcd"

# `direct` would turn a miss of the proxy into a slow clone.
GOPROXY=$(go env GOPROXY)
export GOPROXY=${GOPROXY%,direct} GOTOOLCHAIN=local CGO_ENABLED=0
export GOFLAGS="-mod=mod -p=${TERRANE_TOOLS_JOBS:-2}"

# The directory of a module.
module() {
  (cd "$scratch" && go mod download -json "$1" 2> /dev/null) | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p'
}

manifests() {
  local at
  at=$(module "$1")
  if [ -z "$at" ]; then
    printf 'error: the module %s could not be had\n' "$1" >&2
    return 1
  fi
  shift
  (cd "$at" && install -m 644 -- $* "$scratch/out/manifests/")
}
manifests github.com/argoproj/argo-cd/v3@v3.5.6 'manifests/crds/*-crd.yaml' manifests/install.yaml
mv "$scratch/out/manifests/install.yaml" "$scratch/out/argocd-install.yaml"
manifests github.com/fluxcd/kustomize-controller@v1.9.1 'config/crd/bases/*.yaml'
manifests github.com/fluxcd/source-controller@v1.9.1 'config/crd/bases/*.yaml'
manifests github.com/fluxcd/helm-controller@v1.6.1 'config/crd/bases/*.yaml'
manifests sigs.k8s.io/gateway-api@v1.4.0 'config/crd/standard/*_gateway*.yaml'
manifests github.com/cert-manager/cert-manager@v1.19.0 'deploy/crds/cert-manager.io_certificates.yaml'

source=$(module "k8s.io/kubernetes@v$version")
cp -r "$source" "$scratch/kubernetes"
chmod -R u+w "$scratch/kubernetes"
cd "$scratch/kubernetes"
rm -rf go.work go.work.sum vendor
# The module's siblings are published under the same version, with 0 in front.
sed -i -E -e '/k8s\.io\/sample-/d' -e "s,=> \./staging/src/(k8s\.io/[a-z-]+),=> \1 v0.${version#1.}," go.mod
readonly at=k8s.io/component-base/version
go build -trimpath -o "$scratch/out/kube-apiserver" \
  -ldflags "-s -w -X $at.gitVersion=v$version -X $at.gitMajor=1 -X $at.gitMinor=36" ./cmd/kube-apiserver 2> "$scratch/log" || {
  tail -n 20 "$scratch/log" >&2
  printf 'error: kube-apiserver %s could not be built\n' "$version" >&2
  exit 1
}
chmod 755 "$scratch/out"
mv "$scratch/out" "$dir"
printf '%s\n' "$dir"
