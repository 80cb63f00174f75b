//! Converts the value of a rule to answers. A value of an unknown form is an error, so that a misread policy does not
//! pass.

use aho_corasick::{AhoCorasick, MatchKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::RuleKind;

/// Longer messages are truncated.
const MAX_MESSAGE: usize = 400;
/// Further answers of one rule are only counted.
const MAX_ANSWERS: usize = 100;

/// The allowed fields of an object that requires approvals.
const FIELDS: [&str; 6] = ["msg", "message", "resource", "address", "count", "role"];

/// One answer of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleResult {
    pub rule: RuleKind,
    pub message: String,
    pub resource: Option<String>,
    /// The number of required approvals; zero for other rules.
    pub count: u32,
    pub role: Option<String>,
}

/// Why a value is not a valid answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleResultError {
    #[error("rule `{rule}` returns {seen}, not messages")]
    Shape {
        rule: &'static str,
        seen: &'static str,
    },
    #[error("rule `{rule}` returns an object without `msg`")]
    NoMessage { rule: &'static str },
    #[error(
        "rule `{rule}` requires `{seen}` approvals: `count` must be a whole number from 1 to 100"
    )]
    Count { rule: &'static str, seen: String },
    #[error("rule `{rule}` requires approvals by `{seen}`: `role` must be the name of one role")]
    Role { rule: &'static str, seen: String },
    #[error(
        "rule `{rule}` returns the unknown field `{field}`: the fields are `msg`, `resource`, `count` and `role`"
    )]
    Field { rule: &'static str, field: String },
}

/// The addresses of a plan, for finding them in messages.
pub struct AddressFinder {
    finder: Option<AhoCorasick>,
    addresses: Vec<String>,
}

impl AddressFinder {
    /// The addresses that a plan changes.
    pub fn of(plan: &Value) -> Self {
        let changes = plan["resource_changes"].as_array();
        let addresses: Vec<String> = changes
            .into_iter()
            .flatten()
            .filter(|change| {
                change["change"]["actions"]
                    .as_array()
                    .is_none_or(|actions| actions.iter().any(|action| action != "no-op"))
            })
            .filter_map(|change| change["address"].as_str())
            .filter(|address| !address.is_empty())
            .map(str::to_owned)
            .collect();
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(&addresses);
        Self {
            finder: finder.ok().filter(|_| !addresses.is_empty()),
            addresses,
        }
    }

    fn first_in(&self, text: &str) -> Option<String> {
        let found = self.finder.as_ref()?.find(text)?;
        self.addresses.get(found.pattern().as_usize()).cloned()
    }
}

impl RuleKind {
    /// The answers in a rule's value, and the number of further ones. The value is `None` if the rule is undefined for
    /// this input. `approvals` is the number of approvals so far.
    pub fn answers(
        self,
        value: Option<&Value>,
        mentions: &AddressFinder,
        approvals: usize,
    ) -> Result<(Vec<RuleResult>, usize), RuleResultError> {
        if self == Self::Approve {
            return Ok((self.approve(value, approvals).into_iter().collect(), 0));
        }
        let value = match value {
            None | Some(Value::Null | Value::Bool(false)) => return Ok((Vec::new(), 0)),
            Some(value) => value,
        };
        let items: Vec<Value> = match value {
            Value::Array(items) => items.clone(),
            // `deny[msg] := true`: the keys are the messages.
            Value::Object(fields)
                if !fields.contains_key("msg")
                    && !fields.contains_key("message")
                    && fields.values().all(|field| field == &Value::Bool(true)) =>
            {
                fields.keys().cloned().map(Value::String).collect()
            }
            one => vec![one.clone()],
        };
        let left_off = items.len().saturating_sub(MAX_ANSWERS);
        let answers: Result<Vec<RuleResult>, RuleResultError> = items
            .iter()
            .take(MAX_ANSWERS)
            .map(|item| self.answer(item, mentions))
            .collect();
        Ok((answers?, left_off))
    }

    /// Only `true` approves. Undefined or any other value requires one more approval.
    fn approve(self, value: Option<&Value>, approvals: usize) -> Option<RuleResult> {
        if value == Some(&Value::Bool(true)) {
            return None;
        }
        let count = u32::try_from(approvals)
            .unwrap_or(u32::MAX)
            .saturating_add(1);
        Some(RuleResult {
            count,
            ..self.plain("it is not approved yet")
        })
    }

    fn answer(self, item: &Value, mentions: &AddressFinder) -> Result<RuleResult, RuleResultError> {
        let rule = self.as_str();
        let shape = |seen| Err(RuleResultError::Shape { rule, seen });
        let fields = match item {
            Value::String(message) => {
                let mut answer = self.plain(message);
                answer.resource = mentions.first_in(message);
                return Ok(answer);
            }
            Value::Bool(true) => return Ok(self.plain("it gives no reason")),
            Value::Object(fields) => fields,
            Value::Null => return shape("null"),
            Value::Bool(false) => return shape("`false` among its messages"),
            Value::Number(_) => return shape("a number"),
            Value::Array(_) => return shape("a list in a list"),
        };
        let text = |names: &[&str]| {
            let mut found = names.iter().filter_map(|name| fields.get(*name)?.as_str());
            found.next().map(str::to_owned)
        };
        let message = text(&["msg", "message"]).ok_or(RuleResultError::NoMessage { rule })?;
        let unknown = fields.keys().find(|name| !FIELDS.contains(&name.as_str()));
        if let (Self::RequireApproval, Some(field)) = (self, unknown) {
            // A misread requirement would demand less. A denial stays one, whatever its other fields are.
            let field = field.clone();
            return Err(RuleResultError::Field { rule, field });
        }
        let resource = text(&["resource", "address"]).or_else(|| mentions.first_in(&message));
        let count = match fields.get("count") {
            None => 1,
            Some(seen) => seen
                .as_u64()
                .filter(|count| (1..=100).contains(count))
                .and_then(|count| u32::try_from(count).ok())
                .ok_or_else(|| RuleResultError::Count {
                    rule,
                    seen: seen.to_string(),
                })?,
        };
        let role = match fields.get("role") {
            None | Some(Value::Null) => None,
            Some(Value::String(role)) if !role.trim().is_empty() => Some(role.clone()),
            Some(_) if self != Self::RequireApproval => None,
            Some(seen) => {
                let seen = seen.to_string();
                return Err(RuleResultError::Role { rule, seen });
            }
        };
        Ok(RuleResult {
            resource,
            count,
            role,
            ..self.plain(&message)
        })
    }

    fn plain(self, message: &str) -> RuleResult {
        let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
        let cut = match message.char_indices().nth(MAX_MESSAGE) {
            Some((end, _)) => format!("{}…", &message[..end]),
            None => message,
        };
        RuleResult {
            rule: self,
            message: cut,
            resource: None,
            count: 1,
            role: None,
        }
    }
}
