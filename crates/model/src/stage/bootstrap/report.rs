//! The result of a bootstrap, stored with the run and shown to people. It never contains a secret.

use serde::{Deserialize, Serialize};

use crate::stage::kubernetes::ObjectRef;

/// One `bootstrap` block, step by step. The last step may have failed; later steps are not listed.
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
    /// What was done with objects that changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ObjectReport>,
    /// The number of objects that needed no change.
    #[serde(default)]
    pub same: usize,
    /// Observations: a version, a digest, the status of what is waited for.
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

/// What happened to an object for which the project has a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum ObjectOutcome {
    Created,
    Changed,
    Same,
    /// Took over fields that Helm or a person had set.
    Adopted {
        from: Vec<String>,
    },
    /// Others manage fields with other values, so the object was left unchanged.
    HandedOver {
        managers: Vec<String>,
        fields: Vec<String>,
    },
    /// The object does not exist. It was not created, because others manage the rest now and decide about it.
    LeftOut {
        to: String,
    },
    /// Taken back from others at a person's request.
    TakenBack {
        managers: Vec<String>,
        fields: Vec<String>,
    },
}

impl BootstrapReport {
    /// The failed step and the reason.
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

    /// Whether anything in the cluster was changed.
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

    /// Whether others manage, or managed, a part of the object.
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

/// The first few fields, since an object may have hundreds.
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
