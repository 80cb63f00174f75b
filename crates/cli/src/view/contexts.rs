//! Where the values of a stack come from, as text and as data. It contains no secrets: values are as the
//! project file writes them.

use std::collections::BTreeMap;
use std::time::Duration;

use model::base::diagnostic::Location;
use model::hcl::expression::Input;
use model::project::Stack;
use model::project::context::{
    ClusterSecret, Context, Hook, SetValue, ValueOrigin, ValueOrigins, ValueSource,
};
use serde_json::{Value, json};

use super::style::ViewOptions;
use super::table::Table;

/// Seconds as a whole number, unless there is a fraction.
fn seconds(limit: Duration) -> Value {
    match limit.subsec_nanos() {
        0 => json!(limit.as_secs()),
        _ => json!(limit.as_secs_f64()),
    }
}

/// The text of `context show` for a stack.
pub fn text(
    stack: &Stack,
    origins: &ValueOrigins<'_>,
    base: &[String],
    look: ViewOptions,
) -> String {
    let mut parts = vec![attached(stack, origins).render(look)];
    for (title, entries) in [
        ("ENV", &origins.env),
        ("VARS", &origins.vars),
        ("FILES", &origins.files),
    ] {
        parts.push(values(title, entries).render(look));
    }
    parts.push(secrets(origins).render(look));
    parts.push(hooks(origins).render(look));
    parts.push(patterns(origins).render(look));
    parts.retain(|part| !part.is_empty());
    if parts.is_empty() {
        parts.push(format!(
            "stack `{}` has no contexts and no inputs\n",
            stack.name
        ));
    }
    parts.push(format!("the engine also receives {}\n", base.join(", ")));
    parts.join("\n")
}

fn attached(stack: &Stack, origins: &ValueOrigins<'_>) -> Table {
    let mut table = Table::new(["CONTEXT", "PRIORITY", "ATTACHED BY", "AT"]).right(1);
    for context in origins.contexts.iter().rev() {
        table.row([
            context.name.clone(),
            context.priority.to_string(),
            by(context, stack).join(", "),
            place(&context.written.at),
        ]);
    }
    table
}

fn by(context: &Context, stack: &Stack) -> Vec<String> {
    let by = context.written.attached.get(&stack.name);
    by.cloned().unwrap_or_default()
}

fn values(title: &str, entries: &BTreeMap<&str, ValueOrigin<'_>>) -> Table {
    let mut table = Table::new([title, "VALUE", "FROM", "AT"]);
    for (name, origin) in entries {
        let mut from = from(origin.taken.source);
        if origin.is_ignored {
            from.push_str(", ignored: the module declares no such variable");
        }
        table.row([
            (*name).to_owned(),
            origin.taken.value.clone(),
            from,
            place(&origin.taken.at),
        ]);
        for weaker in &origin.overrides {
            table.row([
                "  overrides".to_owned(),
                weaker.value.clone(),
                self::from(weaker.source),
                place(&weaker.at),
            ]);
        }
    }
    table
}

fn from(source: ValueSource<'_>) -> String {
    match source {
        ValueSource::Inputs => "inputs of the stack".to_owned(),
        ValueSource::Context(context) => format!("context `{}`", context.name),
        ValueSource::Passed(context, pattern) => {
            format!("context `{}`, `pass_env` has `{pattern}`", context.name)
        }
    }
}

fn hooks(origins: &ValueOrigins<'_>) -> Table {
    let mut table = Table::new(["HOOK", "RUN", "FROM", "AT"]);
    for (context, hook) in &origins.hooks {
        table.row([
            hook.to_string(),
            program(hook),
            format!("context `{}`", context.name),
            place(&hook.at),
        ]);
    }
    table
}

/// Secrets for the stack's clusters: names and references, never values.
fn secrets(origins: &ValueOrigins<'_>) -> Table {
    let mut table = Table::new(["CLUSTER SECRET", "VALUE", "FROM", "AT"]);
    for (context, secret, unused) in &origins.secrets {
        let references = secret.references().into_iter();
        let references = references.map(|it| format!("secret(\"{it}\")"));
        let references = references.collect::<Vec<_>>().join(", ");
        let keys = secret.keys.join(", ");
        let from = format!("context `{}`", context.name);
        table.row([
            secret.title(),
            if references.is_empty() {
                keys
            } else {
                format!("{keys}: {references}")
            },
            match unused {
                Some(why) => format!("{from}, not used: {why}"),
                None => from,
            },
            place(&secret.block.at),
        ]);
    }
    table
}

