//! Backends of the engines, as far as a target's block must know them: which settings are credentials.
//!
//! Settings given by `-backend-config` lie in clear in `.terraform` and in every plan file, so credentials
//! go by environment alone.
//!
//! Not here: the settings themselves; they are the engine's.

/// The environment variable by which the engines take this setting of a backend, if it is a credential.
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

#[cfg(test)]
mod tests {
    use super::*;

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
