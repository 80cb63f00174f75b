//! A kubeconfig from a stack's output: in memory, complete, only its current context.
//!
//! Files that it names are not read, since they are on the machine that wrote it.

use serde::Deserialize;
use serde_json::Value;

use crate::base::error::{Explain, NextStep, advice};
use crate::base::secret::Secret;

/// How to reach a cluster, and with which credentials.
#[derive(Clone, Debug)]
pub struct Kubeconfig {
    /// Name of the current context.
    pub context: String,
    /// `https://host:port`, optionally with a path.
    pub server: String,
    /// The trusted CA certificates, as base64 of PEM. None: those that this machine trusts.
    pub authority: Option<String>,
    pub insecure: bool,
    /// The expected name in the server's certificate, if not the host's.
    pub server_name: Option<String>,
    pub access: ClusterCredentials,
}

/// The credentials for a cluster.
#[derive(Clone, Debug)]
pub enum ClusterCredentials {
    Anonymous,
    Token(Secret),
    /// Both as base64 of PEM.
    Certificate {
        certificate: String,
        key: Secret,
    },
    Exec(ExecPlugin),
}

/// A program that provides the credentials, as for cloud clusters.
#[derive(Clone, Debug)]
pub struct ExecPlugin {
    pub api_version: String,
    pub command: String,
    pub args: Vec<String>,
    pub env: Vec<(String, Secret)>,
    /// Whether the program requested information about the cluster.
    pub cluster_info: bool,
    pub install_hint: Option<String>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeconfigError {
    #[error("the kubeconfig is empty")]
    Empty,
    #[error("the kubeconfig is larger than 1 MB")]
    TooLong,
    // A parser's message may quote the content.
    #[error("cannot parse the kubeconfig as YAML or JSON")]
    Unreadable,
    #[error("the kubeconfig has no `current-context`")]
    NoContext,
    #[error("the kubeconfig has no {what} called `{name}`")]
    Missing { what: &'static str, name: String },
    #[error(
        "the kubeconfig refers to a file in `{attribute}`, but terrane does not read files that a kubeconfig names"
    )]
    File { attribute: &'static str },
    #[error("`{attribute}` of a kubeconfig is not supported")]
    Unsupported { attribute: &'static str },
    #[error("`{server}` is not an `https` address")]
    PlainServer { server: String },
    #[error("the credential plugin has the unsupported API version `{seen}`")]
    Plugin { seen: String },
}

impl Explain for KubeconfigError {
    fn next_steps(&self) -> Vec<NextStep> {
        vec![advice(match self {
            Self::File { .. } => {
                "`kubectl config view --raw --flatten --minify` prints a kubeconfig without references to files"
            }
            Self::Unsupported {
                attribute: "auth-provider",
            } => "use an `exec` credential plugin, or a token",
            Self::Plugin { .. } => {
                "supported versions: `client.authentication.k8s.io/v1` and `client.authentication.k8s.io/v1beta1`"
            }
            Self::NoContext => "`kubectl config use-context NAME` sets it",
            _ => return Vec::new(),
        })]
    }
}

const MAX_SIZE: usize = 1 << 20;

impl Kubeconfig {
    /// Reads an output's value: YAML or JSON text, or the same as a value.
    pub fn from_value(value: &Value) -> Result<Self, KubeconfigError> {
        match value {
            Value::String(text) => Self::from_text(text),
            Value::Null => Err(KubeconfigError::Empty),
            other => serde_json::from_value(other.clone())
                .map_err(|_| KubeconfigError::Unreadable)
                .and_then(pick),
        }
    }

    /// The parts that must not be shown.
    pub fn hidden(&self) -> Vec<Secret> {
        match &self.access {
            ClusterCredentials::Anonymous => Vec::new(),
            ClusterCredentials::Token(token) => vec![token.clone()],
            ClusterCredentials::Certificate { key, .. } => vec![key.clone()],
            ClusterCredentials::Exec(plugin) => {
                plugin.env.iter().map(|(_, value)| value.clone()).collect()
            }
        }
    }

    pub fn from_text(text: &str) -> Result<Self, KubeconfigError> {
        if text.trim().is_empty() {
            return Err(KubeconfigError::Empty);
        }
        if text.len() > MAX_SIZE {
            return Err(KubeconfigError::TooLong);
        }
        let read: File = yaml_serde::from_str(text).map_err(|_| KubeconfigError::Unreadable)?;
        pick(read)
    }
}

#[derive(Deserialize)]
struct File {
    #[serde(rename = "current-context", default)]
    current: String,
    #[serde(default)]
    clusters: Vec<Named<Cluster>>,
    #[serde(default)]
    contexts: Vec<Named<Context>>,
    #[serde(default)]
    users: Vec<Named<User>>,
}

#[derive(Deserialize)]
struct Named<T> {
    name: String,
    #[serde(alias = "cluster", alias = "context", alias = "user")]
    body: T,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    #[serde(default)]
    user: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority: Option<String>,
    certificate_authority_data: Option<String>,
    #[serde(default)]
    insecure_skip_tls_verify: bool,
    tls_server_name: Option<String>,
    proxy_url: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<String>,
    client_certificate: Option<String>,
    client_certificate_data: Option<String>,
    client_key: Option<String>,
    client_key_data: Option<String>,
    exec: Option<Exec>,
    auth_provider: Option<serde::de::IgnoredAny>,
    username: Option<String>,
    password: Option<String>,
    #[serde(rename = "as")]
    impersonate: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Exec {
    api_version: Option<String>,
    command: String,
    args: Option<Vec<String>>,
    env: Option<Vec<ExecVariable>>,
    #[serde(default)]
    provide_cluster_info: bool,
    install_hint: Option<String>,
}

#[derive(Deserialize)]
struct ExecVariable {
    name: String,
    value: String,
}

fn pick(file: File) -> Result<Kubeconfig, KubeconfigError> {
    if file.current.is_empty() {
        return Err(KubeconfigError::NoContext);
    }
    let context = find("context", &file.current, file.contexts)?;
    let cluster = find("cluster", &context.cluster, file.clusters)?;
    let user = match context.user.as_str() {
        "" => User::default(),
        name => find("user", name, file.users)?,
    };
    refuse_file(
        "certificate-authority",
        cluster.certificate_authority.as_ref(),
        cluster.certificate_authority_data.as_ref(),
    )?;
    refuse("proxy-url", cluster.proxy_url.is_some())?;
    let server = cluster.server.trim_end_matches('/').to_owned();
    if !is_guarded(&server) {
        return Err(KubeconfigError::PlainServer { server });
    }
    Ok(Kubeconfig {
        context: file.current,
        server,
        authority: filled(cluster.certificate_authority_data),
        insecure: cluster.insecure_skip_tls_verify,
        server_name: filled(cluster.tls_server_name),
        access: access(user)?,
    })
}

fn access(user: User) -> Result<ClusterCredentials, KubeconfigError> {
    refuse("auth-provider", user.auth_provider.is_some())?;
    refuse("username", user.username.is_some())?;
    refuse("password", user.password.is_some())?;
    refuse("as", user.impersonate.is_some())?;
    let (certificate, key) = (user.client_certificate_data, user.client_key_data);
    refuse_file(
        "client-certificate",
        user.client_certificate.as_ref(),
        certificate.as_ref(),
    )?;
    refuse_file("client-key", user.client_key.as_ref(), key.as_ref())?;
    // As in kubectl: a token first, then a plugin. A certificate may be set beside either, and is then not needed.
    if let Some(token) = filled(user.token) {
        return Ok(ClusterCredentials::Token(Secret::new(token)));
    }
    refuse_file("tokenFile", user.token_file.as_ref(), None)?;
    if let Some(exec) = user.exec {
        return plugin(exec).map(ClusterCredentials::Exec);
    }
    Ok(match (filled(certificate), filled(key)) {
        (Some(certificate), Some(key)) => ClusterCredentials::Certificate {
            certificate,
            key: Secret::new(key),
        },
        _ => ClusterCredentials::Anonymous,
    })
}

fn plugin(exec: Exec) -> Result<ExecPlugin, KubeconfigError> {
    let api_version = exec.api_version.unwrap_or_default();
    if !["v1", "v1beta1"]
        .iter()
        .any(|version| api_version == format!("client.authentication.k8s.io/{version}"))
    {
        return Err(KubeconfigError::Plugin { seen: api_version });
    }
    let env = exec.env.unwrap_or_default().into_iter();
    Ok(ExecPlugin {
        api_version,
        command: exec.command,
        args: exec.args.unwrap_or_default(),
        env: env
            .map(|variable| (variable.name, Secret::new(variable.value)))
            .collect(),
        cluster_info: exec.provide_cluster_info,
        install_hint: exec.install_hint,
    })
}

fn find<T>(what: &'static str, name: &str, all: Vec<Named<T>>) -> Result<T, KubeconfigError> {
    let found = all.into_iter().find(|entry| entry.name == name);
    found
        .map(|entry| entry.body)
        .ok_or_else(|| KubeconfigError::Missing {
            what,
            name: name.to_owned(),
        })
}

fn refuse(attribute: &'static str, there: bool) -> Result<(), KubeconfigError> {
    if there {
        return Err(KubeconfigError::Unsupported { attribute });
    }
    Ok(())
}

/// Inline content takes precedence, so a file reference beside it does no harm.
fn refuse_file(
    attribute: &'static str,
    file: Option<&String>,
    data: Option<&String>,
) -> Result<(), KubeconfigError> {
    let named = |text: Option<&String>| text.is_some_and(|text| !text.is_empty());
    if named(file) && !named(data) {
        return Err(KubeconfigError::File { attribute });
    }
    Ok(())
}

fn filled(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

/// Credentials are only sent over TLS, or to this machine (`kubectl proxy`).
fn is_guarded(server: &str) -> bool {
    if server.starts_with("https://") {
        return true;
    }
    let Some(rest) = server.strip_prefix("http://") else {
        return false;
    };
    let host = rest.split('/').next().unwrap_or_default();
    ["127.0.0.1", "localhost", "[::1]"]
        .iter()
        .any(|local| host == *local || host.starts_with(&format!("{local}:")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: prod\n\
             contexts: [{{name: prod, context: {{cluster: c, user: u, namespace: x}}}}]\n\
             clusters: [{{name: other, cluster: {{server: 'https://o'}}}}, {{name: c, cluster: {cluster}}}]\n\
             users: [{{name: u, user: {user}}}]\n"
        )
    }

    fn read(cluster: &str, user: &str) -> Result<Kubeconfig, KubeconfigError> {
        Kubeconfig::from_text(&config(cluster, user))
    }

    #[test]
    fn the_current_context_is_taken() {
        let read = read(
            "{server: 'https://c:6443/', certificate-authority-data: QQ==, tls-server-name: k8s}",
            "{token: marked-secret}",
        )
        .unwrap();
        assert_eq!(read.server, "https://c:6443");
        assert_eq!(read.authority.as_deref(), Some("QQ=="));
        assert_eq!(read.server_name.as_deref(), Some("k8s"));
        assert!(
            matches!(&read.access, ClusterCredentials::Token(token) if token.expose() == "marked-secret")
        );
        assert!(!format!("{read:?}").contains("marked-secret"));
    }

    #[test]
    fn values_and_json_are_as_good_as_yaml() {
        let value = json!({
            "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": ""}}],
            "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:8001"}}],
        });
        let read = Kubeconfig::from_value(&value).unwrap();
        assert!(matches!(read.access, ClusterCredentials::Anonymous));
        let text = Value::String(value.to_string());
        assert_eq!(Kubeconfig::from_value(&text).unwrap().server, read.server);
    }

    #[test]
    fn what_cannot_be_held_in_memory_is_refused_by_name() {
        let refused = |cluster: &str, user: &str| read(cluster, user).unwrap_err().to_string();
        let good = "{server: 'https://c'}";
        let file = "the kubeconfig refers to a file in `X`, but terrane does not read files that a kubeconfig names";
        let unsupported = "`X` of a kubeconfig is not supported";
        let cases = [
            (
                "{server: 'https://c', certificate-authority: /ca}",
                "{}",
                file,
                "certificate-authority",
            ),
            (good, "{tokenFile: /token}", file, "tokenFile"),
            (
                good,
                "{client-certificate: /c, client-key-data: QQ==}",
                file,
                "client-certificate",
            ),
            (
                good,
                "{client-certificate-data: QQ==, client-key: /k}",
                file,
                "client-key",
            ),
            (
                "{server: 'https://c', proxy-url: 'http://p'}",
                "{}",
                unsupported,
                "proxy-url",
            ),
            (
                good,
                "{auth-provider: {name: gcp}}",
                unsupported,
                "auth-provider",
            ),
            (good, "{username: a}", unsupported, "username"),
            (good, "{as: admin}", unsupported, "as"),
            (
                "{server: 'http://10.0.0.1'}",
                "{}",
                "`http://10.0.0.1` is not an `https` address",
                "",
            ),
        ];
        for (cluster, user, expected, word) in cases {
            assert_eq!(
                refused(cluster, user),
                expected.replace('X', word),
                "{cluster} {user}"
            );
        }
    }

    #[test]
    fn a_plugin_keeps_its_arguments_and_its_environment() {
        let exec = "{exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: kubelogin, \
                    args: [get-token], env: [{name: A, value: b}], interactiveMode: Never}}";
        let ClusterCredentials::Exec(plugin) = read("{server: 'https://c'}", exec).unwrap().access
        else {
            panic!("no plugin");
        };
        assert_eq!(
            (plugin.command.as_str(), plugin.args.len()),
            ("kubelogin", 1)
        );
        let old = exec.replace("v1beta1", "v1alpha1");
        let err = read("{server: 'https://c'}", &old).unwrap_err();
        assert_eq!(
            err.to_string(),
            "the credential plugin has the unsupported API version `client.authentication.k8s.io/v1alpha1`"
        );
    }

    #[test]
    fn a_broken_one_is_not_quoted() {
        let err = Kubeconfig::from_text("token: [marked-secret").unwrap_err();
        assert_eq!(err, KubeconfigError::Unreadable);
        assert_eq!(
            Kubeconfig::from_text(" \n").unwrap_err(),
            KubeconfigError::Empty
        );
        let none = Kubeconfig::from_text("clusters: []").unwrap_err();
        assert_eq!(none, KubeconfigError::NoContext);
    }
}