/// The program of a hook, as far as the project file determines it.
fn program(hook: &Hook) -> String {
    match &hook.run {
        Input::Known(Value::Array(words)) => {
            let words = words.iter().filter_map(Value::as_str);
            words.collect::<Vec<_>>().join(" ")
        }
        Input::Known(other) => other.to_string(),
        Input::Expression(expression) => expression.text.clone(),
    }
}

/// Patterns that match nothing in this environment: the most likely reason for a missing credential.
fn patterns(origins: &ValueOrigins<'_>) -> Table {
    let mut table = Table::new(["PASS_ENV", "", "FROM", "AT"]);
    for context in &origins.contexts {
        for pattern in unmatched(context, origins) {
            table.row([
                pattern.clone(),
                "matches nothing in your environment".to_owned(),
                format!("context `{}`", context.name),
                place(&context.written.pass_env_at),
            ]);
        }
    }
    table
}

fn unmatched<'a>(context: &'a Context, origins: &ValueOrigins<'_>) -> Vec<&'a String> {
    let is_used = |pattern: &&String| {
        let all = origins.env.values();
        let mut all =
            all.flat_map(|origin| std::iter::once(&origin.taken).chain(&origin.overrides));
        all.any(|taken| match taken.source {
            ValueSource::Passed(by, used) => by.name == context.name && used == pattern.as_str(),
            ValueSource::Inputs | ValueSource::Context(_) => false,
        })
    };
    let patterns = context.pass_env.iter();
    patterns.filter(|pattern| !is_used(pattern)).collect()
}

fn place(at: &Location) -> String {
    if at.file.is_empty() {
        return String::new();
    }
    format!("{}:{}", at.file, at.line)
}

/// The same as data.
pub fn document(stack: &Stack, origins: &ValueOrigins<'_>, base: &[String]) -> Value {
    let context = |context: &&Context| {
        json!({
            "name": context.name,
            "priority": context.priority,
            "attached_by": by(context, stack),
            "at": place(&context.written.at),
            "pass_env_unmatched": unmatched(context, origins),
        })
    };
    let hook = |(context, hook): &(&Context, &Hook)| {
        json!({
            "when": hook.when.word(),
            "stage": hook.stage.word(),
            "run": program(hook),
            "context": context.name,
            "timeout_seconds": hook.timeout.map(seconds),
            "at": place(&hook.at),
        })
    };
    let secret = |(context, secret, unused): &(&Context, &ClusterSecret, Option<&str>)| {
        json!({
            "secret": secret.title(),
            "keys": secret.keys,
            "references": secret.references(),
            "context": context.name,
            "unused": unused,
            "at": place(&secret.block.at),
        })
    };
    json!({
        "stack": stack.name,
        "contexts": origins.contexts.iter().rev().map(context).collect::<Vec<_>>(),
        "env": entries(&origins.env),
        "vars": entries(&origins.vars),
        "files": entries(&origins.files),
        "cluster_secrets": origins.secrets.iter().map(secret).collect::<Vec<_>>(),
        "hooks": origins.hooks.iter().map(hook).collect::<Vec<_>>(),
        "engine_env": base,
    })
}

fn entries(entries: &BTreeMap<&str, ValueOrigin<'_>>) -> Value {
    let taken = |taken: &SetValue<'_>| {
        let (from, context, pattern) = match taken.source {
            ValueSource::Inputs => ("inputs", None, None),
            ValueSource::Context(context) => ("context", Some(&context.name), None),
            ValueSource::Passed(context, pattern) => {
                ("pass_env", Some(&context.name), Some(pattern))
            }
        };
        json!({
            "value": taken.value,
            "from": from,
            "context": context,
            "pattern": pattern,
            "at": place(&taken.at),
        })
    };
    let entry = |(name, origin): (&&str, &ValueOrigin<'_>)| {
        let mut shown = taken(&origin.taken);
        shown["overrides"] = origin.overrides.iter().map(taken).collect();
        shown["ignored"] = origin.is_ignored.into();
        ((*name).to_owned(), shown)
    };
    let entries: serde_json::Map<String, Value> = entries.iter().map(entry).collect();
    Value::Object(entries)
}
