//! `HashiCorp` Vault and `OpenBao`: the KV store, version 2, and its login methods.

use std::path::Path;

use model::base::secret::Secret;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::http::{Call, Exchange, JSON, Settings, escaped, failed};
use super::{ExchangeError, SecretError, local};

/// The path of a Pod's service account token.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

const WAYS: &str = "set `VAULT_TOKEN`; or `VAULT_ROLE_ID` and `VAULT_SECRET_ID`; or `VAULT_ROLE` with `VAULT_JWT` or in a GitHub job or a Pod; or `vault login` first";

/// A server that we are logged in to.
pub(super) struct VaultClient {
    exchange: Exchange,
    address: String,
    namespace: Option<String>,
    token: Secret,
}

/// A login method; the role is no secret, its credential is.
enum Login {
    Token(Secret),
    AppRole {
        role: String,
        secret: Option<Secret>,
    },
    Jwt {
        role: String,
        token: Secret,
    },
    Kubernetes {
        role: String,
        token: Secret,
    },
}

impl Login {
    /// Chooses the first configured login method; if it fails, the next one is not tried.
    async fn choose(settings: Settings<'_>, address: &str) -> Result<Self, SecretError> {
        if let Some(token) = settings.secret("VAULT_TOKEN") {
            return Ok(Self::Token(token));
        }
        if let Some(role) = settings.get("VAULT_ROLE_ID") {
            return Ok(Self::AppRole {
                role: role.to_owned(),
                secret: settings.secret("VAULT_SECRET_ID"),
            });
        }
        if let Some(role) = settings.get("VAULT_ROLE") {
            let role = role.to_owned();
            if let Some(token) = settings.secret("VAULT_JWT") {
                return Ok(Self::Jwt { role, token });
            }
            let audience = settings.get("VAULT_JWT_AUDIENCE").unwrap_or(address);
            let job = settings.token_of_github_job(audience).await;
            let action = format!("log in to Vault at `{address}` with the token of this job");
            if let Some(token) = job.map_err(failed(action, |_| None))? {
                return Ok(Self::Jwt { role, token });
            }
            let path = settings.get("VAULT_K8S_TOKEN_FILE");
            let path = path.unwrap_or(SERVICE_ACCOUNT);
            if Path::new(path).exists() {
                let token = local::read_file(path, Path::new("/"), None)?;
                return Ok(Self::Kubernetes { role, token });
            }
        }
        let home = settings.get("HOME").map(Path::new);
        if let Some(home) = home.filter(|home| home.join(".vault-token").exists()) {
            let token = local::read_file("~/.vault-token", home, Some(home))?;
            return Ok(Self::Token(token));
        }
        Err(SecretError::NoLogin {
            who: "Vault",
            ways: WAYS,
        })
    }
}

impl VaultClient {
    pub(super) async fn log_in(settings: Settings<'_>) -> Result<Self, SecretError> {
        let address = settings.get("VAULT_ADDR").ok_or(SecretError::NoPlace {
            who: "Vault",
            name: "VAULT_ADDR",
        })?;
        let address = address.trim_end_matches('/').to_owned();
        if address.contains('@') {
            // The error does not show the address either.
            let remedy = |_: &ExchangeError| {
                Some("leave it out of `VAULT_ADDR`: a login proves the identity".to_owned())
            };
            return Err(failed("reach Vault", remedy)(ExchangeError::Credentials));
        }
        let at = format!("Vault at `{address}`");
        let exchange = Exchange::new(settings, "VAULT_CACERT");
        let exchange = exchange.map_err(failed(format!("reach {at}"), |_| None))?;
        let login = Login::choose(settings, &address).await?;
        let mut vault = Self {
            exchange,
            address,
            namespace: settings.get("VAULT_NAMESPACE").map(str::to_owned),
            token: Secret::new(""),
        };
        let mount = settings.get("VAULT_AUTH_PATH");
        let (way, mount, body, proof) = match login {
            Login::Token(token) => {
                vault.token = token;
                return Ok(vault);
            }
            Login::AppRole { role, secret } => {
                let mut body = json!({"role_id": role});
                if let Some(secret) = &secret {
                    body["secret_id"] = secret.expose().into();
                }
                ("AppRole", mount.unwrap_or("approle"), body, secret)
            }
            Login::Jwt { role, token } => {
                let body = json!({"role": role, "jwt": token.expose()});
                ("a JWT", mount.unwrap_or("jwt"), body, Some(token))
            }
            Login::Kubernetes { role, token } => {
                let body = json!({"role": role, "jwt": token.expose()});
                let mount = mount.unwrap_or("kubernetes");
                ("the Pod's service account", mount, body, Some(token))
            }
        };
        let action = format!("log in to {at} with {way}");
        let remedy =
            format!("is the role allowed on `auth/{mount}`, and is the proof still valid?");
        let body = Secret::new(body.to_string());
        let token = vault.prove(mount, &body, proof.as_ref());
        let token = token
            .await
            .map_err(failed(action, |err| match err.status() {
                Some(_) => Some(remedy),
                None => unreachable(err),
            }))?;
        vault.token = token;
        Ok(vault)
    }

