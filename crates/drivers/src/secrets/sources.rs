//! Secret services, as one caller sees them. Each secret is read once and each login made once; both are cached in
//! memory only, for as long as the caller's values are.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use model::base::secret::Secret;
use serde_json::value::RawValue;
use tokio::sync::Mutex;

use super::aws::AwsClient;
use super::azure::AzureClient;
use super::http::Settings;
use super::local;
use super::vault::VaultClient;
use super::{SecretError, SecretReference};

/// Clones share the cache. `Debug` leaves out the contents: they are secrets.
#[derive(Clone, Default)]
pub struct SecretSources(Arc<Mutex<SourceCache>>);

#[derive(Default)]
struct SourceCache {
    documents: BTreeMap<CacheKey, Secret>,
    vault: Option<VaultClient>,
    azure: Option<AzureClient>,
    aws: Option<AwsClient>,
}

/// The secret that one request returns.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum CacheKey {
    Vault {
        mount: String,
        path: String,
    },
    Azure {
        vault: String,
        name: String,
        version: Option<String>,
    },
    AwsSecret(String),
    AwsParameter(String),
}

impl SecretSources {
    /// Reads the secret of a service. Requests run one at a time, so that a second one for the same secret uses
    /// the cache.
    pub(super) async fn read(
        &self,
        reference: &SecretReference,
        env: &BTreeMap<String, String>,
    ) -> Result<Secret, SecretError> {
        let settings = Settings(env);
        let mut asked = self.0.lock().await;
        match reference {
            SecretReference::Vault { mount, path, key } => {
                let place = CacheKey::Vault {
                    mount: mount.clone(),
                    path: path.clone(),
                };
                let document = asked.document(place, settings).await?;
                field(&document, key, &format!("vault:{mount}/{path}"))
            }
            SecretReference::AzureKeyVault {
                vault,
                name,
                version,
            } => {
                let place = CacheKey::Azure {
                    vault: vault.clone(),
                    name: name.clone(),
                    version: version.clone(),
                };
                asked.document(place, settings).await
            }
            SecretReference::AwsSecretsManager { name, key } => {
                let document = asked.document(CacheKey::AwsSecret(name.clone()), settings);
                let document = document.await?;
                match key {
                    None => Ok(document),
                    Some(key) => field(&document, key, &format!("aws-secretsmanager:{name}")),
                }
            }
            SecretReference::AwsSsm { name } => {
                let place = CacheKey::AwsParameter(name.clone());
                asked.document(place, settings).await
            }
            SecretReference::Env(_)
            | SecretReference::File(_)
            | SecretReference::Sops { .. }
            | SecretReference::Dotenv { .. }
            | SecretReference::Command(_) => Err(SecretError::NoValue {
                origin: "a service".to_owned(),
            }),
        }
    }
}

impl SourceCache {
    async fn document(
        &mut self,
        place: CacheKey,
        settings: Settings<'_>,
    ) -> Result<Secret, SecretError> {
        if let Some(known) = self.documents.get(&place) {
            return Ok(known.clone());
        }
        let document = match &place {
            CacheKey::Vault { mount, path } => {
                let vault = match &mut self.vault {
                    Some(vault) => vault,
                    none => none.insert(VaultClient::log_in(settings).await?),
                };
                vault.read(mount, path).await?
            }
            CacheKey::Azure {
                vault,
                name,
                version,
            } => {
                let azure = match &mut self.azure {
                    Some(azure) => azure,
                    none => none.insert(AzureClient::new(settings)?),
                };
                azure
                    .read(settings, vault, name, version.as_deref())
                    .await?
            }
            CacheKey::AwsSecret(name) => self.aws(settings).await?.secret(settings, name).await?,
            CacheKey::AwsParameter(name) => {
                self.aws(settings).await?.parameter(settings, name).await?
            }
        };
        self.documents.insert(place, document.clone());
        Ok(document)
    }

    async fn aws(&mut self, settings: Settings<'_>) -> Result<&AwsClient, SecretError> {
        match &mut self.aws {
            Some(aws) => Ok(aws),
            none => Ok(none.insert(AwsClient::log_in(settings).await?)),
        }
    }
}

impl fmt::Debug for SecretSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sources")
    }
}

/// One field of a document: by its name, else along the dots of the key. A value that is not a string is returned
/// as JSON.
fn field(document: &Secret, key: &str, place: &str) -> Result<Secret, SecretError> {
    let missing = || SecretError::NoField {
        place: place.to_owned(),
        key: key.to_owned(),
    };
    let mut rest = key;
    let mut text = document.expose();
    loop {
        let fields: BTreeMap<String, &RawValue> =
            serde_json::from_str(text).map_err(|_| SecretError::NoFields {
                place: place.to_owned(),
                key: key.to_owned(),
            })?;
        if let Some(found) = fields.get(rest) {
            text = found.get();
            break;
        }
        let (first, after) = rest.split_once('.').ok_or_else(missing)?;
        text = fields.get(first).ok_or_else(missing)?.get();
        rest = after;
    }
    let origin = format!("`{place}#{key}`");
    match text {
        "null" => Err(SecretError::NoValue { origin }),
        quoted if quoted.starts_with('"') => {
            let text: String = serde_json::from_str(quoted).map_err(|_| missing())?;
            local::text(zeroize::Zeroizing::new(text).as_bytes(), &origin)
        }
        other => local::text(other.as_bytes(), &origin),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(document: &str, key: &str, expected: &str) {
        let seen = match field(&Secret::new(document), key, "vault:kv/app") {
            Ok(secret) => format!("= {}", secret.expose()),
            Err(err) => err.to_string(),
        };
        assert_eq!(seen, expected);
    }

    #[test]
    fn fields_by_name_and_by_path() {
        let document = r#"{"a":"x\ny","a.b":1,"c":{"d":{"e":true}},"n":null,"z":""}"#;
        check(document, "a", "= x\ny");
        check(document, "a.b", "= 1");
        check(document, "c.d.e", "= true");
        check(document, "c.d", r#"= {"e":true}"#);
        check(document, "c.x", "`vault:kv/app` has no `c.x`");
        check(document, "n", "the secret from `vault:kv/app#n` is empty");
        check(document, "z", "the secret from `vault:kv/app#z` is empty");
        check(
            "hunter2",
            "a",
            "cannot read `a` of `vault:kv/app`: it is not a JSON object",
        );
    }
}
