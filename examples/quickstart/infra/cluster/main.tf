# A cluster: one control plane, and node pools spread over the subnets.

variable "release" {
  description = "The release of the control plane. Another one replaces it."
  type        = string
}

variable "nodes" {
  description = "Nodes in each zone."
  type        = number
}

variable "subnets" {
  description = "Where nodes may live."
  type = list(object({
    name = string
    zone = string
    cidr = string
  }))
}

variable "domain" {
  description = "The domain of the organisation; set by the context `organisation`."
  type        = string
}

variable "owner" {
  description = "Who answers for it; set by the context `organisation`."
  type = object({
    team    = string
    contact = string
  })
}

module "naming" {
  source = "../../modules/naming"
  stack  = "cluster"
  owner  = var.owner
}

resource "terraform_data" "control_plane" {
  triggers_replace = [var.release]

  input = {
    name    = module.naming.prefix
    release = var.release
    labels  = module.naming.labels
  }
}

resource "terraform_data" "pool" {
  for_each = { for subnet in var.subnets : subnet.zone => subnet }

  input = {
    name    = "${module.naming.prefix}-${each.key}"
    cluster = terraform_data.control_plane.id
    nodes   = var.nodes
    subnet  = each.value
    kubelet = <<-EOT
      apiVersion: kubelet.config.k8s.io/v1beta1
      kind: KubeletConfiguration
      maxPods: ${var.nodes * 30}
      systemReserved:
        cpu: 100m
        memory: 256Mi
    EOT
  }
}

output "endpoint" {
  description = "Where the API answers."
  value = {
    # A new control plane has a new address: dependents see it as a real value, after it exists.
    host = "${substr(terraform_data.control_plane.id, 0, 8)}.k8s.${var.domain}"
    port = 6443
  }
}

output "node_count" {
  description = "Nodes in all zones."
  value       = var.nodes * length(var.subnets)
}
