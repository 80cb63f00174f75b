variable "port" {
  type = string
}

# Simulates a load balancer.
resource "terraform_data" "gateway" {
  input = "127.0.0.1:${var.port}"
}

output "address" {
  value = terraform_data.gateway.output
}

output "url" {
  value = "http://${terraform_data.gateway.output}"
}
