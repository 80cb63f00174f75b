//! Checks whether a value is of the kind that its attribute requires.

use std::time::Duration;

use crate::base::diagnostic::{Finding, Location};
use crate::base::duration;
use crate::hcl::evaluator::CollectedRefs;
use crate::hcl::paths;
use crate::hcl::paths::compile_glob;
use crate::hcl::suggest;
use crate::hcl::value::Val;
use crate::project::config::schema::{Attr, ValueKind};
use crate::project::engine::Constraint;

/// Why a value is invalid.
pub(crate) enum InvalidValue {
    Type {
        seen: &'static str,
    },
    Value {
        code: &'static str,
        message: String,
        hint: Option<String>,
    },
}

impl InvalidValue {
    pub(crate) fn finding(self, attr: &Attr, at: Location) -> Finding {
        match self {
            Self::Type { seen } => Finding::error(
                "wrong-type",
                format!("`{}` must be {}", attr.name, attr.kind.title()),
            )
            .at(at, format!("this is {seen}")),
            Self::Value {
                code,
                message,
                hint,
            } => {
                let label = match code {
                    "path-leaves-project" => "only what lies in the project is there".to_owned(),
                    _ => format!("`{}` must be {}", attr.name, attr.kind.title()),
                };
                let mut finding = Finding::error(code, message).at(at, label);
                finding.hint = hint;
                finding
            }
        }
    }
}

fn value(message: String) -> InvalidValue {
    InvalidValue::Value {
        code: "invalid-value",
        message,
        hint: None,
    }
}

pub(crate) fn check(kind: ValueKind, val: &Val, seen: &CollectedRefs) -> Result<(), InvalidValue> {
    if *val == Val::Unknown && !matches!(kind, ValueKind::Stacks | ValueKind::Secret) {
        return Ok(());
    }
    match kind {
        ValueKind::Any => Ok(()),
        ValueKind::Text => text(val).map(drop),
        ValueKind::Name => match text(val)?.trim() {
            "" => Err(value("this is empty".to_owned())),
            _ => Ok(()),
        },
        ValueKind::Bool => match val {
            Val::Bool(_) => Ok(()),
            other => Err(wrong_type(other)),
        },
        ValueKind::Count => {
            whole_number(val, "a whole number from 0", |n| u32::try_from(n).is_ok())
        }
        ValueKind::Positive => whole_number(val, "a whole number from 1", |n| {
            n > 0 && u32::try_from(n).is_ok()
        }),
        ValueKind::Integer => whole_number(val, "a whole number", |_| true),
        ValueKind::Texts => texts(val, |_| Ok(())),
        ValueKind::Duration => length(text(val)?).map(drop),
        ValueKind::Limit => {
            let raw = text(val)?;
            match length(raw)? {
                Duration::ZERO => Err(value(format!("`{raw}` is no time at all"))),
                _ => Ok(()),
            }
        }
        ValueKind::Word(words) => word(text(val)?, words),
        ValueKind::Words(words) => texts(val, |raw| word(raw, words)),
        ValueKind::Path => path(text(val)?),
        ValueKind::Paths => texts(val, path),
        ValueKind::PathOrPaths => match val {
            Val::Text(raw) => path(raw),
            other => texts(other, path),
        },
        ValueKind::Globs => texts(val, |raw| path(raw).and_then(|()| glob(raw))),
        ValueKind::AnyGlobs => texts(val, glob),
        ValueKind::Map => match val {
            Val::Object(_) => Ok(()),
            other => Err(wrong_type(other)),
        },
        ValueKind::Each => match val {
            Val::Object(_) => Ok(()),
            other => texts(other, |_| Ok(())),
        },
        ValueKind::Stacks => stacks(val),
        ValueKind::Constraint => {
            let constraint = text(val)?.parse::<Constraint>();
            constraint.map(drop).map_err(|err| value(err.to_string()))
        }
        ValueKind::Secret if *val == Val::Unknown && !seen.secrets.is_empty() => Ok(()),
        ValueKind::Secret => Err(wrong_type(val)),
        ValueKind::Contract => formed(text(val)?, is_contract, "a contract"),
        ValueKind::Digest => formed(text(val)?, is_digest, "a digest"),
        ValueKind::Cron => formed(text(val)?, cron, "a schedule"),
    }
}

fn wrong_type(val: &Val) -> InvalidValue {
    InvalidValue::Type { seen: val.what() }
}

/// An integer. `fits` checks its range.
fn whole_number(val: &Val, what: &str, fits: impl Fn(i64) -> bool) -> Result<(), InvalidValue> {
    let Val::Number(number) = val else {
        return Err(wrong_type(val));
    };
    if number.as_i64().is_some_and(fits) {
        return Ok(());
    }
    Err(value(format!("`{number}` is not {what}")))
}

fn length(raw: &str) -> Result<Duration, InvalidValue> {
    duration::parse(raw).ok_or_else(|| value(format!("`{raw}` is not a duration")))
}

fn stacks(val: &Val) -> Result<(), InvalidValue> {
    let Val::List(items) = val else {
        return Err(wrong_type(val));
    };
    match items.iter().find(|item| !matches!(item, Val::Stack(_))) {
        None => Ok(()),
        Some(Val::Text(_)) => Err(InvalidValue::Value {
            code: "wrong-type",
            message: "a string is not a stack".to_owned(),
            hint: Some("write `stack.NAME` or `stack[\"NAME\"]`".to_owned()),
        }),
        Some(other) => Err(wrong_type(other)),
    }
}

