//! Errors of a bucket's service, shortened: services answer with a page of XML.

use std::fmt;

/// An error that a service returned.
#[derive(Debug)]
pub struct BucketError(pub(crate) object_store::Error);

/// The cause, if a person can fix it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketFault {
    /// The bucket or container does not exist.
    NoBucket,
    /// The credentials are not accepted.
    Credentials,
}

/// How services name it.
const NO_BUCKET: [&str; 4] = [
    "NoSuchBucket",
    "ContainerNotFound",
    "InvalidBucketName",
    "The specified bucket does not exist",
];
const CREDENTIALS: [&str; 6] = [
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "AccessDenied",
    "AuthenticationFailed",
    "AuthorizationFailure",
    "InvalidTokenId",
];

impl BucketError {
    pub fn fault(&self) -> Option<BucketFault> {
        let words = self.0.to_string();
        if NO_BUCKET.iter().any(|sign| words.contains(sign)) {
            return Some(BucketFault::NoBucket);
        }
        let is_refused = matches!(
            self.0,
            object_store::Error::PermissionDenied { .. }
                | object_store::Error::Unauthenticated { .. }
        ) || CREDENTIALS.iter().any(|sign| words.contains(sign));
        is_refused.then_some(BucketFault::Credentials)
    }
}

impl BucketError {
    /// Whether these credentials may not do this.
    pub(crate) fn is_refused(&self) -> bool {
        self.fault() == Some(BucketFault::Credentials)
    }
}

impl fmt::Display for BucketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match short(&self.0.to_string()) {
            Some(words) => f.write_str(&words),
            None => self.0.fmt(f),
        }
    }
}

impl std::error::Error for BucketError {}

/// The code and the message of an XML error page; `None` if it is not one.
fn short(words: &str) -> Option<String> {
    let within = |name: &str| {
        let (_, rest) = words.split_once(&format!("<{name}>"))?;
        Some(rest.split_once(&format!("</{name}>"))?.0.trim())
    };
    let code = within("Code")?;
    Some(match within("Message") {
        Some(message) if !message.is_empty() => {
            let line = message.lines().next().unwrap_or(message);
            format!("the service says `{code}`: {line}")
        }
        _ => format!("the service says `{code}`"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(words: &str) -> BucketError {
        BucketError(object_store::Error::Generic {
            store: "S3",
            source: words.to_owned().into(),
        })
    }

    #[test]
    fn a_page_is_told_in_a_line() {
        let page = "Error performing GET http://127.0.0.1:9000/no?list-type=2 in 3ms - Server returned non-2xx status code: 404 Not Found: <?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message><BucketName>no</BucketName></Error>";
        let trouble = said(page);
        assert_eq!(
            trouble.to_string(),
            "the service says `NoSuchBucket`: The specified bucket does not exist"
        );
        assert_eq!(trouble.fault(), Some(BucketFault::NoBucket));
        let refused = said(
            "403 Forbidden: <Error><Code>InvalidAccessKeyId</Code><Message></Message></Error>",
        );
        assert_eq!(refused.to_string(), "the service says `InvalidAccessKeyId`");
        assert_eq!(refused.fault(), Some(BucketFault::Credentials));
    }

    #[test]
    fn what_is_no_page_stays_as_it_is() {
        let gone = said("connection refused");
        assert!(gone.to_string().ends_with("connection refused"), "{gone}");
        assert_eq!(gone.fault(), None);
    }
}
