//! The engines' backends, as far as a target's block needs them: which settings are credentials.
//!
//! Settings given with `-backend-config` are in clear text in `.terraform` and in every plan file, so
//! credentials are only passed in the environment.
//!
//! Not here: the settings themselves, which the engine checks.

use serde_json::Value;

use crate::base::secret::is_secret_variable;

/// The environment variable that the engines accept for this setting of a backend, if it is a credential.
pub fn credential_variable(kind: &str, setting: &str) -> Option<&'static str> {
    let known: &[(&str, &str)] = match kind {
        "s3" => &[
            ("access_key", "AWS_ACCESS_KEY_ID"),
            ("secret_key", "AWS_SECRET_ACCESS_KEY"),
            ("token", "AWS_SESSION_TOKEN"),
            ("sse_customer_key", "AWS_SSE_CUSTOMER_KEY"),
        ],
        "azurerm" => &[
            ("access_key", "ARM_ACCESS_KEY"),
            ("sas_token", "ARM_SAS_TOKEN"),
            ("client_secret", "ARM_CLIENT_SECRET"),
            (
                "client_certificate_password",
                "ARM_CLIENT_CERTIFICATE_PASSWORD",
            ),
            ("oidc_token", "ARM_OIDC_TOKEN"),
            ("oidc_request_token", "ARM_OIDC_REQUEST_TOKEN"),
        ],
        "gcs" => &[
            ("credentials", "GOOGLE_BACKEND_CREDENTIALS"),
            ("access_token", "GOOGLE_OAUTH_ACCESS_TOKEN"),
            ("encryption_key", "GOOGLE_ENCRYPTION_KEY"),
        ],
        "pg" => &[("conn_str", "PG_CONN_STR")],
        "http" => &[
            ("username", "TF_HTTP_USERNAME"),
            ("password", "TF_HTTP_PASSWORD"),
            ("client_private_key_pem", "TF_HTTP_CLIENT_PRIVATE_KEY_PEM"),
        ],
        _ => &[],
    };
    known
        .iter()
        .find(|(name, _)| *name == setting)
        .map(|(_, variable)| *variable)
}

/// How to cope with the single environment that an engine has for its backend and its providers.
pub fn one_environment(kind: &str, setting: &str) -> String {
    let begin = format!(
        "an engine has one environment: without `{setting}` in the block the backend takes the context's"
    );
    match kind {
        "s3" => format!(
            "{begin}; `profile` and `shared_credentials_files` in the block give it credentials of its own"
        ),
        "azurerm" => format!(
            "{begin}; `access_key` or `sas_token` in the block give it one that providers do not look at"
        ),
        "gcs" => format!(
            "{begin}; `credentials` in the block give it some that providers do not look at"
        ),
        _ => begin,
    }
}

/// How to pass a credential of `http` without storing it.
pub const BY_ENVIRONMENT: &str =
    "`username` and `password` of the block reach the engine by its environment alone";

/// Whether a setting without an environment variable contains a credential, which would be in clear text in
/// `.terraform`.
pub fn in_clear(kind: &str, setting: &str, value: &Value) -> bool {
    match (kind, setting, value) {
        ("http", "headers", Value::Object(headers)) => {
            headers.keys().any(|name| is_credential_header(name))
        }
        ("http", "address" | "lock_address" | "unlock_address", Value::String(address)) => {
            let rest = address.split_once("://").map_or("", |(_, rest)| rest);
            let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
            host.contains('@')
        }
        _ => false,
    }
}

fn is_credential_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["authorization", "proxy-authorization", "cookie"].contains(&name.as_str())
        || is_secret_variable(&name.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_would_lie_in_clear() {
        let header = |name: &str| in_clear("http", "headers", &json!({ name: "x" }));
        assert!(header("Authorization") && header("PRIVATE-TOKEN") && header("X-Api-Key"));
        assert!(!header("X-Environment"));
        let address = |text: &str| in_clear("http", "address", &json!(text));
        assert!(address("https://u:p@h/a") && address("http://u@h"));
        assert!(!address("https://h/a@b") && !address("https://h?x=a@b"));
    }

    #[test]
    fn credentials_go_by_environment_and_names_do_not() {
        assert_eq!(
            credential_variable("s3", "secret_key"),
            Some("AWS_SECRET_ACCESS_KEY")
        );
        assert_eq!(credential_variable("pg", "conn_str"), Some("PG_CONN_STR"));
        assert_eq!(credential_variable("s3", "bucket"), None);
        assert_eq!(credential_variable("local", "path"), None);
    }
}
