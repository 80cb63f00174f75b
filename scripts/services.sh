#!/usr/bin/env bash
# Obtains the services that tests use beside the engines, and prints `export` lines for them on stdout:
#   eval "$(scripts/services.sh)"
# Nothing is started: each test process starts its own and stops it; `sops`, `age-keygen` and `age-plugin-pq` are only called. `scripts/services.sh postgres` obtains only that one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

all=(postgres minio azurite knot fake-gcs-server provider sshd kubernetes sops age-keygen age-plugin-pq makejinja proxmox dex moto vault)

obtain() {
  case $1 in
    postgres) scripts/tools/postgres.sh ;;
    minio) scripts/tools/go-tool.sh minio github.com/minio/minio v0.0.0-20260212201848-7aac2a2c5b7c ;;
    azurite) scripts/tools/azurite.sh ;;
    knot) scripts/tools/knot.sh ;;
    fake-gcs-server) scripts/tools/go-tool.sh fake-gcs-server github.com/fsouza/fake-gcs-server v1.56.1 ;;
    provider) scripts/tools/provider.sh ;;
    sops) scripts/tools/go-tool.sh sops github.com/getsops/sops/v3 v3.13.3 github.com/getsops/sops/v3/cmd/sops ;;
    age-keygen) scripts/tools/go-tool.sh age-keygen filippo.io/age v1.3.2 filippo.io/age/cmd/age-keygen ;;
    age-plugin-pq) scripts/tools/go-tool.sh age-plugin-pq filippo.io/age v1.3.2 filippo.io/age/extra/age-plugin-pq ;;
    sshd) scripts/tools/sshd.sh ;;
    makejinja) scripts/tools/makejinja.sh ;;
    proxmox) scripts/tools/proxmox.sh ;;
    dex) scripts/tools/dex.sh ;;
    kubernetes) scripts/tools/kubernetes.sh ;;
    moto) scripts/tools/moto.sh ;;
    vault) scripts/tools/vault.sh ;;
    *)
      printf 'error: no service is called `%s`: %s\n' "$1" "${all[*]}" >&2
      return 1
      ;;
  esac
}

if [ $# = 0 ]; then
  set -- "${all[@]}"
fi
for service in "$@"; do
  path=$(obtain "$service")
  printf 'services: %s at %s\n' "$service" "$path" >&2
  variable=TERRANE_TEST_$(printf '%s' "$service" | tr 'a-z-' 'A-Z_')
  printf 'export %s=%q\n' "$variable" "$path"
done
