# A database with a generated password.

variable "subnet" {
  description = "Where the database lives."
  type = object({
    name = string
    zone = string
    cidr = string
  })
}

variable "domain" {
  description = "The domain of the organisation; set by the context `organisation`."
  type        = string
}

resource "terraform_data" "database" {
  input = {
    name   = "orders"
    subnet = var.subnet.name
    backup = {
      schedule = "0 3 * * *"
      keep     = 14
    }
  }
}

locals {
  # Simulates a generated password: different for each database, and stable.
  password = sensitive(substr(sha256("orders:${terraform_data.database.id}"), 0, 24))
}

output "connection" {
  description = "How to reach the database, without the password."
  value = {
    host = "orders.db.${var.domain}"
    port = 5432
    name = terraform_data.database.output.name
    user = "orders"
  }
}

output "password" {
  description = "The password of the user."
  value       = local.password
  sensitive   = true
}