    /// The token that a login returns.
    async fn prove(
        &self,
        mount: &str,
        body: &Secret,
        proof: Option<&Secret>,
    ) -> Result<Secret, ExchangeError> {
        #[derive(Deserialize)]
        struct LoginResponse {
            auth: Auth,
        }
        #[derive(Deserialize)]
        struct Auth {
            client_token: Secret,
        }
        let mount = escaped(mount.trim_matches('/'), true);
        let address = format!("{}/v1/auth/{mount}/login", self.address);
        let call = Call::post(address, JSON, body.clone()).hiding(proof);
        let answer = self.exchange.send(self.named(call)).await?;
        Ok(answer.read::<LoginResponse>()?.auth.client_token)
    }

    /// The fields of a secret, as JSON.
    pub(super) async fn read(&self, mount: &str, path: &str) -> Result<Secret, SecretError> {
        let action = format!("read `{mount}/{path}` of Vault at `{}`", self.address);
        let read = self.fetch(mount, path).await;
        read.map_err(failed(action, |err| match err.status() {
            Some(403) => Some(format!(
                "the token needs a policy with `read` on `{mount}/data/{path}`"
            )),
            Some(404) => Some(format!(
                "is it there (`vault kv get {mount}/{path}`), and is `{mount}` a KV store of version 2?"
            )),
            Some(_) | None => unreachable(err),
        }))
    }

    async fn fetch(&self, mount: &str, path: &str) -> Result<Secret, ExchangeError> {
        #[derive(Deserialize)]
        struct ReadResponse<'a> {
            #[serde(borrow)]
            data: Version<'a>,
        }
        #[derive(Deserialize)]
        struct Version<'a> {
            #[serde(borrow)]
            data: &'a RawValue,
        }
        let (mount, path) = (escaped(mount, true), escaped(path, true));
        let address = format!("{}/v1/{mount}/data/{path}", self.address);
        let call = Call::get(address).secret_header("x-vault-token", self.token.clone());
        let answer = self.exchange.send(self.named(call)).await?;
        Ok(Secret::new(
            answer.read::<ReadResponse<'_>>()?.data.data.get(),
        ))
    }

    fn named<'a>(&self, call: Call<'a>) -> Call<'a> {
        let call = call.header("x-vault-request", "true");
        match &self.namespace {
            Some(namespace) => call.header("x-vault-namespace", namespace),
            None => call,
        }
    }
}

fn unreachable(err: &ExchangeError) -> Option<String> {
    match err {
        ExchangeError::Send { .. } => {
            Some("is `VAULT_ADDR` right, and can it be reached from here?".to_owned())
        }
        ExchangeError::Place(_) => {
            Some("use `https://`; `VAULT_CACERT` names a certificate of your own".to_owned())
        }
        ExchangeError::Client(_)
        | ExchangeError::Credentials
        | ExchangeError::Certificates { .. }
        | ExchangeError::Status { .. }
        | ExchangeError::TooLong { .. }
        | ExchangeError::Document { .. }
        | ExchangeError::Job(_) => None,
    }
}
