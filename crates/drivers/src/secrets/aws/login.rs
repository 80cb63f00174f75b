//! Finds AWS credentials: a role by web identity, then that of the container or the machine, then stored keys. The
//! first configured source is used; if it fails, the next one is not tried.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use model::base::secret::Secret;
use reqwest::Method;
use serde::Deserialize;

use super::super::http::{Call, Exchange, FORM, Settings, element, failed, form};
use super::super::{SecretError, local};
use super::{endpoint, is_region};

const CONTAINER: &str = "http://169.254.170.2";
const METADATA: &str = "http://169.254.169.254";
/// The audience of a job's token.
const AUDIENCE: &str = "sts.amazonaws.com";

const WAYS: &str = "set `AWS_ROLE_ARN`, with `AWS_WEB_IDENTITY_TOKEN_FILE` or in a GitHub job with `id-token: write`; or run where the machine has a role; or set `AWS_PROFILE`, or `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`";

/// Keys, and the session token of temporary ones. No `Debug`: they are secret.
pub(super) struct Credentials {
    pub(super) id: String,
    pub(super) secret: Secret,
    pub(super) session: Option<Secret>,
}

/// The answer of container and instance metadata.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TemporaryCredentials {
    access_key_id: String,
    secret_access_key: Secret,
    token: Option<Secret>,
}

impl From<TemporaryCredentials> for Credentials {
    fn from(lent: TemporaryCredentials) -> Self {
        Self {
            id: lent.access_key_id,
            secret: lent.secret_access_key,
            session: lent.token,
        }
    }
}

pub(super) async fn log_in(
    exchange: &Exchange,
    settings: Settings<'_>,
) -> Result<Credentials, SecretError> {
    if let Some(keys) = by_web_identity(exchange, settings).await? {
        return Ok(keys);
    }
    if let Some(keys) = of_container(exchange, settings).await? {
        return Ok(keys);
    }
    if let Some(keys) = of_machine(exchange, settings).await? {
        return Ok(keys);
    }
    if let Some(keys) = of_profile(settings)? {
        return Ok(keys);
    }
    let id = settings.get("AWS_ACCESS_KEY_ID");
    if let Some((id, secret)) = id.zip(settings.secret("AWS_SECRET_ACCESS_KEY")) {
        return Ok(Credentials {
            id: id.to_owned(),
            secret,
            session: settings.secret("AWS_SESSION_TOKEN"),
        });
    }
    Err(SecretError::NoLogin {
        who: "AWS",
        ways: WAYS,
    })
}

/// The caller's region.
pub(super) fn region(settings: Settings<'_>) -> Option<String> {
    let region = settings.any(&["AWS_REGION", "AWS_DEFAULT_REGION"]);
    let region = region.map(str::to_owned).or_else(|| {
        let profile = settings.get("AWS_PROFILE").unwrap_or("default");
        let path = place(settings, "AWS_CONFIG_FILE", "config")?;
        let mut fields = profile_of(&path, profile).ok()??;
        fields.remove("region").map(|it| it.expose().to_owned())
    });
    region.filter(|region| is_region(region))
}

/// A role in exchange for the token of another issuer.
async fn by_web_identity(
    exchange: &Exchange,
    settings: Settings<'_>,
) -> Result<Option<Credentials>, SecretError> {
    let Some(role) = settings.get("AWS_ROLE_ARN") else {
        return Ok(None);
    };
    let action = format!("take the role `{role}` of AWS");
    let token = if let Some(path) = settings.get("AWS_WEB_IDENTITY_TOKEN_FILE") {
        Some(local::read_file(path, Path::new("/"), None)?)
    } else {
        let job = settings.token_of_github_job(AUDIENCE).await;
        job.map_err(failed(action.clone(), |_| None))?
    };
    let Some(token) = token else {
        return Ok(None);
    };
    let region = region(settings).ok_or(SecretError::NoPlace {
        who: "AWS",
        name: "AWS_REGION",
    })?;
    let session = settings.get("AWS_ROLE_SESSION_NAME").unwrap_or("terrane");
    let body = form(&[
        ("Action", "AssumeRoleWithWebIdentity"),
        ("Version", "2011-06-15"),
        ("RoleArn", role),
        ("RoleSessionName", session),
        ("WebIdentityToken", token.expose()),
    ]);
    let address = endpoint(settings, "AWS_ENDPOINT_URL_STS", "sts", &region);
    let call = Call::post(format!("{address}/"), FORM, body).hiding([&token]);
    let taken = async {
        let answer = exchange.send(call).await?;
        let text = answer.text()?;
        let part = |name| element(text, name).ok_or_else(|| answer.unreadable());
        Ok(Credentials {
            id: part("AccessKeyId")?.to_owned(),
            secret: Secret::new(part("SecretAccessKey")?),
            session: Some(Secret::new(part("SessionToken")?)),
        })
    };
    let remedy = "does the role trust this issuer, audience and subject?";
    let taken = taken.await;
    let taken = taken.map_err(failed(action, |err| {
        err.status().map(|_| remedy.to_owned())
    }))?;
    Ok(Some(taken))
}

