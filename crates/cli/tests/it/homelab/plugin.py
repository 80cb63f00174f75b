import ipaddress
import re
from pathlib import Path


def basename(value):
    return Path(value).stem


def nthhost(value, query):
    network = ipaddress.ip_network(value, strict=False)
    return str(network[query]) if 0 <= query < network.num_addresses else False


def age_key(kind, file="age.key"):
    text = Path(file).read_text()
    if kind == "public":
        return re.search(r"# public key: (age1[\w]+)", text).group(1)
    return re.search(r"(AGE-SECRET-KEY-[\w]+)", text).group(1)


def talos_patches(value):
    path = Path(f"templates/config/talos/patches/{value}")
    return [str(file) for file in sorted(path.glob("*.yaml.j2"))] if path.is_dir() else []


VM_DEFAULTS = {"cores": 4, "sockets": 1, "memory": 8192, "disk_size": 128}
VM_ADVANCED = {"network_bridge": "vmbr0", "net_queues": 4, "tags": ["kubernetes", "linux", "talos"]}


class Plugin:
    def __init__(self, data):
        self._data = data

    def data(self):
        data = self._data
        data.setdefault("cluster_pod_cidr", "10.42.0.0/16")
        data.setdefault("cluster_svc_cidr", "10.43.0.0/16")
        data.setdefault("node_dns_servers", ["1.1.1.1", "1.0.0.1"])
        data.setdefault("node_ntp_servers", ["162.159.200.1", "162.159.200.123"])
        data.setdefault("repository_branch", "main")
        data.setdefault("proxmox_iso_storage", "local")
        data.setdefault("proxmox_disk_storage", "local-lvm")
        data["proxmox_vm_defaults"] = VM_DEFAULTS | data.get("proxmox_vm_defaults", {})
        data["proxmox_vm_advanced"] = VM_ADVANCED | data.get("proxmox_vm_advanced", {})
        data["infrastructure_enabled"] = bool(data.get("proxmox_api_url") and data.get("proxmox_node"))
        data["node_default_gateway"] = nthhost(data["node_cidr"], 1)
        data["spegel_enabled"] = len(data["nodes"]) > 1
        for node in data["nodes"]:
            for key in ("cores", "sockets", "memory", "disk_size"):
                node.setdefault(f"vm_{key}", data["proxmox_vm_defaults"][key])
            node.setdefault("secureboot", False)
            node.setdefault("mtu", 1500)
        return data

    def filters(self):
        return [basename, nthhost]

    def functions(self):
        return [age_key, talos_patches]
