//! Bootstrap: the steps after an apply that hand a cluster over to GitOps, as data. The settings from the project file,
//! the resulting steps, and their results.
//!
//! What GitOps has taken over is compared and reported, never forced back.
//!
//! Not here: executing steps (`control::stage::bootstrap`), access to the cluster (`drivers::kubernetes`).

mod report;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use crate::base::diagnostic::Location;
use crate::base::secret::Secret;
use crate::stage::kubernetes::Kubeconfig;

pub use report::{BootstrapReport, ObjectOutcome, ObjectReport, StepEnd, StepReport};
pub use settings::BootstrapSettingError;

/// A `bootstrap` block with all its values known. Kept in memory only.
#[derive(Clone, Debug)]
pub struct Bootstrap {
    pub action: BootstrapAction,
    /// How to reach the cluster. Optional for a command.
    pub kubeconfig: Option<(Kubeconfig, Secret)>,
    pub secrets: Vec<SecretObject>,
    /// The limit of each step, if the project sets one.
    pub timeout: Option<Duration>,
    pub at: Location,
}

#[derive(Clone, Debug)]
pub enum BootstrapAction {
    Agent(Agent),
    Command(CommandStep),
}

/// The GitOps agent of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    pub kind: AgentKind,
    pub version: String,
    pub namespace: String,
    /// Files and directories of the project. If empty, the agent's official release if a digest is set, or else
    /// nothing.
    pub manifests: Vec<String>,
    /// Values files for rendering a chart.
    pub values: Vec<String>,
    /// `sha256:…` of the installed manifests.
    pub digest: Option<String>,
    pub root: Vec<String>,
    pub adopt: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentKind {
    Argocd,
    Flux,
}

/// A program of the project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandStep {
    pub run: Vec<String>,
    pub env: BTreeMap<String, Secret>,
}

/// A Secret that must exist before the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretObject {
    pub name: String,
    pub namespace: String,
    pub kind: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub data: BTreeMap<String, Secret>,
}

/// One observable step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootstrapStep {
    WaitForApi,
    Namespaces,
    Secrets,
    Install,
    WaitForAgent,
    Root,
    WaitForRoot,
    Command,
}

impl Bootstrap {
    /// `argocd`, `flux` or `command`, as in the project file.
    pub fn kind(&self) -> &'static str {
        match &self.action {
            BootstrapAction::Agent(agent) => agent.kind.word(),
            BootstrapAction::Command(_) => "command",
        }
    }

    /// The steps, in order.
    pub fn steps(&self) -> Vec<BootstrapStep> {
        let mut steps = Vec::new();
        if self.kubeconfig.is_some() {
            steps.push(BootstrapStep::WaitForApi);
        }
        if !self.namespaces().is_empty() {
            steps.push(BootstrapStep::Namespaces);
        }
        if !self.secrets.is_empty() {
            steps.push(BootstrapStep::Secrets);
        }
        match &self.action {
            BootstrapAction::Command(_) => steps.push(BootstrapStep::Command),
            BootstrapAction::Agent(agent) => {
                if agent.is_installed_here() {
                    steps.push(BootstrapStep::Install);
                }
                steps.push(BootstrapStep::WaitForAgent);
                if !agent.root.is_empty() {
                    steps.extend([BootstrapStep::Root, BootstrapStep::WaitForRoot]);
                }
            }
        }
        steps
    }

    /// Namespaces that must exist first, sorted.
    pub fn namespaces(&self) -> Vec<&str> {
        let own = match &self.action {
            BootstrapAction::Agent(agent) => Some(agent.namespace.as_str()),
            BootstrapAction::Command(_) => None,
        };
        let secrets = self.secrets.iter().map(|secret| secret.namespace.as_str());
        let mut all: Vec<&str> = secrets.chain(own).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    pub fn limit(&self, step: BootstrapStep) -> Duration {
        let minutes = match step {
            // A new control plane and the pods of a new cluster take some time.
            BootstrapStep::WaitForApi
            | BootstrapStep::WaitForAgent
            | BootstrapStep::WaitForRoot => 15,
            BootstrapStep::Namespaces | BootstrapStep::Secrets | BootstrapStep::Root => 2,
            BootstrapStep::Install => 5,
            BootstrapStep::Command => 30,
        };
        self.timeout.unwrap_or_else(|| Duration::from_mins(minutes))
    }

    /// Everything that must not be shown.
    pub fn hidden(&self) -> Vec<Secret> {
        let mut hidden: Vec<Secret> = self
            .secrets
            .iter()
            .flat_map(|secret| secret.data.values().cloned())
            .collect();
        if let Some((config, text)) = &self.kubeconfig {
            hidden.push(text.clone());
            hidden.extend(config.hidden());
        }
        if let BootstrapAction::Command(command) = &self.action {
            hidden.extend(command.env.values().cloned());
        }
        hidden
    }
}

impl BootstrapStep {
    pub fn title(self) -> &'static str {
        match self {
            Self::WaitForApi => "wait for the API",
            Self::Namespaces => "create namespaces",
            Self::Secrets => "put secrets",
            Self::Install => "install",
            Self::WaitForAgent => "wait for the agent",
            Self::Root => "apply the root manifests",
            Self::WaitForRoot => "wait for the root objects",
            Self::Command => "run the command",
        }
    }
}

impl Agent {
    /// False if neither manifests nor a digest are set: others install the agent, and terrane only waits for it.
    pub fn is_installed_here(&self) -> bool {
        !self.manifests.is_empty() || self.digest.is_some()
    }
}

impl AgentKind {
    pub fn word(self) -> &'static str {
        match self {
            Self::Argocd => "argocd",
            Self::Flux => "flux",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::Argocd => "Argo CD",
            Self::Flux => "Flux",
        }
    }

    fn namespace(self) -> &'static str {
        match self {
            Self::Argocd => "argocd",
            Self::Flux => "flux-system",
        }
    }
}

impl SecretObject {
    /// The manifest to apply. `encode` is base64, which this crate does not need otherwise.
    pub fn manifest(&self, encode: impl Fn(&str) -> String) -> Value {
        let data: serde_json::Map<String, Value> = self
            .data
            .iter()
            .map(|(key, value)| (key.clone(), encode(value.expose()).into()))
            .collect();
        let mut object = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "type": self.kind.as_deref().unwrap_or("Opaque"),
            "data": data,
        });
        if !self.labels.is_empty() {
            object["metadata"]["labels"] = json!(self.labels);
        }
        object
    }
}

impl fmt::Display for BootstrapStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title())
    }
}

/// Field managers that reconcile from Git: objects with such a manager have been handed over to it.
pub fn is_gitops_manager(manager: &str) -> bool {
    const KNOWN: [&str; 8] = [
        "argocd-controller",
        "argocd-application-controller",
        "argocd-applicationset-controller",
        "argocd-server",
        "kustomize-controller",
        "helm-controller",
        "source-controller",
        "gotk-manager",
    ];
    KNOWN.contains(&manager)
}

/// Whether `adopt` may take over a manager's fields. This holds for tools used by people, such as Helm, `kubectl` and
/// Terraform, but not for cluster controllers.
pub fn is_adoptable(manager: &str) -> bool {
    let is_controller = manager.starts_with("kube-")
        || manager.ends_with("-controller")
        || manager.ends_with("-controller-manager")
        || manager.ends_with("-scheduler")
        || manager.contains("cainjector");
    !is_gitops_manager(manager) && !is_controller && manager != "terrane"
}
