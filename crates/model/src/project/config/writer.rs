//! Reads `writer` blocks. Their rules decide about applies, so no rule may be empty, open to everyone, or dependent on
//! the requester's environment.

use std::collections::BTreeMap;

use crate::base::diagnostic::Finding;
use crate::hcl::evaluator::CollectedRefs;
use crate::hcl::value::Val;
use crate::project::Writer;
use crate::project::config::project::OuterBlock;
use crate::project::config::reader::{Field, Fields, ObjectItem as Entry, Reader, Scope};
use crate::project::identity::{Pattern, check_place};

const AUDIENCE: &str = "terrane";
const TOKEN_ENV: &str = "TERRANE_ID_TOKEN";

/// Shared issuers, and the claims that identify the owner of a job.
const SHARED: &[(&str, &[&str])] = &[
    (
        "https://token.actions.githubusercontent.com",
        &[
            "repository",
            "repository_id",
            "repository_owner",
            "repository_owner_id",
            "job_workflow_ref",
            "sub",
        ],
    ),
    (
        "https://gitlab.com",
        &[
            "project_path",
            "project_id",
            "namespace_path",
            "namespace_id",
            "sub",
        ],
    ),
];

pub(crate) fn read_writer(reader: &mut Reader<'_>, item: OuterBlock<'_>, scope: &Scope) -> Writer {
    let fields = reader.fields(item.source, item.block, item.spec, scope);
    if matches!(item.name(), "anyone" | "server") {
        let message = format!("`{}` has a meaning of its own among writers", item.name());
        let finding = Finding::error("invalid-name", message).at(item.at(), "call it otherwise");
        reader.findings.push(finding);
    }
    fixed(reader, item, &fields);
    let issuer = fields.text("issuer").unwrap_or_default().to_owned();
    if let (Some(field), Err(why)) = (fields.get("issuer"), check_place(&issuer))
        && field.val.as_text().is_some()
    {
        let at = item.source.location(field.at.clone());
        let finding = Finding::error("invalid-value", why.to_string())
            .at(at, "keys from there could belong to anyone")
            .hint("it is the `iss` of the tokens, such as `https://gitlab.example.io`");
        reader.findings.push(finding);
    }
    let claims = claims(reader, item, &fields);
    let writer = Writer {
        name: item.name().to_owned(),
        issuer,
        audience: fields.text("audience").unwrap_or(AUDIENCE).to_owned(),
        token_env: fields.text("token_env").unwrap_or(TOKEN_ENV).to_owned(),
        claims,
        declared_at: item.at(),
    };
    restrictive(reader, &writer, fields.get("claims"), item);
    writer
}

/// A rule must not depend on values that the requester controls.
fn fixed(reader: &mut Reader<'_>, item: OuterBlock<'_>, fields: &Fields) {
    let bends = |seen: &CollectedRefs| {
        let git = seen.names.iter().any(|(root, _)| root == "git");
        !seen.env.is_empty() || !seen.env_if_set.is_empty() || git
    };
    for field in fields.iter() {
        let entries = field.items.iter();
        let bent = entries.filter(|entry| bends(&entry.seen));
        let places = bent.map(|entry| entry.key_at.clone());
        let places = places.chain(bends(&field.seen).then(|| field.at.clone()));
        for at in places.collect::<Vec<_>>() {
            let finding = Finding::error(
                "writer-from-outside",
                "a `writer` must not depend on the requester's environment or branch",
            )
            .at(item.source.location(at), "write it out");
            reader.findings.push(finding);
        }
    }
}

fn claims(
    reader: &mut Reader<'_>,
    item: OuterBlock<'_>,
    fields: &Fields,
) -> BTreeMap<String, Vec<String>> {
    let entries = fields.get("claims").map_or(&[][..], |field| &field.items);
    let mut claims = BTreeMap::new();
    for entry in entries {
        if let Some(patterns) = patterns(entry) {
            claims.insert(entry.key.clone(), patterns);
        } else {
            let message = format!(
                "claim `{}` must be a string or a list of some, this is {}",
                entry.key,
                entry.val.what()
            );
            let at = item.source.location(entry.key_at.clone());
            let finding = Finding::error("wrong-type", message)
                .at(at, "this entry")
                .hint("`*` matches anything but `/`, `**` anything; of a list one must match");
            reader.findings.push(finding);
        }
    }
    claims
}

fn patterns(entry: &Entry) -> Option<Vec<String>> {
    match &entry.val {
        Val::Bool(_) | Val::Number(_) | Val::Text(_) => Some(vec![entry.val.in_template()?]),
        Val::List(items) if !items.is_empty() => items
            .iter()
            .map(|item| item.as_text().map(str::to_owned))
            .collect(),
        Val::Null
        | Val::Digits(_)
        | Val::List(_)
        | Val::Object(_)
        | Val::Stack(_)
        | Val::Unknown => None,
    }
}

/// An issuer vouches for all its users. Without a claim that distinguishes them, each of them may apply.
fn restrictive(
    reader: &mut Reader<'_>,
    writer: &Writer,
    field: Option<&Field>,
    item: OuterBlock<'_>,
) {
    // Missing values and wrong types were already reported.
    let Some(field) = field.filter(|field| field.items.len() == writer.claims.len()) else {
        return;
    };
    let shared = SHARED
        .iter()
        .find(|(issuer, _)| *issuer == writer.issuer.trim_end_matches('/'));
    let narrows = |(name, patterns): (&String, &Vec<String>)| {
        let mut patterns = patterns.iter().map(|pattern| Pattern::new(pattern));
        match shared {
            None => patterns.all(|pattern| !pattern.is_free()),
            Some((_, telling)) => {
                telling.contains(&name.as_str()) && patterns.all(|it| it.names_an_owner())
            }
        }
    };
    if writer.claims.iter().any(narrows) {
        return;
    }
    let at = item.source.location(field.at.clone());
    let hint = match shared {
        Some((_, telling)) if telling.contains(&"project_path") => {
            "add a claim such as `project_path = \"GROUP/PROJECT\"`"
        }
        Some(_) | None => "add a claim such as `repository = \"OWNER/NAME\"`",
    };
    let message = format!(
        "writer `{}` lets everybody in who gets a token from `{}`",
        writer.name, writer.issuer
    );
    let finding = Finding::error("open-writer", message)
        .at(at, "does not identify the owner of the job")
        .hint(hint);
    reader.findings.push(finding);
}