/// Credentials that ECS, EKS and similar services provide to a container.
async fn of_container(
    exchange: &Exchange,
    settings: Settings<'_>,
) -> Result<Option<Credentials>, SecretError> {
    let relative = settings.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    let address = match (relative, settings.get("AWS_CONTAINER_CREDENTIALS_FULL_URI")) {
        (Some(relative), _) => format!("{CONTAINER}{relative}"),
        (None, Some(full)) => full.to_owned(),
        (None, None) => return Ok(None),
    };
    let mut call = Call::get(address);
    let token = match settings.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") {
        Some(path) => Some(local::read_file(path, Path::new("/"), None)?),
        None => settings.secret("AWS_CONTAINER_AUTHORIZATION_TOKEN"),
    };
    if let Some(token) = token {
        call = call.secret_header("authorization", token);
    }
    let action = "get the keys of this container from AWS";
    let answer = exchange.ask_nearby(call).await;
    let answer = answer.map_err(failed(action, |_| None))?;
    let Some(answer) = answer else {
        return Err(SecretError::NoLogin {
            who: "AWS: the container's credentials do not answer",
            ways: WAYS,
        });
    };
    let lent = answer
        .read::<TemporaryCredentials>()
        .map_err(failed(action, |_| None))?;
    Ok(Some(lent.into()))
}

/// Credentials that EC2 provides to programs on an instance.
async fn of_machine(
    exchange: &Exchange,
    settings: Settings<'_>,
) -> Result<Option<Credentials>, SecretError> {
    let is_off = settings.get("AWS_EC2_METADATA_DISABLED");
    if is_off.is_some_and(|text| text.eq_ignore_ascii_case("true")) {
        return Ok(None);
    }
    let base = settings.get("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    let base = base.unwrap_or(METADATA).trim_end_matches('/');
    let action = "get the keys of this machine from AWS";
    // Machines of other clouds, and those without a role, also answer here: neither is an error.
    let read = async {
        let ask = Call::new(Method::PUT, format!("{base}/latest/api/token"))
            .header("x-aws-ec2-metadata-token-ttl-seconds", "300");
        let Some(token) = exchange.ask_nearby(ask).await? else {
            return Ok(None);
        };
        let Ok(token) = token.text().map(Secret::new) else {
            return Ok(None);
        };
        let path = format!("{base}/latest/meta-data/iam/security-credentials/");
        let with = |address: String| {
            Call::get(address).secret_header("x-aws-ec2-metadata-token", token.clone())
        };
        let Some(roles) = exchange.ask_nearby(with(path.clone())).await? else {
            return Ok(None);
        };
        let Ok(roles) = roles.text() else {
            return Ok(None);
        };
        let Some(role) = roles.lines().next().filter(|role| !role.trim().is_empty()) else {
            return Ok(None);
        };
        let answer = exchange
            .ask_nearby(with(format!("{path}{}", role.trim())))
            .await?;
        let lent = answer
            .map(|answer| answer.read::<TemporaryCredentials>())
            .transpose()?;
        Ok(lent.map(Credentials::from))
    };
    read.await.map_err(failed(action, |_| None))
}

/// The keys of a profile. A missing profile is an error only if it was named.
fn of_profile(settings: Settings<'_>) -> Result<Option<Credentials>, SecretError> {
    let named = settings.get("AWS_PROFILE");
    let profile = named.unwrap_or("default");
    let Some(path) = place(settings, "AWS_SHARED_CREDENTIALS_FILE", "credentials") else {
        return Ok(None);
    };
    let missing = || SecretError::NoProfile {
        profile: profile.to_owned(),
        path: path.display().to_string(),
    };
    let fields = match profile_of(&path, profile) {
        Ok(fields) => fields.unwrap_or_default(),
        Err(_) if named.is_none() => return Ok(None),
        Err(err) => return Err(err),
    };
    let get = |name: &str| fields.get(name).cloned();
    match (get("aws_access_key_id"), get("aws_secret_access_key")) {
        (Some(id), Some(secret)) => Ok(Some(Credentials {
            id: id.expose().to_owned(),
            secret,
            session: get("aws_session_token"),
        })),
        _ if named.is_none() => Ok(None),
        _ => Err(missing()),
    }
}

fn place(settings: Settings<'_>, variable: &str, name: &str) -> Option<PathBuf> {
    let named = settings.get(variable).map(PathBuf::from);
    named.or_else(|| Some(Path::new(settings.get("HOME")?).join(".aws").join(name)))
}

/// The fields of a profile in an AWS configuration file; `None` if it has no such profile.
fn profile_of(path: &Path, profile: &str) -> Result<Option<BTreeMap<String, Secret>>, SecretError> {
    let text = local::read_file(&path.display().to_string(), Path::new("/"), None)?;
    let mut found = None;
    let mut inside = false;
    for line in text.expose().lines() {
        let line = line.trim();
        if let Some(title) = line.strip_prefix('[').and_then(|it| it.split(']').next()) {
            let title = title.trim();
            let title = title.strip_prefix("profile ").unwrap_or(title);
            inside = title.trim() == profile;
            if inside {
                found.get_or_insert_with(BTreeMap::new);
            }
        } else if let (true, Some((name, value))) = (inside, line.split_once('='))
            && !line.starts_with(['#', ';'])
        {
            let fields = found.get_or_insert_with(BTreeMap::new);
            fields.insert(name.trim().to_owned(), Secret::new(value.trim()));
        }
    }
    Ok(found)
}
