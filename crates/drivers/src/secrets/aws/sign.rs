//! AWS Signature Version 4, for requests to the root path of a host.

use std::fmt::Write as _;

use aws_lc_rs::{digest, hmac};
use model::base::secret::Secret;

use super::login::Credentials;

/// What is signed, besides the time and the session.
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    pub(super) host: &'a str,
    /// In lower case.
    pub(super) headers: &'a [(&'a str, &'a str)],
    pub(super) body: &'a str,
}

impl Request<'_> {
    /// The value of `Authorization`; `time` looks like `20150830T123600Z`.
    pub(super) fn sign(
        &self,
        keys: &Credentials,
        region: &str,
        service: &str,
        time: &str,
    ) -> Secret {
        let mut headers = self.headers.to_vec();
        headers.extend([("host", self.host), ("x-amz-date", time)]);
        if let Some(token) = &keys.session {
            headers.push(("x-amz-security-token", token.expose()));
        }
        headers.sort_unstable();
        let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let mut canonical = format!("{}\n/\n\n", self.method);
        for (name, value) in &headers {
            // Writing to a string cannot fail.
            let _ = writeln!(canonical, "{name}:{}", value.trim());
        }
        let _ = write!(canonical, "\n{names}\n{}", digest_of(self.body));
        let day = time.get(..8).unwrap_or_default();
        let scope = format!("{day}/{region}/{service}/aws4_request");
        let text = format!(
            "AWS4-HMAC-SHA256\n{time}\n{scope}\n{}",
            digest_of(&canonical)
        );
        let first = Secret::new(format!("AWS4{}", keys.secret.expose()));
        let mut key = tag(first.expose().as_bytes(), day);
        for part in [region, service, "aws4_request", &text] {
            key = tag(key.as_ref(), part);
        }
        Secret::new(format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={}",
            keys.id,
            hex(key.as_ref())
        ))
    }
}

/// The host of an address, with its port if it is not the default.
pub(super) fn host_of(address: &str) -> &str {
    let (_, rest) = address.split_once("://").unwrap_or(("", address));
    let host = rest.split('/').next().unwrap_or_default();
    match address.split_once("://") {
        Some(("https", _)) => host.strip_suffix(":443").unwrap_or(host),
        _ => host.strip_suffix(":80").unwrap_or(host),
    }
}

fn tag(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
}

fn digest_of(text: &str) -> String {
    hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the test suite that AWS publishes.
    #[test]
    fn signatures_are_those_of_aws() {
        let keys = Credentials {
            id: "AKIDEXAMPLE".to_owned(),
            secret: Secret::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
            session: None,
        };
        let sign = |method| {
            let request = Request {
                method,
                host: "example.amazonaws.com",
                headers: &[],
                body: "",
            };
            let signed = request.sign(&keys, "us-east-1", "service", "20150830T123600Z");
            signed.expose().to_owned()
        };
        let expected = |signature| {
            format!(
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
                 SignedHeaders=host;x-amz-date, Signature={signature}"
            )
        };
        assert_eq!(
            sign("GET"),
            expected("5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31")
        );
        assert_eq!(
            sign("POST"),
            expected("5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b")
        );
    }

    #[test]
    fn hosts_are_written_as_they_are_sent() {
        assert_eq!(
            host_of("https://ssm.eu-west-1.amazonaws.com"),
            "ssm.eu-west-1.amazonaws.com"
        );
        assert_eq!(host_of("https://ssm.example.io:443"), "ssm.example.io");
        assert_eq!(host_of("http://127.0.0.1:5000"), "127.0.0.1:5000");
    }
}
