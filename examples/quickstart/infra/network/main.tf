# A network and one subnet for each zone.

variable "cidr" {
  description = "The range of the whole network."
  type        = string

  validation {
    condition     = can(cidrhost(var.cidr, 0))
    error_message = "The range must be a CIDR such as 10.20.0.0/16."
  }
}

variable "zones" {
  description = "One subnet is made in each."
  type        = list(string)
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
  stack  = "network"
  owner  = var.owner
}

resource "terraform_data" "network" {
  input = {
    name   = module.naming.prefix
    cidr   = var.cidr
    labels = module.naming.labels
  }
}

resource "terraform_data" "subnet" {
  for_each = { for index, zone in var.zones : zone => index }

  input = {
    name    = "${module.naming.prefix}-${each.key}"
    zone    = each.key
    cidr    = cidrsubnet(var.cidr, 8, each.value)
    network = terraform_data.network.output.name
  }
}

output "subnets" {
  description = "The subnets in the order of the zones."
  value = [for zone in var.zones : {
    name = terraform_data.subnet[zone].output.name
    zone = zone
    cidr = terraform_data.subnet[zone].output.cidr
  }]
}