fn formed(raw: &str, is_formed: impl Fn(&str) -> bool, what: &str) -> Result<(), InvalidValue> {
    if is_formed(raw) {
        Ok(())
    } else {
        Err(value(format!("`{raw}` is not {what}")))
    }
}

/// `cluster/v1`.
fn is_contract(raw: &str) -> bool {
    raw.split_once("/v").is_some_and(|(name, version)| {
        crate::base::ids::check_name(name).is_ok()
            && !version.is_empty()
            && version.bytes().all(|b| b.is_ascii_digit())
    })
}

fn is_digest(raw: &str) -> bool {
    raw.strip_prefix("sha256:").is_some_and(|hex| {
        hex == "…" || (hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
    })
}

fn text(val: &Val) -> Result<&str, InvalidValue> {
    val.as_text().ok_or_else(|| wrong_type(val))
}

fn texts(val: &Val, each: impl Fn(&str) -> Result<(), InvalidValue>) -> Result<(), InvalidValue> {
    let Val::List(items) = val else {
        return Err(InvalidValue::Type { seen: val.what() });
    };
    for item in items {
        match item {
            Val::Unknown => {}
            Val::Text(text) => each(text)?,
            other => {
                return Err(InvalidValue::Value {
                    code: "wrong-type",
                    message: format!("{} is no string", other.what()),
                    hint: None,
                });
            }
        }
    }
    Ok(())
}

fn word(raw: &str, words: &[&str]) -> Result<(), InvalidValue> {
    if words.contains(&raw) {
        return Ok(());
    }
    Err(InvalidValue::Value {
        code: "invalid-value",
        message: format!("`{raw}` is none of {}", suggest::list(words)),
        hint: suggest::nearest(raw, words.iter().copied())
            .map(|word| format!("did you mean `{word}`?")),
    })
}

fn path(raw: &str) -> Result<(), InvalidValue> {
    paths::normalize(raw)
        .map(drop)
        .map_err(|leaves| InvalidValue::Value {
            code: "path-leaves-project",
            message: leaves.to_string(),
            hint: None,
        })
}

fn glob(raw: &str) -> Result<(), InvalidValue> {
    compile_glob(raw).map(drop).map_err(value)
}

fn cron(raw: &str) -> bool {
    const LIMITS: [(u32, u32); 5] = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)];
    let fields: Vec<&str> = raw.split_whitespace().collect();
    fields.len() == 5
        && fields
            .iter()
            .zip(LIMITS)
            .all(|(field, limits)| field.split(',').all(|part| cron_part(part, limits)))
}

fn cron_part(part: &str, (low, high): (u32, u32)) -> bool {
    let number = |raw: &str| raw.parse::<u32>().ok().filter(|n| (low..=high).contains(n));
    let (range, step) = match part.split_once('/') {
        Some((range, step)) => (range, step.parse::<u32>().is_ok_and(|n| n > 0)),
        None => (part, true),
    };
    let range = match range.split_once('-') {
        Some((from, to)) => {
            matches!((number(from), number(to)), (Some(from), Some(to)) if from <= to)
        }
        None => range == "*" || number(range).is_some(),
    };
    step && range
}

/// The forms of secret references, for messages and the reference page.
pub(crate) const SECRETS: &[(&str, &str, &str)] = &[
    ("env", "env:NAME", "a variable of the asker's environment"),
    ("file", "file:PATH", "a file of the asker's machine"),
    ("command", "command:PROGRAM ARGS", "what a program prints"),
    (
        "sops",
        "sops:FILE#KEY.PATH",
        "a value of a file encrypted with SOPS",
    ),
    (
        "dotenv",
        "dotenv:FILE#NAME",
        "a line of a `.env` file (local targets only)",
    ),
    (
        "vault",
        "vault:MOUNT/PATH#KEY",
        "a value of HashiCorp Vault or OpenBao",
    ),
    (
        "azure-keyvault",
        "azure-keyvault:VAULT/NAME",
        "a secret of Azure Key Vault; `/VERSION` may follow",
    ),
    (
        "aws-secretsmanager",
        "aws-secretsmanager:NAME#KEY",
        "a value of AWS Secrets Manager; without `#KEY` its whole text",
    ),
    (
        "aws-ssm",
        "aws-ssm:NAME",
        "a parameter of AWS Systems Manager",
    ),
];

/// The scheme of a reference, or an error with a hint. The error contains nothing but the scheme.
pub(crate) fn secret_source(reference: &str) -> Result<&'static str, (String, Option<String>)> {
    let schemes = || SECRETS.iter().map(|(scheme, _, _)| *scheme);
    let Some((scheme, rest)) = reference.split_once(':') else {
        let hint = format!(
            "references begin with {}",
            suggest::list(&schemes().collect::<Vec<_>>())
        );
        return Err(("this is not a secret reference".to_owned(), Some(hint)));
    };
    let Some((scheme, shape, _)) = SECRETS.iter().find(|(known, _, _)| *known == scheme) else {
        return Err((
            format!("there is no source of secrets `{scheme}`"),
            suggest::hint(scheme, schemes()),
        ));
    };
    let parts = |separator: char| {
        rest.split_once(separator)
            .is_some_and(|(left, right)| !left.is_empty() && !right.is_empty())
    };
    let good = match *scheme {
        "env" => !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'),
        "sops" | "dotenv" => parts('#'),
        "vault" => parts('#') && parts('/'),
        "azure-keyvault" => parts('/'),
        _ => !rest.trim().is_empty(),
    };
    if good {
        Ok(scheme)
    } else {
        Err((format!("a `{scheme}` secret is written as `{shape}`"), None))
    }
}
