project "platform" {
  id = "k3v9qd"                         # written by `init`: ties clones and worktrees to one home
  engine "tofu" { version = "~> 1.11" } # or engine "terraform"; a stack may override it
  parallelism = 4                       # engines at once in a change set
  history {
    keep     = "400d"
    at_least = 30
  }
  platforms      = ["linux_amd64", "darwin_arm64"] # for the provider lock file
  strict_secrets = false
  gitops { paths = ["../gitops/**/*.yaml"] } # where facts are consumed: the check of contracts reads these
}

layer "hypervisors" { order = 0 }
layer "platforms" { order = 1 }

writer "github" { # who counts as CI
  issuer   = "https://token.actions.githubusercontent.com"
  audience = "terrane"
  claims   = { repository = "example/infra", ref = "refs/heads/main", environment = "azure" }
}

context "azure-credentials" {
  autoattach = ["target:azure"] # selectors; or named in `contexts`
  priority   = 10               # higher wins; equal and conflicting is an error
  env        = { ARM_SUBSCRIPTION_ID = env("ARM_SUBSCRIPTION_ID"), ARM_USE_OIDC = "true" }
  pass_env   = ["ACTIONS_ID_TOKEN_REQUEST_*"]      # taken over from the caller's environment, by name or glob
  vars       = { location = "westeurope" }         # input variables, where the module declares them
  files      = { "ca.pem" = file("certs/ca.pem") } # into the stack's snapshot, mode 0600
  hook "before" "plan" {
    run     = ["./scripts/login.sh"]
    timeout = "60s"
  }
}

target "azure" {
  writers   = ["github", "server"]                      # names of `writer` blocks, "server" (its own runners), or "anyone" (local work)
  lane      = "target"                                  # or "stack": change sets that share no stack may run at the same time
  providers = ["hashicorp/azurerm", "hashicorp/random"] # none given: any; a local target can so be kept from touching a cloud
  backend "azurerm" {                                   # no block: terrane's own state service
    resource_group_name = env("TFSTATE_RG")
    use_oidc            = true
    key                 = "${stack.state}.tfstate"
  }
  approval {
    count   = 1
    role    = "approver"
    author  = false
    expires = "24h"
  }
}

target "aws" { writers = ["github"] }

facts "runtime-facts" {                                   # a place terrane writes
  repository = "git@github.com:example/runtime-facts.git" # or the project's own remote, or a path
  branch     = "main"
  owns       = "branch" # only terrane writes this branch, this project's files are regenerated; "paths": only the published files, in a repository people edit too
  credential = secret("sops:secrets.sops.yaml#facts_deploy_key")
  sensitive  = "encrypt" # SOPS; or "reference", or "refuse" (default); encrypt = "all" encrypts every value
}

stack "dns" {
  path     = "infra/azure/dns"
  target   = "azure"
  layer    = "hypervisors"
  contexts = ["azure-credentials"] # by name, besides those that attach themselves
}

stack "network" {
  path   = "infra/azure/network"
  target = "azure"
  layer  = "hypervisors"
  labels = ["prod"]
}

stack "k8s-prod" {
  path      = "infra/azure/cluster"
  target    = "azure"
  layer     = "platforms"
  enabled   = true       # false: not part of the project, its directory may be missing
  state     = "k8s-prod" # name of its state; default: the stack's name
  inputs    = { subnet_id = stack.network.output.subnet_id, nodes = 3 }
  var_files = ["env/prod.tfvars"]
  after     = [stack.dns]      # `order` edges
  wait      = "verified"       # what its upstreams must have reached; or "applied"
  trigger   = "push"           # or "manual": a merge does not start it, only a person or a schedule
  apply     = "manual"         # a person confirms; "auto": none is asked unless policy wants one
  approval { scope = "stack" } # asked for this stack by itself, not with the change set
  protected = true             # destroy requires typing the stack's name
  boundary  = "bootstrap"      # this stack alone may hold Kubernetes resources
  watch     = ["charts/**"]    # files outside the module that also count as its source
  include   = ["local.tfvars"] # git-ignored files that belong into its snapshot all the same
  artifacts = ["kubeconfig"]   # files it writes: kept encrypted, restored before each run, copied out on request
  render    = "homelab"        # a render whose output must be fresh before this stack is planned
  timeout {
    plan  = "10m"
    apply = "60m"
  }

  publish "runtime-facts" {
    path     = "clusters/prod/globals.yaml" # .yaml or .json
    contract = "cluster/v1"
    partial  = ["secrets_source_uri"]                                        # fields of the contract that may be missing for now
    values   = { azure = { envoyPublicIpAddress = output.gateway_address } } # default: the contract's outputs as they are
  }
  bootstrap "argocd" { # or "flux", "command"
    kubeconfig = output.kubeconfig
    version    = "v3.5.6"
    digest     = "sha256:…" # of the manifests it installs
    root       = ["argocd/applicationsets"]
    adopt      = true # take over what Helm or a person installed before
    secret "sops-age" {
      namespace = "argocd"
      data      = { "age.agekey" = secret("file:~/.config/sops/age/keys.txt") }
    }
  }
  gate "dns" "wildcard" {
    for_each = output.env_gateway_public_addresses # name becomes wildcard-dev, …
    names    = ["*.${each.key}.example.io", "${each.key}.example.io"]
    expect   = each.value
  }
  gate "tls" "coder" {
    host      = "coder.dev.example.io"
    valid_for = "336h"
  }
  gate "equal" "reserved-address" {
    values = [
      fact.runtime-facts["clusters/prod/globals.yaml"].azure.envoyPublicIpAddress,
      resource["azurerm_public_ip.envoy"].ip_address,
    ]
  }
  drift {
    schedule  = "0 6 * * *"
    remediate = "never"
  }
}

stack "env" { # one stack per entry: env-dev, env-staging, env-prod
  for_each = { dev = [], staging = ["dev"], prod = ["staging"] }
  name     = "env-${each.key}"
  path     = "infra/azure/environment"
  target   = "azure"
  layer    = "platforms"
  inputs   = { environment = each.key, cluster = stack.k8s-prod.output.cluster_name }
  after    = [for name in each.value : stack["env-${name}"]]
}

discover "experiments" {
  glob   = "experiments/*/infra"
  name   = "exp-${dir[1]}"
  target = "aws"
  layer  = "platforms" # any stack attribute may stand here as the default of what is found
}

render "homelab" { # `terrane render`
  templates = "templates/config"
  data      = ["cluster.yaml", "nodes.yaml"]
  output    = "."
  schema    = "templates/schema.json"
  delimiters {
    block    = ["#%", "%#"]
    variable = ["#{", "}#"]
    comment  = ["#|", "|#"]
  }
}
