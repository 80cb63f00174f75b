# Renders two data files and some templates to machines, their operating system and their cluster.

project "homelab" {
  id = "h7w2mq"
  engine "tofu" { version = "~> 1.11" }
}

layer "machines" { order = 0 }

target "proxmox" {
  writers   = ["anyone"]
  providers = ["bpg/proxmox"]
}

# Replaces `sops -d | yq` and `export` in a Taskfile.
context "proxmox-credentials" {
  autoattach = ["target:proxmox"]
  vars = {
    proxmox_api_token_id     = secret("sops:infrastructure/secrets.sops.yaml#proxmox_api_token_id")
    proxmox_api_token_secret = secret("sops:infrastructure/secrets.sops.yaml#proxmox_api_token_secret")
  }
}

stack "proxmox" {
  path   = "infrastructure/tofu"
  target = "proxmox"
  layer  = "machines"
  render = "homelab"
}

render "homelab" {
  templates = "templates/config"
  data      = ["cluster.yaml", "nodes.yaml"]
  output    = "."
  schema    = "templates/schema.json"
  undefined = "chainable"
  exclude   = ["*.partial.yaml.j2"]
  sensitive = ["cloudflare_token", "proxmox_api_token_*"]

  delimiters {
    block    = ["#%", "%#"]
    variable = ["#{", "}#"]
    comment  = ["#|", "#|"]
  }

  # Used if `cluster.yaml` has no value.
  defaults = {
    cluster_pod_cidr     = "10.42.0.0/16"
    cluster_svc_cidr     = "10.43.0.0/16"
    node_dns_servers     = ["1.1.1.1", "1.0.0.1"]
    node_ntp_servers     = ["162.159.200.1", "162.159.200.123"]
    repository_branch    = "main"
    proxmox_iso_storage  = "local"
    proxmox_disk_storage = "local-lvm"
    proxmox_vm_defaults = {
      cores     = 4
      sockets   = 1
      memory    = 8192
      disk_size = 128
    }
    proxmox_vm_advanced = {
      network_bridge = "vmbr0"
      net_queues     = 4
      tags           = ["kubernetes", "linux", "talos"]
    }
  }

  # Computed values; makejinja uses a plugin for them.
  values = {
    infrastructure_enabled = "proxmox_api_url is defined and proxmox_node is defined"
    node_default_gateway   = "node_cidr | nthhost(1)"
    spegel_enabled         = "nodes | length > 1"
  }

  # Defaults of each node.
  each {
    list = "nodes"
    values = {
      vm_cores     = "proxmox_vm_defaults.cores"
      vm_sockets   = "proxmox_vm_defaults.sockets"
      vm_memory    = "proxmox_vm_defaults.memory"
      vm_disk_size = "proxmox_vm_defaults.disk_size"
      secureboot   = "false"
      mtu          = "1500"
    }
  }

  when = {
    "infrastructure/**" = "infrastructure_enabled"
  }

  check "unique" { paths = ["nodes[*].name"] }
  check "unique" { paths = ["nodes[*].address", "cluster_api_addr", "cluster_gateway_addr", "cluster_dns_gateway_addr"] }
  check "unique" { paths = ["nodes[*].mac_addr"] }
  check "mac" { paths = ["nodes[*].mac_addr"] }
  check "separate" { paths = ["node_cidr", "cluster_pod_cidr", "cluster_svc_cidr"] }
  check "inside" {
    paths = ["nodes[*].address", "cluster_*_addr"]
    of    = ["node_cidr"]
  }
  check "known" {
    paths = ["storage_nodes"]
    of    = ["nodes[*].name"]
  }
}
