//! A state lock as the engines describe it.
//!
//! Not here: granting it (`store::state::locks`), and what it protects (`state`).

use std::fmt;

use serde::{Deserialize, Serialize};

/// The seven fields that an engine sends, under their Go names. Additional fields are kept, since the response to a
/// conflict is the holder's complete description.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockInfo {
    #[serde(rename = "ID")]
    pub id: String,
    #[serde(rename = "Operation", default)]
    pub operation: String,
    #[serde(rename = "Info", default)]
    pub info: String,
    #[serde(rename = "Who", default)]
    pub who: String,
    #[serde(rename = "Version", default)]
    pub version: String,
    #[serde(rename = "Created", default)]
    pub created: String,
    #[serde(rename = "Path", default)]
    pub path: String,
    #[serde(flatten)]
    pub other: serde_json::Map<String, serde_json::Value>,
}

/// How often a state was locked. A client with an older number has lost its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LockEpoch(pub i64);

#[derive(Debug, thiserror::Error)]
pub enum ReadLockError {
    #[error("this is not a lock's description")]
    Shape(#[source] serde_json::Error),
    #[error("a lock needs an `ID`")]
    NoId,
    #[error("there is a NUL in it")]
    Nul,
}

impl LockInfo {
    /// Parses the body of a LOCK or UNLOCK request.
    pub fn from_json(body: &[u8]) -> Result<Self, ReadLockError> {
        let info: Self = serde_json::from_slice(body).map_err(ReadLockError::Shape)?;
        if info.id.is_empty() {
            return Err(ReadLockError::NoId);
        }
        // PostgreSQL cannot store text with a NUL character.
        let texts = [&info.id, &info.operation, &info.info, &info.who];
        if texts.iter().any(|text| text.contains('\0')) {
            return Err(ReadLockError::Nul);
        }
        Ok(info)
    }

    pub fn to_json(&self) -> String {
        // Strings and a map of JSON values: serialising cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// A readable name for the operation under a lock.
pub fn operation_words(operation: &str) -> &str {
    match operation {
        "OperationTypeApply" => "apply",
        "OperationTypePlan" => "plan",
        "OperationTypeRefresh" => "refresh",
        "OperationTypeInvalid" => "unknown",
        "state-push" => "state push",
        other => other,
    }
}

impl fmt::Display for LockInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The fields are client input: they must not move the cursor or start a line.
        let who = if self.who.is_empty() {
            "somebody"
        } else {
            &self.who
        };
        write!(f, "{}", who.escape_debug())?;
        if !self.operation.is_empty() {
            write!(f, " ({})", operation_words(&self.operation).escape_debug())?;
        }
        write!(f, ", lock `{}`", self.id.escape_debug())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &str, expected: &str) {
        let seen = match LockInfo::from_json(body.as_bytes()) {
            Ok(info) => info.to_json(),
            Err(err) => format!("error: {err}"),
        };
        assert_eq!(seen, expected);
    }

    #[test]
    fn what_terraform_sends_comes_back_byte_for_byte() {
        let sent = r#"{"ID":"9c3d","Operation":"OperationTypePlan","Info":"","Who":"root@vm","Version":"1.11.4","Created":"2026-11-15T18:52:29.245229756Z","Path":""}"#;
        check(sent, sent);
    }

    #[test]
    fn what_nobody_knows_yet_is_kept() {
        let sent = r#"{"ID":"1","Operation":"","Info":"","Who":"","Version":"","Created":"","Path":"","Cause":{"run":7}}"#;
        check(sent, sent);
    }

    #[test]
    fn what_is_not_a_lock() {
        check("", "error: this is not a lock's description");
        check("[]", "error: this is not a lock's description");
        check("{}", "error: this is not a lock's description");
        check(r#"{"ID":""}"#, "error: a lock needs an `ID`");
        check(r#"{"ID":"a\u0000b"}"#, "error: there is a NUL in it");
    }

    #[test]
    fn people_read_who_holds_it() {
        let info = LockInfo {
            id: "9c3d".to_owned(),
            who: "root@vm".to_owned(),
            operation: "OperationTypeApply".to_owned(),
            ..LockInfo::default()
        };
        assert_eq!(info.to_string(), "root@vm (apply), lock `9c3d`");
    }
}
