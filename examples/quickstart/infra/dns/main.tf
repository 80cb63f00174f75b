# The DNS zone of all environments.

variable "domain" {
  description = "The domain of the organisation; set by the context `organisation`."
  type        = string
}

resource "terraform_data" "zone" {
  input = {
    name    = "apps.${var.domain}"
    servers = [for index in range(2) : "ns${index + 1}.${var.domain}"]
  }
}

output "zone" {
  description = "Name of the zone, without the final dot."
  value       = terraform_data.zone.output.name
}
