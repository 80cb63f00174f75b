# Applied is not done: the outputs of a stack are published as facts for GitOps, and gates check the real world before
# dependents start. It needs no account: the gates check one port of this machine.

project "edge" {
  id = "edg3q7"
  engine "tofu" { version = "~> 1.11" }
}

layer "foundation" { order = 0 }
layer "apps" { order = 1 }

target "local" { writers = ["anyone"] }

# A branch that only terrane writes. A path here; a Git remote with a deploy key elsewhere.
facts "runtime" {
  repository = "../facts.git"
  branch     = "facts"
}

stack "edge" {
  path   = "infra/edge"
  target = "local"
  layer  = "foundation"
  inputs = { port = env("EDGE_PORT", "8080") }

  publish "runtime" {
    path   = "clusters/local/edge.yaml"
    values = { edge = { url = output.url, address = output.address } }
  }

  gate "tcp" "listens" {
    address  = output.address
    interval = "1s"
    timeout  = "5s"
  }

  gate "http" "healthy" {
    after    = ["listens"]
    url      = "${output.url}/healthz"
    interval = "1s"
    timeout  = "5s"
  }

  gate "equal" "facts-agree" {
    values = [output.url, fact.runtime["clusters/local/edge.yaml"].edge.url]
  }
}

# Waits until the gates above have passed; `wait = "applied"` would not.
stack "site" {
  path   = "infra/site"
  target = "local"
  layer  = "apps"
  inputs = { url = stack.edge.output.url }
}
