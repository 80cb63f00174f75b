//! AWS Secrets Manager and the Parameter Store of Systems Manager. Requests are signed here: two calls do not
//! justify an SDK.

mod login;
mod sign;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::base::secret::Secret;
use serde::Deserialize;
use serde_json::json;
use zeroize::Zeroizing;

use super::http::{Call, Exchange, Settings, failed};
use super::{ExchangeError, SecretError, local};
use login::Credentials;

const JSON: &str = "application/x-amz-json-1.1";

/// A client with credentials.
pub(super) struct AwsClient {
    exchange: Exchange,
    credentials: Credentials,
}

struct Service {
    /// The name used for signing, and the prefix of the host.
    name: &'static str,
    endpoint_variable: &'static str,
    operation: &'static str,
}

const SECRETS: Service = Service {
    name: "secretsmanager",
    endpoint_variable: "AWS_ENDPOINT_URL_SECRETS_MANAGER",
    operation: "secretsmanager.GetSecretValue",
};

const PARAMETERS: Service = Service {
    name: "ssm",
    endpoint_variable: "AWS_ENDPOINT_URL_SSM",
    operation: "AmazonSSM.GetParameter",
};

impl AwsClient {
    pub(super) async fn log_in(settings: Settings<'_>) -> Result<Self, SecretError> {
        let exchange = Exchange::new(settings, "AWS_CA_BUNDLE");
        let exchange = exchange.map_err(failed("reach AWS", |_| None))?;
        let credentials = login::log_in(&exchange, settings).await?;
        Ok(Self {
            exchange,
            credentials,
        })
    }

    /// The text of a secret's current version.
    pub(super) async fn secret(
        &self,
        settings: Settings<'_>,
        name: &str,
    ) -> Result<Secret, SecretError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct SecretResponse {
            secret_string: Option<Secret>,
            secret_binary: Option<Secret>,
        }
        let region = region_of(settings, name)?;
        let body = json!({"SecretId": name});
        let action = format!("read the secret `{name}` of AWS Secrets Manager");
        let read = self
            .ask::<SecretResponse>(settings, &SECRETS, &region, &body.to_string())
            .await;
        let answer = read.map_err(failed(action, |err| {
            remedy(err, "secretsmanager:GetSecretValue", &region)
        }))?;
        let origin = format!("`aws-secretsmanager:{name}`");
        match (answer.secret_string, answer.secret_binary) {
            (Some(text), _) => local::text(text.expose().as_bytes(), &origin),
            (None, Some(binary)) => {
                let bytes = STANDARD.decode(binary.expose()).unwrap_or_default();
                local::text(&Zeroizing::new(bytes), &origin)
            }
            (None, None) => Err(SecretError::NoValue { origin }),
        }
    }

    /// The decrypted value of a parameter.
    pub(super) async fn parameter(
        &self,
        settings: Settings<'_>,
        name: &str,
    ) -> Result<Secret, SecretError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct ParameterResponse {
            parameter: Parameter,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Parameter {
            value: Secret,
        }
        let region = region_of(settings, name)?;
        let body = json!({"Name": name, "WithDecryption": true});
        let action = format!("read the parameter `{name}` of AWS Systems Manager");
        let read = self
            .ask::<ParameterResponse>(settings, &PARAMETERS, &region, &body.to_string())
            .await;
        let answer = read.map_err(failed(action, |err| {
            remedy(err, "ssm:GetParameter", &region)
        }))?;
        let value = answer.parameter.value;
        local::text(value.expose().as_bytes(), &format!("`aws-ssm:{name}`"))
    }

    async fn ask<T: for<'a> Deserialize<'a>>(
        &self,
        settings: Settings<'_>,
        service: &Service,
        region: &str,
        body: &str,
    ) -> Result<T, ExchangeError> {
        let endpoint = endpoint(settings, service.endpoint_variable, service.name, region);
        let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
        let headers = [("content-type", JSON), ("x-amz-target", service.operation)];
        let signed = sign::Request {
            method: "POST",
            host: sign::host_of(&endpoint),
            headers: &headers,
            body,
        };
        let keys = &self.credentials;
        let authorization = signed.sign(keys, region, service.name, &time.to_string());
        let mut call = Call::post(format!("{endpoint}/"), JSON, Secret::new(body))
            .header("x-amz-target", service.operation)
            .header("x-amz-date", time.to_string())
            .secret_header("authorization", authorization)
            .hiding([&keys.secret]);
        if let Some(token) = &keys.session {
            call = call.secret_header("x-amz-security-token", token.clone());
        }
        self.exchange.send(call).await?.read()
    }
}

/// The address of a service: from the environment, else that of the region.
fn endpoint(settings: Settings<'_>, variable: &str, service: &str, region: &str) -> String {
    if let Some(endpoint) = settings.any(&[variable, "AWS_ENDPOINT_URL"]) {
        return endpoint.trim_end_matches('/').to_owned();
    }
    let domain = if region.starts_with("cn-") {
        "amazonaws.com.cn"
    } else {
        "amazonaws.com"
    };
    format!("https://{service}.{region}.{domain}")
}

/// The region in an ARN, else the caller's.
fn region_of(settings: Settings<'_>, name: &str) -> Result<String, SecretError> {
    let mut parts = name.split(':');
    if parts.next() == Some("arn") {
        // arn:PARTITION:SERVICE:REGION:…
        if let Some(region) = parts.nth(2).filter(|region| is_region(region)) {
            return Ok(region.to_owned());
        }
    }
    login::region(settings).ok_or(SecretError::NoPlace {
        who: "AWS",
        name: "AWS_REGION",
    })
}

/// The region becomes part of a host name.
fn is_region(text: &str) -> bool {
    let mut bytes = text.bytes();
    !text.is_empty() && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn remedy(err: &ExchangeError, action: &str, region: &str) -> Option<String> {
    let ExchangeError::Status { status, said, .. } = err else {
        return None;
    };
    let said = said.as_deref().unwrap_or_default();
    if said.contains("NotFound") {
        return Some(format!(
            "is it there, in the region `{region}`? `AWS_REGION` chooses another"
        ));
    }
    let is_refused = said.contains("AccessDenied") || matches!(status, 401 | 403);
    is_refused.then(|| {
        format!("the caller needs `{action}` on it, and `kms:Decrypt` if it has its own key")
    })
}
