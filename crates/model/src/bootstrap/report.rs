//! What came of a bootstrap: kept with the run, shown to people. Never a secret.

use serde::{Deserialize, Serialize};

use crate::kubernetes::ObjectRef;

/// One `bootstrap` block, step by step. The last step may have failed; what would have followed is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootstrapReport {
    /// `argocd`, `flux` or `command`.
    pub kind: String,
    pub steps: Vec<StepReport>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepReport {
    pub title: String,
    #[serde(flatten)]
    pub end: StepEnd,
    pub took_ms: u64,
    /// What was done with objects that are not as they were.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ObjectReport>,
    /// How many objects were already as they should be.
    #[serde(default)]
    pub same: usize,
    /// What was seen: a version, a digest, the state of what is waited for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "kebab-case")]
pub enum StepEnd {
    Done,
    Failed {
        why: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectReport {
    pub object: ObjectRef,
    #[serde(flatten)]
    pub outcome: ObjectOutcome,
}

/// What became of an object that the project has a manifest of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum ObjectOutcome {
    Created,
    Changed,
    Same,
    /// Fields that Helm or a person had set are ours now.
    Adopted {
        from: Vec<String>,
    },
    /// Others hold fields of it with other values: left as it is.
    HandedOver {
        managers: Vec<String>,
        fields: Vec<String>,
    },
    /// It is not there, and whoever has the others by now is left to decide that.
    LeftOut {
        to: String,
    },
    /// Taken back from others, because a person said so.
    TakenBack {
        managers: Vec<String>,
        fields: Vec<String>,
    },
}

impl BootstrapReport {
    /// Why it did not get to its end.
    pub fn failure(&self) -> Option<(&StepReport, &str)> {
        let last = self.steps.last()?;
        match &last.end {
            StepEnd::Done => None,
            StepEnd::Failed { why, .. } => Some((last, why)),
        }
    }

    pub fn is_done(&self) -> bool {
        self.failure().is_none()
    }

    /// Whether anything in the cluster is other than before.
    pub fn has_changed(&self) -> bool {
        let mut objects = self.steps.iter().flat_map(|step| &step.objects);
        objects.any(|object| object.outcome.is_change())
    }

    pub fn handed_over(&self) -> impl Iterator<Item = &ObjectReport> {
        let objects = self.steps.iter().flat_map(|step| &step.objects);
        objects.filter(|object| {
            matches!(
                object.outcome,
                ObjectOutcome::HandedOver { .. } | ObjectOutcome::LeftOut { .. }
            )
        })
    }
}

impl StepReport {
    /// In one line: `3 created, 57 as they were`.
    pub fn brief(&self) -> String {
        let count = |fits: fn(&ObjectOutcome) -> bool| {
            let objects = self.objects.iter();
            objects.filter(|object| fits(&object.outcome)).count()
        };
        let parts = [
            (count(|it| matches!(it, ObjectOutcome::Created)), "created"),
            (count(|it| matches!(it, ObjectOutcome::Changed)), "changed"),
            (
                count(|it| matches!(it, ObjectOutcome::Adopted { .. })),
                "adopted",
            ),
            (
                count(|it| matches!(it, ObjectOutcome::TakenBack { .. })),
                "taken back",
            ),
            (
                count(|it| {
                    matches!(
                        it,
                        ObjectOutcome::HandedOver { .. } | ObjectOutcome::LeftOut { .. }
                    )
                }),
                "handed over",
            ),
            (self.same, "as they were"),
        ];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{count} {word}"))
            .collect();
        if parts.is_empty() {
            return self.notes.first().cloned().unwrap_or_default();
        }
        parts.join(", ")
    }
}

impl ObjectOutcome {
    pub fn is_change(&self) -> bool {
        match self {
            Self::Created | Self::Changed | Self::Adopted { .. } | Self::TakenBack { .. } => true,
            Self::Same | Self::HandedOver { .. } | Self::LeftOut { .. } => false,
        }
    }

    /// Whether somebody else has, or had, a part in it.
    pub fn concerns_others(&self) -> bool {
        match self {
            Self::Adopted { .. }
            | Self::HandedOver { .. }
            | Self::LeftOut { .. }
            | Self::TakenBack { .. } => true,
            Self::Created | Self::Changed | Self::Same => false,
        }
    }
}

impl std::fmt::Display for ObjectOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Created => f.write_str("created"),
            Self::Changed => f.write_str("changed"),
            Self::Same => f.write_str("as it was"),
            Self::Adopted { from } => write!(f, "adopted from {}", from.join(", ")),
            Self::HandedOver { managers, fields } => write!(
                f,
                "handed over to {}, which holds {}",
                managers.join(", "),
                some(fields)
            ),
            Self::LeftOut { to } => write!(f, "not there, left to {to}"),
            Self::TakenBack { managers, fields } => {
                write!(
                    f,
                    "taken back from {}: {}",
                    managers.join(", "),
                    some(fields)
                )
            }
        }
    }
}

/// The first few: an object may have hundreds of fields.
fn some(fields: &[String]) -> String {
    const SHOWN: usize = 3;
    let text = fields
        .iter()
        .take(SHOWN)
        .map(|field| format!("`{field}`"))
        .collect::<Vec<_>>()
        .join(", ");
    if fields.len() > SHOWN {
        return format!("{text} and {} more", fields.len() - SHOWN);
    }
    text
}
