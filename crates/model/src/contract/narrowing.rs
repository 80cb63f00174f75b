//! What a change takes away from those who consume a stack's outputs or facts: a field that is gone, or one that is
//! of another kind than before. A value that changes, and a field that is new, take nothing away.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::planned::escape;
use super::{Planned, kind_of, with_article};

/// One field that offers less than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Narrowed {
    /// Its names from the outside in.
    pub path: Vec<String>,
    pub was: String,
    /// None: it is gone.
    pub now: Option<String>,
}

impl Narrowed {
    /// `azure.envoyPublicIpAddress`
    pub fn field(&self) -> String {
        self.path.join(".")
    }
}

impl fmt::Display for Narrowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = self.field();
        match &self.now {
            None => write!(f, "`{field}` is gone, was {}", self.was),
            Some(now) => write!(f, "`{field}` is {now}, was {}", self.was),
        }
    }
}

/// Compares values as they are with values as they are planned. What is unknown takes nothing away.
pub fn narrowed(before: &Map<String, Value>, after: &Planned) -> Vec<Narrowed> {
    let mut found = Vec::new();
    compare(
        before,
        &after.fields,
        "",
        after,
        &mut Vec::new(),
        &mut found,
    );
    found
}

fn compare(
    before: &Map<String, Value>,
    after: &Map<String, Value>,
    pointer: &str,
    planned: &Planned,
    path: &mut Vec<String>,
    found: &mut Vec<Narrowed>,
) {
    for (name, was) in before {
        let at = format!("{pointer}/{}", escape(name));
        if was.is_null() || planned.is_unknown(&at) {
            continue;
        }
        path.push(name.clone());
        let now = after.get(name).filter(|now| !now.is_null());
        match (was, now) {
            (_, None) => found.push(Narrowed {
                path: path.clone(),
                was: with_article(kind_of(was)),
                now: None,
            }),
            (was, Some(now)) if kind_of(was) != kind_of(now) => found.push(Narrowed {
                path: path.clone(),
                was: with_article(kind_of(was)),
                now: Some(with_article(kind_of(now))),
            }),
            (Value::Object(was), Some(Value::Object(now))) => {
                compare(was, now, &at, planned, path, found);
            }
            (_, Some(_)) => {}
        }
        path.pop();
    }
}
