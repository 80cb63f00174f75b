# Names and labels that all stacks share. A change here is a change of every stack that uses it.

variable "stack" {
  description = "The stack that asks."
  type        = string
}

variable "owner" {
  description = "Who answers for it."
  type = object({
    team    = string
    contact = string
  })
}

output "prefix" {
  value = "${var.owner.team}-${var.stack}"
}

output "labels" {
  value = {
    "managed-by" = "terrane"
    "owner"      = var.owner.contact
    "stack"      = var.stack
  }
}
