//! The input of a policy: one document, in the form that its dialect expects.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Dialect, PolicyPhase};
use crate::plan::PlanCounts;

/// Everything that a policy can read. Its JSON is `input` in `package terrane`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyInput {
    /// The engine's plan JSON with sensitive values replaced.
    pub plan: Value,
    pub run: RunFacts,
    pub actor: ActorFacts,
    pub approvals: Vec<ApprovalFacts>,
    pub stack: StackFacts,
    /// What the same change set does to the stack's upstreams.
    pub upstreams: Vec<UpstreamFacts>,
    pub source: SourceFacts,
    pub time: TimeFacts,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFacts {
    /// `r44`
    pub id: String,
    /// `c42`
    pub change_set: String,
    /// `plan`, `apply` or `destroy`.
    pub action: String,
    /// The evaluation point.
    pub phase: PolicyPhase,
    /// Whether the plan destroys everything.
    pub destroy: bool,
    /// Confirmed in advance.
    pub auto_approve: bool,
    /// Whether the plan is only a preview: some upstream values are not known yet.
    pub preview: bool,
}

/// The person or job that requested the change or, at an approval, gives it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorFacts {
    pub name: String,
    /// `person` or `ci`.
    pub kind: String,
    /// Whether the name is verified.
    pub verified: bool,
    #[serde(default)]
    pub claims: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalFacts {
    pub person: String,
    pub role: Option<String>,
    pub verified: bool,
    /// `approve` or `reject`.
    pub verdict: String,
    pub comment: Option<String>,
    pub at: Timestamp,
}

impl ActorFacts {
    /// An unverified person.
    pub fn person(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind: "person".to_owned(),
            ..Self::default()
        }
    }
}

impl ApprovalFacts {
    pub fn approves(&self) -> bool {
        self.verdict == "approve"
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackFacts {
    pub name: String,
    pub path: String,
    pub layer: String,
    pub target: String,
    pub labels: BTreeSet<String>,
    /// The name of its state.
    pub state: String,
    pub protected: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamFacts {
    pub stack: String,
    /// `planned`, `applied`, `unchanged` and so on.
    pub status: String,
    /// The outputs that this stack consumes.
    pub outputs: BTreeSet<String>,
    pub counts: PlanCounts,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFacts {
    pub commit: Option<String>,
    /// The first line of the commit's message.
    pub subject: Option<String>,
    pub dirty: bool,
    pub digest: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeFacts {
    pub now: Timestamp,
}

impl From<Timestamp> for TimeFacts {
    fn from(now: Timestamp) -> Self {
        Self { now }
    }
}

impl PolicyInput {
    /// `input` in the form of a dialect. In foreign dialects, terrane's own document is in `input.terrane`.
    pub fn for_dialect(&self, dialect: Dialect) -> Value {
        match dialect {
            Dialect::Terrane => json!(self),
            Dialect::Conftest => {
                let mut input = self.plan.clone();
                if let Value::Object(fields) = &mut input {
                    fields.insert("terrane".to_owned(), self.without_plan());
                }
                input
            }
            Dialect::Spacelift => self.as_spacelift(),
        }
    }

    fn without_plan(&self) -> Value {
        let bare = Self {
            plan: Value::Null,
            ..self.clone()
        };
        let mut document = json!(bare);
        if let Value::Object(fields) = &mut document {
            fields.remove("plan");
        }
        document
    }

    /// For a plan policy `terraform` and `spacelift`, for an approval policy `run`, `stack` and `reviews`, as far as
    /// terrane has corresponding data.
    fn as_spacelift(&self) -> Value {
        let author = json!({
            "login": self.actor.name,
            "name": self.actor.name,
            "machine": self.actor.kind == "ci",
            "admin": false,
            "teams": [],
        });
        let tracked = self.run.action != "plan";
        let run = json!({
            "id": self.run.id,
            "type": if self.run.destroy && tracked { "DESTROY" } else if tracked { "TRACKED" } else { "PROPOSED" },
            "state": if self.run.phase == PolicyPhase::Plan { "PLANNING" } else { "UNCONFIRMED" },
            "changes": self.changes(),
            "commit": self.commit(),
            "creator_session": author,
            "triggered_by": self.actor.name,
            "created_at": nanoseconds(self.time.now),
        });
        let stack = json!({
            "id": self.stack.name,
            "name": self.stack.name,
            "labels": self.stack.labels,
            "project_root": self.stack.path,
            "administrative": false,
            "autodeploy": self.run.auto_approve,
        });
        json!({
            "terraform": self.plan,
            "spacelift": {
                "run": run,
                "stack": stack,
                "commit": self.commit(),
                "request": { "timestamp_ns": nanoseconds(self.time.now) },
            },
            "run": run,
            "stack": stack,
            "reviews": {
                "current": {
                    "approvals": self.reviews("approve"),
                    "rejections": self.reviews("reject"),
                },
                "older": { "approvals": [], "rejections": [] },
            },
            "terrane": self.without_plan(),
        })
    }

    fn commit(&self) -> Value {
        json!({ "hash": self.source.commit, "message": self.source.subject })
    }

    fn reviews(&self, verdict: &str) -> Vec<Value> {
        let given = self.approvals.iter().filter(|it| it.verdict == verdict);
        given
            .map(|it| {
                json!({
                    "author": it.person,
                    "session": { "login": it.person, "teams": it.role.iter().collect::<Vec<_>>() },
                    "state": if it.approves() { "APPROVED" } else { "REJECTED" },
                    "note": it.comment,
                })
            })
            .collect()
    }

    fn changes(&self) -> Vec<Value> {
        let changes = self.plan["resource_changes"].as_array();
        changes
            .into_iter()
            .flatten()
            .filter_map(|change| {
                let actions = change["change"]["actions"].as_array()?;
                let words: Vec<&str> = actions.iter().filter_map(Value::as_str).collect();
                let action = match words.as_slice() {
                    ["create"] => "added",
                    ["update"] => "changed",
                    ["delete"] => "deleted",
                    ["delete", "create"] => "destroy-Before-create-replaced",
                    ["create", "delete"] => "create-Before-destroy-replaced",
                    _ => return None,
                };
                Some(json!({
                    "action": action,
                    "entity": {
                        "address": change["address"],
                        "name": change["name"],
                        "type": change["type"],
                        "entity_type": "resource",
                        "entity_vendor": "terraform",
                        "data": { "values": change["change"]["after"] },
                    },
                }))
            })
            .collect()
    }
}

fn nanoseconds(at: Timestamp) -> i64 {
    i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX)
}
