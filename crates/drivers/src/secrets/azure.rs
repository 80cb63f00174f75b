//! Azure Key Vault, with the identity that the caller's environment configures: workload identity first, a
//! password last.

use std::collections::BTreeMap;
use std::path::Path;

use model::base::secret::Secret;
use serde::Deserialize;

use super::http::{Call, Exchange, FORM, Settings, escaped, failed, form};
use super::{SecretError, local};
use crate::process::engine_environment;

const AUTHORITY: &str = "https://login.microsoftonline.com";
const METADATA: &str = "http://169.254.169.254";
/// The audience of a federated token.
const AUDIENCE: &str = "api://AzureADTokenExchange";
const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// The vault domain of each login host.
const CLOUDS: [(&str, &str); 3] = [
    ("login.microsoftonline.us", "vault.usgovcloudapi.net"),
    ("login.chinacloudapi.cn", "vault.azure.cn"),
    ("login.partner.microsoftonline.cn", "vault.azure.cn"),
];
const PUBLIC: &str = "vault.azure.net";

const WAYS: &str = "set `AZURE_TENANT_ID` and `AZURE_CLIENT_ID`, with `AZURE_FEDERATED_TOKEN_FILE`, in a GitHub job with `id-token: write`, or with `AZURE_CLIENT_SECRET`; or run where there is a managed identity; or `az login` first";

pub(super) struct AzureClient {
    exchange: Exchange,
    authority: String,
    /// Tokens by resource.
    tokens: BTreeMap<String, Secret>,
}

/// The credential of an application.
enum Proof {
    Federated(Secret),
    Password(Secret),
}

#[derive(Deserialize)]
struct Token {
    access_token: Secret,
}

impl AzureClient {
    pub(super) fn new(settings: Settings<'_>) -> Result<Self, SecretError> {
        let exchange = Exchange::new(settings, "SSL_CERT_FILE");
        let exchange = exchange.map_err(failed("reach Azure", |_| None))?;
        let authority = settings.get("AZURE_AUTHORITY_HOST").unwrap_or(AUTHORITY);
        let authority = authority.trim_end_matches('/');
        let authority = if authority.contains("://") {
            authority.to_owned()
        } else {
            format!("https://{authority}")
        };
        Ok(Self {
            exchange,
            authority,
            tokens: BTreeMap::new(),
        })
    }

    /// The value of a secret; the newest version unless one is named.
    pub(super) async fn read(
        &mut self,
        settings: Settings<'_>,
        vault: &str,
        name: &str,
        version: Option<&str>,
    ) -> Result<Secret, SecretError> {
        #[derive(Deserialize)]
        struct SecretResponse {
            value: Secret,
        }
        let host = self.host_of(vault)?;
        let resource = match host.split_once('.') {
            Some((_, suffix)) if !is_here(&host) => format!("https://{suffix}"),
            _ => format!("https://{PUBLIC}"),
        };
        let token = self.token(settings, &resource).await?;
        let scheme = if is_here(&host) { "http" } else { "https" };
        let version = version.map(|version| format!("/{}", escaped(version, false)));
        let address = format!(
            "{scheme}://{host}/secrets/{}{}?api-version=7.4",
            escaped(name, false),
            version.unwrap_or_default(),
        );
        let call = Call::get(address).header("authorization", format!("Bearer {}", token.expose()));
        let action = format!("read the secret `{name}` of the key vault `{vault}`");
        let role = "the caller needs the role `Key Vault Secrets User` on it, or an access policy with `get`";
        let failed = failed(action, |err| match err.status() {
            Some(401 | 403) => Some(role.to_owned()),
            Some(404) => Some(format!(
                "`az keyvault secret list --vault-name {vault}` shows what there is"
            )),
            Some(_) | None => None,
        });
        let answer = self.exchange.send(call.hiding([&token])).await;
        let read = answer.and_then(|answer| Ok(answer.read::<SecretResponse>()?.value));
        let value = read.map_err(failed)?;
        local::text(
            value.expose().as_bytes(),
            &format!("`azure-keyvault:{vault}/{name}`"),
        )
    }

