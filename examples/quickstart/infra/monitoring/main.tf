# Watches the cluster.

variable "endpoint" {
  description = "Where the API answers."
  type = object({
    host = string
    port = number
  })
}

variable "interval" {
  description = "Seconds between two looks."
  type        = number
  default     = 30
}

resource "terraform_data" "scrape" {
  input = {
    target   = "https://${var.endpoint.host}:${var.endpoint.port}/metrics"
    interval = "${var.interval}s"
    rules = [
      { alert = "ApiDown", for = "2m", severity = "page" },
      { alert = "ApiSlow", for = "10m", severity = "ticket" },
    ]
  }
}

output "dashboard" {
  description = "What is watched."
  value       = terraform_data.scrape.output.target
}
