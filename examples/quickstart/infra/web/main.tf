# The web application in one environment.

variable "environment" {
  description = "Such as `staging`."
  type        = string
}

variable "replicas" {
  description = "How many copies run."
  type        = number
}

variable "endpoint" {
  description = "The API of the cluster it runs in."
  type = object({
    host = string
    port = number
  })
}

variable "zone" {
  description = "The DNS zone it is reached in."
  type        = string
}

variable "database" {
  description = "How to reach the database."
  type = object({
    host = string
    port = number
    name = string
    user = string
  })
}

variable "database_password" {
  description = "The password of the database's user."
  type        = string
  sensitive   = true
}

variable "owner" {
  description = "Who answers for it; set by the context `organisation`."
  type = object({
    team    = string
    contact = string
  })
}

locals {
  host = "${var.environment}.${var.zone}"
}

module "naming" {
  source = "../../modules/naming"
  stack  = "web-${var.environment}"
  owner  = var.owner
}

resource "terraform_data" "secret" {
  input = {
    name     = "${module.naming.prefix}-database"
    user     = var.database.user
    password = var.database_password
  }
}

resource "terraform_data" "deployment" {
  input = {
    name     = module.naming.prefix
    labels   = module.naming.labels
    cluster  = "${var.endpoint.host}:${var.endpoint.port}"
    replicas = var.replicas
    config = templatefile("${path.module}/../../templates/site.conf.tftpl", {
      host     = local.host
      replicas = var.replicas
      database = var.database
    })
  }
}

resource "terraform_data" "record" {
  input = {
    name   = local.host
    target = var.endpoint.host
  }
}

output "url" {
  description = "Where people find it."
  value       = "https://${terraform_data.record.output.name}"
}
