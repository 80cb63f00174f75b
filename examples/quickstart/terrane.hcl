# Seven stacks in three layers. Every resource is the engine's built-in `terraform_data`, so this
# project needs no provider, no account and no network; the values are real.

project "quickstart" {
  id = "q7k3st"                         # ties clones and worktrees to one home; `terrane init` writes another for your project
  engine "tofu" { version = "~> 1.11" } # "terraform" works as well
}

# A stack may depend on its own layer and on lower ones, never on a higher one.
layer "foundation" { order = 0 }
layer "platform" { order = 1 }
layer "apps" { order = 2 }

target "local" { writers = ["anyone"] } # no `backend` block: terrane keeps the state

# Given to every stack of the target whose module declares these variables.
context "organisation" {
  autoattach = ["target:local"]
  vars = {
    domain = "example.io"
    owner  = { team = "platform", contact = "platform@example.io" }
  }
}

# Checks every plan of these stacks, and again before it is applied.
policy "stateful" {
  path   = "policies/stateful.rego"
  stacks = ["label:stateful"]
}

stack "network" {
  path   = "infra/network"
  target = "local"
  layer  = "foundation"
  inputs = { cidr = "10.20.0.0/16", zones = ["a", "b", "c"] }
}

stack "dns" {
  path   = "infra/dns"
  target = "local"
  layer  = "foundation"
}

stack "cluster" {
  path   = "infra/cluster"
  target = "local"
  layer  = "platform"
  labels = ["stateful"]
  inputs = {
    release = "1.33" # another release replaces the control plane
    nodes   = 3
    subnets = stack.network.output.subnets # an `output` edge
  }
}

stack "database" {
  path   = "infra/database"
  target = "local"
  layer  = "platform"
  labels = ["stateful"]
  inputs = { subnet = stack.network.output.subnets[0] }
}

stack "monitoring" {
  path   = "infra/monitoring"
  target = "local"
  layer  = "platform"
  inputs = { endpoint = stack.cluster.output.endpoint }
  after  = [stack.database] # an `order` edge: it comes later, without a value
}

# One stack for each entry: web-staging, then web-production.
stack "web" {
  for_each = {
    staging    = { replicas = 1, after = [] }
    production = { replicas = 3, after = ["staging"] }
  }
  name   = "web-${each.key}"
  path   = "infra/web"
  target = "local"
  layer  = "apps"
  labels = [each.key]
  inputs = {
    environment       = each.key
    replicas          = each.value.replicas
    endpoint          = stack.cluster.output.endpoint
    zone              = stack.dns.output.zone
    database          = stack.database.output.connection
    database_password = stack.database.output.password # sensitive on both sides
  }
  after = [for name in each.value.after : stack["web-${name}"]]
}
