variable "url" {
  type = string
}

resource "terraform_data" "site" {
  input = { behind = var.url }
}

output "site" {
  value = terraform_data.site.output
}