    /// The host of a vault. A plain name is completed for the cloud of the login; the token is sent to no other
    /// domain.
    fn host_of(&self, vault: &str) -> Result<String, SecretError> {
        let own = CLOUDS
            .iter()
            .find(|(login, _)| self.authority.ends_with(login))
            .map_or(PUBLIC, |(_, suffix)| *suffix);
        let is_name = |text: &str| {
            let mut bytes = text.bytes();
            !text.is_empty() && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        if is_name(vault) {
            return Ok(format!("{vault}.{own}"));
        }
        let mut known = CLOUDS.iter().map(|(_, suffix)| *suffix).chain([PUBLIC]);
        let fits = |suffix: &str| {
            let name = vault.strip_suffix(suffix);
            let name = name.and_then(|name| name.strip_suffix('.'));
            name.is_some_and(is_name)
        };
        if known.any(fits) || is_here(vault) {
            return Ok(vault.to_owned());
        }
        Err(SecretError::NotAVault {
            vault: vault.to_owned(),
        })
    }

    /// Uses the first configured login method; if it fails, the next one is not tried.
    async fn token(
        &mut self,
        settings: Settings<'_>,
        resource: &str,
    ) -> Result<Secret, SecretError> {
        if let Some(token) = self.tokens.get(resource) {
            return Ok(token.clone());
        }
        let tenant = settings.any(&["AZURE_TENANT_ID", "ARM_TENANT_ID"]);
        let client = settings.any(&["AZURE_CLIENT_ID", "ARM_CLIENT_ID"]);
        let application = tenant.zip(client);
        let token = match application {
            Some(application) => match federated(settings).await? {
                Some(token) => {
                    let proof = Proof::Federated(token);
                    Some(self.exchanged(application, &proof, resource).await?)
                }
                None => None,
            },
            None => None,
        };
        let token = match token {
            Some(token) => Some(token),
            None => self.of_machine(settings, resource).await?,
        };
        let password = settings
            .secret("AZURE_CLIENT_SECRET")
            .or_else(|| settings.secret("ARM_CLIENT_SECRET"));
        let token = match (token, application, password) {
            (Some(token), _, _) => token,
            (None, Some(application), Some(password)) => {
                let proof = Proof::Password(password);
                self.exchanged(application, &proof, resource).await?
            }
            (None, _, _) => of_program(settings, resource).await?,
        };
        self.tokens.insert(resource.to_owned(), token.clone());
        Ok(token)
    }

    /// A token in exchange for an application's credential.
    async fn exchanged(
        &self,
        (tenant, client): (&str, &str),
        proof: &Proof,
        resource: &str,
    ) -> Result<Secret, SecretError> {
        let scope = format!("{resource}/.default");
        let mut fields = vec![
            ("grant_type", "client_credentials"),
            ("client_id", client),
            ("scope", &scope),
        ];
        let (way, secret, remedy) = match proof {
            Proof::Federated(token) => {
                fields.push(("client_assertion_type", JWT_BEARER));
                fields.push(("client_assertion", token.expose()));
                let remedy =
                    "does the application have a federated credential for this issuer and subject?";
                ("a federated token", token, remedy)
            }
            Proof::Password(password) => {
                fields.push(("client_secret", password.expose()));
                let remedy = "is `AZURE_CLIENT_SECRET` the application's, and still valid?";
                ("a client secret", password, remedy)
            }
        };
        let address = format!(
            "{}/{}/oauth2/v2.0/token",
            self.authority,
            escaped(tenant, false)
        );
        let call = Call::post(address, FORM, form(&fields)).hiding([secret]);
        let answer = self.exchange.send(call).await;
        let read = answer.and_then(|answer| Ok(answer.read::<Token>()?.access_token));
        let action = format!("log in to Azure as `{client}` with {way}");
        read.map_err(failed(action, |err| {
            err.status().map(|_| remedy.to_owned())
        }))
    }

    /// A token of the managed identity of this machine or service, if it has one.
    async fn of_machine(
        &self,
        settings: Settings<'_>,
        resource: &str,
    ) -> Result<Option<Secret>, SecretError> {
        let client = settings.any(&["AZURE_CLIENT_ID", "ARM_CLIENT_ID"]);
        let client = client.map(|id| format!("&client_id={}", escaped(id, false)));
        let query = format!(
            "resource={}{}",
            escaped(resource, false),
            client.unwrap_or_default()
        );
        let endpoint = settings.get("IDENTITY_ENDPOINT");
        let header = settings.secret("IDENTITY_HEADER");
        let call = if let (Some(endpoint), Some(header)) = (endpoint, header) {
            let address = format!("{endpoint}?api-version=2019-08-01&{query}");
            Call::get(address).secret_header("x-identity-header", header)
        } else {
            let base = settings.get("AZURE_POD_IDENTITY_AUTHORITY_HOST");
            let base = base.unwrap_or(METADATA).trim_end_matches('/');
            let address =
                format!("{base}/metadata/identity/oauth2/token?api-version=2018-02-01&{query}");
            Call::get(address).header("metadata", "true")
        };
        let action = "log in to Azure with the managed identity of this machine";
        let answer = self.exchange.ask_nearby(call).await;
        let Some(answer) = answer.map_err(failed(action, |_| None))? else {
            return Ok(None);
        };
        // A machine of another cloud, or one without an identity, answers too; only a refusal by name is a
        // failure.
        match answer.read::<Token>() {
            Ok(token) => Ok(Some(token.access_token)),
            Err(_) => Ok(None),
        }
    }
}

/// The federated token that another issuer provides for this workload.
async fn federated(settings: Settings<'_>) -> Result<Option<Secret>, SecretError> {
    if let Some(path) = settings.get("AZURE_FEDERATED_TOKEN_FILE") {
        return local::read_file(path, Path::new("/"), None).map(Some);
    }
    if let Some(token) = settings.secret("ARM_OIDC_TOKEN") {
        return Ok(Some(token));
    }
    let job = settings.token_of_github_job(AUDIENCE).await;
    job.map_err(failed("log in to Azure with the token of this job", |_| {
        None
    }))
}

/// A token of the person's own login, if `az` is installed.
async fn of_program(settings: Settings<'_>, resource: &str) -> Result<Secret, SecretError> {
    let mut env = engine_environment(settings.0, false);
    if let Some(dir) = settings.get("AZURE_CONFIG_DIR") {
        env.set("AZURE_CONFIG_DIR", dir);
    }
    let no_login = || SecretError::NoLogin {
        who: "Azure",
        ways: WAYS,
    };
    let path = settings.get("PATH").unwrap_or_default();
    crate::process::find_program("az", path.as_ref()).ok_or_else(no_login)?;
    let words = [
        "az",
        "account",
        "get-access-token",
        "--output",
        "tsv",
        "--query",
        "accessToken",
        "--resource",
        resource,
    ];
    let words = words.map(str::to_owned);
    let said = local::run_command(&words, Path::new("/"), &env).await;
    said.map_err(|err| match err {
        // Not logged in: treated like a missing program.
        SecretError::Failed { .. } | SecretError::NoValue { .. } => no_login(),
        other => other,
    })
}

/// Whether a host is this machine.
fn is_here(host: &str) -> bool {
    let name = host.split(':').next().unwrap_or_default();
    name == "localhost"
        || name
            .parse::<std::net::Ipv4Addr>()
            .is_ok_and(|address| address.is_loopback())
}
