//! The functions of the project file.

use std::collections::BTreeMap;

use hcl_edit::expr::{Expression, FuncCall};

use crate::base::exact_number;
use crate::hcl::evaluator::{AllowedRefs, Evaluation, Evaluator, ExpressionError, Fetched, span};
use crate::hcl::expression::ExternalQuery;
use crate::hcl::paths;
use crate::hcl::suggest;
use crate::hcl::value::Val;

/// Every function with its signature and description. The reference page is generated from this.
pub(crate) const FUNCTIONS: &[(&str, &str, &str)] = &[
    ("file", "file(PATH)", "the text of a file of the project"),
    (
        "fileexists",
        "fileexists(PATH)",
        "whether the project has this file",
    ),
    (
        "env",
        "env(NAME), env(NAME, DEFAULT)",
        "a variable of the caller's environment",
    ),
    (
        "secret",
        "secret(REF)",
        "a secret, read only in the stage that needs it",
    ),
    ("lower", "lower(TEXT)", "in lower case"),
    ("upper", "upper(TEXT)", "in upper case"),
    (
        "replace",
        "replace(TEXT, OLD, NEW)",
        "every OLD replaced by NEW",
    ),
    ("join", "join(SEPARATOR, LIST)", "a list of strings as one"),
    ("split", "split(SEPARATOR, TEXT)", "a string as a list"),
    (
        "format",
        "format(FORMAT, VALUE…)",
        "with `%s`, `%d`, `%f`, `%t`, `%q`, `%v`, a width, `-` and `0`",
    ),
    ("merge", "merge(OBJECT…)", "one object; later ones win"),
    ("concat", "concat(LIST…)", "one list"),
    (
        "lookup",
        "lookup(OBJECT, KEY, DEFAULT)",
        "an entry, or the default",
    ),
    ("try", "try(VALUE…)", "the first value that can be had"),
    (
        "jsondecode",
        "jsondecode(TEXT)",
        "the value that JSON text holds",
    ),
    (
        "yamldecode",
        "yamldecode(TEXT)",
        "the value that YAML text holds",
    ),
];

pub(crate) fn call(eval: &mut Evaluator<'_>, call: &FuncCall, whole: &Expression) -> Evaluation {
    let name = call.name.name.as_str();
    if call.name.is_namespaced() {
        return Err(unknown(name, eval.refs, whole));
    }
    match name {
        "try" => return attempt(eval, call, whole),
        "dns" | "kubernetes" if eval.refs.allows_asking() => return ask(eval, call, whole),
        _ if FUNCTIONS.iter().all(|(known, _, _)| *known != name) => {
            return Err(unknown(name, eval.refs, whole));
        }
        _ => {}
    }
    let mut values: Vec<Val> = call
        .args
        .iter()
        .map(|argument| eval.eval(argument))
        .collect::<Result<_, _>>()?;
    if call.args.expand_final() {
        match values.pop() {
            Some(Val::List(items)) => values.extend(items),
            Some(Val::Unknown) | None => return Ok(Val::Unknown),
            Some(other) => {
                return Err(ExpressionError::new(
                    span(whole),
                    format!("`...` requires a list, this is {}", other.what()),
                ));
            }
        }
    }
    match name {
        "env" => return env(eval, &values, whole),
        "secret" => return secret(eval, &values, whole),
        "file" | "fileexists" => return file(eval, name, &values, whole),
        _ => {}
    }
    if values.contains(&Val::Unknown) {
        return Ok(Val::Unknown);
    }
    let cost: usize = values.iter().map(Val::size).sum();
    eval.step(cost, whole)?;
    let result =
        pure(name, &values).map_err(|message| ExpressionError::new(span(whole), message))?;
    if let Val::Text(text) = &result {
        eval.step(text.len() / 16, whole)?;
    }
    Ok(result)
}

fn unknown(name: &str, refs: AllowedRefs, whole: &Expression) -> ExpressionError {
    let known = FUNCTIONS.iter().map(|(known, _, _)| *known);
    let hint = suggest::hint(name, known);
    let problem = ExpressionError::new(span(whole), format!("there is no function `{name}`"));
    let problem = ExpressionError {
        code: "unknown-function",
        ..problem
    };
    if matches!(name, "dns" | "kubernetes") && !refs.allows_asking() {
        return problem.hint(Some(format!("`{name}` is allowed only in a gate")));
    }
    problem.hint(hint)
}

/// Queries of external systems: `dns("NAME")`, `kubernetes("KIND/NAMESPACE/NAME", "FIELD")`.
fn ask(eval: &mut Evaluator<'_>, call: &FuncCall, whole: &Expression) -> Evaluation {
    let values: Vec<Val> = call
        .args
        .iter()
        .map(|argument| eval.eval(argument))
        .collect::<Result<_, _>>()?;
    if values.contains(&Val::Unknown) {
        return Ok(Val::Unknown);
    }
    let ask = match (call.name.name.as_str(), values.as_slice()) {
        ("dns", [Val::Text(name)]) => ExternalQuery::Dns {
            name: name.clone(),
            record: "A".to_owned(),
        },
        ("dns", [Val::Text(name), Val::Text(record)]) => ExternalQuery::Dns {
            name: name.clone(),
            record: record.clone(),
        },
        ("kubernetes", [Val::Text(object), Val::Text(field)]) => ExternalQuery::Kubernetes {
            object: object.clone(),
            field: field.clone(),
        },
        ("dns", _) => {
            let want = "`dns` takes a name, and optionally a record type: `dns(\"NAME\", \"A\")`";
            return Err(ExpressionError::new(span(whole), want));
        }
        _ => {
            let want = "`kubernetes` takes an object and a field: `kubernetes(\"KIND/NAMESPACE/NAME\", \"FIELD\")`";
            return Err(ExpressionError::new(span(whole), want));
        }
    };
    let fetched = eval.host.ask(ask);
    eval.fetched(fetched, whole)
}

fn attempt(eval: &mut Evaluator<'_>, call: &FuncCall, whole: &Expression) -> Evaluation {
    let mut last = None;
    let mut unknown = false;
    let required = eval.seen.env.clone();
    for (at, argument) in call.args.iter().enumerate() {
        let value = eval.eval(argument);
        if at + 1 < call.args.len() {
            // There is a fallback if one of these is not set.
            let asked = std::mem::replace(&mut eval.seen.env, required.clone());
            eval.seen.env_if_set.extend(asked);
        }
        match value {
            // An unknown value may still fail later, so the fallbacks are evaluated to collect their references.
            Ok(value) if !value.is_known() => unknown = true,
            Ok(value) if !unknown => return Ok(value),
            Ok(_) => return Ok(Val::Unknown),
            Err(problem) => last = Some(problem),
        }
    }
    if unknown {
        return Ok(Val::Unknown);
    }
    Err(last
        .unwrap_or_else(|| ExpressionError::new(span(whole), "`try` requires at least one value")))
}

fn env(eval: &mut Evaluator<'_>, values: &[Val], whole: &Expression) -> Evaluation {
    let (name, default) = match values {
        [Val::Text(name)] => (name, None),
        [Val::Text(name), default] => (name, Some(default)),
        _ => {
            return Err(ExpressionError::new(
                span(whole),
                "`env` takes the name of a variable, and optionally a default: `env(\"NAME\", \"default\")`",
            ));
        }
    };
    if default.is_some() {
        eval.seen.env_if_set.insert(name.clone());
    } else {
        eval.seen.env.insert(name.clone());
    }
    match eval.host.env(name) {
        Fetched::Missing(_) if default.is_some() => Ok(default.cloned().unwrap_or(Val::Null)),
        Fetched::Missing(message) => Err(ExpressionError {
            code: "unset-variable",
            ..ExpressionError::missing(span(whole), message)
        }
        .label("needed here")
        .hint(Some(format!(
            "set it, or give a default: `env(\"{name}\", \"…\")`"
        )))),
        fetched => eval.fetched(fetched, whole),
    }
}

fn secret(eval: &mut Evaluator<'_>, values: &[Val], whole: &Expression) -> Evaluation {
    let [Val::Text(reference)] = values else {
        return Err(ExpressionError::new(
            span(whole),
            "`secret` takes one reference: `secret(\"file:PATH\")`",
        ));
    };
    if !eval.refs.allows_secrets() {
        return Err(ExpressionError {
            code: "misplaced-reference",
            ..ExpressionError::new(
                span(whole),
                "a secret is allowed only in `env`, `vars`, `files` and `secret` of a context, in `facts`, `bootstrap` and `gate`",
            )
        });
    }
    eval.seen.secrets.push((reference.clone(), span(whole)));
    eval.seen.sensitive = true;
    eval.fetched(eval.host.secret(reference), whole)
}

fn file(eval: &mut Evaluator<'_>, name: &str, values: &[Val], whole: &Expression) -> Evaluation {
    let path = match values {
        [Val::Text(path)] => path,
        [Val::Unknown] => {
            return Err(ExpressionError::new(
                span(whole),
                "this path must be known from the file alone",
            ));
        }
        _ => {
            return Err(ExpressionError::new(
                span(whole),
                format!("`{name}` takes one path"),
            ));
        }
    };
    let normal = paths::normalize(path).map_err(|leaves| ExpressionError {
        code: "path-leaves-project",
        ..ExpressionError::new(span(whole), leaves.to_string())
    })?;
    let text = match eval.seen.files.get(&normal) {
        Some(text) => text.clone(),
        None => eval.host.file(&normal).map_err(|why| {
            ExpressionError::new(span(whole), format!("could not read `{path}`: {why}"))
        })?,
    };
    if let Some(text) = &text {
        eval.step(text.len() / 16, whole)?;
    }
    eval.seen.files.insert(normal, text.clone());
    match (name, text) {
        ("fileexists", text) => Ok(Val::Bool(text.is_some())),
        (_, Some(text)) => Ok(Val::Text(text)),
        (_, None) => Err(ExpressionError {
            code: "missing-file",
            ..ExpressionError::new(span(whole), format!("there is no file `{path}`"))
        }
        .hint(Some("paths count from the project's root".to_owned()))),
    }
}

fn pure(name: &str, values: &[Val]) -> Result<Val, String> {
    match (name, values) {
        ("lower", [Val::Text(text)]) => Ok(Val::Text(text.to_lowercase())),
        ("upper", [Val::Text(text)]) => Ok(Val::Text(text.to_uppercase())),
        ("replace", [Val::Text(text), Val::Text(old), Val::Text(new)]) => {
            if old.len() > 1 && old.starts_with('/') && old.ends_with('/') {
                return Err("`replace` knows no patterns, only plain text".to_owned());
            }
            if text.len().saturating_mul(new.len() + 1) > 64 * 1024 * 1024 {
                return Err("the result of `replace` would be too large".to_owned());
            }
            Ok(Val::Text(text.replace(old.as_str(), new)))
        }
        ("join", [Val::Text(separator), Val::List(items)]) => {
            let texts: Option<Vec<String>> = items.iter().map(Val::in_template).collect();
            match texts {
                Some(texts) => Ok(Val::Text(texts.join(separator))),
                None if items.iter().any(|item| !item.is_known()) => Ok(Val::Unknown),
                None => Err("`join` requires a list of strings".to_owned()),
            }
        }
        ("split", [Val::Text(separator), Val::Text(text)]) => {
            if separator.is_empty() {
                return Ok(Val::List(
                    text.chars().map(|c| Val::Text(c.to_string())).collect(),
                ));
            }
            Ok(Val::List(
                text.split(separator.as_str()).map(Val::text).collect(),
            ))
        }
        ("format", [Val::Text(pattern), values @ ..]) => format(pattern, values),
        ("merge", values) => {
            let mut merged = BTreeMap::new();
            for value in values {
                match value {
                    Val::Object(entries) => merged.extend(entries.clone()),
                    Val::Null => {}
                    other => {
                        return Err(format!(
                            "`merge` requires objects, this is {}",
                            other.what()
                        ));
                    }
                }
            }
            Ok(Val::Object(merged))
        }
        ("concat", values) => {
            let mut all = Vec::new();
            for value in values {
                match value {
                    Val::List(items) => all.extend(items.clone()),
                    other => {
                        return Err(format!("`concat` requires lists, this is {}", other.what()));
                    }
                }
            }
            Ok(Val::List(all))
        }
        ("lookup", [Val::Object(entries), Val::Text(key)]) => entries
            .get(key)
            .cloned()
            .ok_or_else(|| format!("there is no `{key}` in this object, and no default is given")),
        ("lookup", [Val::Object(entries), Val::Text(key), default]) => {
            Ok(entries.get(key).unwrap_or(default).clone())
        }
        ("jsondecode", [Val::Text(text)]) => exact_number::read(text)
            .map(|value| Val::from(&value))
            .map_err(|err| {
                format!(
                    "this is not JSON: line {}, column {}",
                    err.line(),
                    err.column()
                )
            }),
        ("yamldecode", [Val::Text(text)]) => yaml_serde::from_str::<serde_json::Value>(text)
            .map(|value| Val::from(&value))
            .map_err(|err| match err.location() {
                Some(at) => format!(
                    "this is not YAML: line {}, column {}",
                    at.line(),
                    at.column()
                ),
                None => "this YAML cannot be used: its keys must be text, and its aliases few"
                    .to_owned(),
            }),
        _ => {
            let usage = FUNCTIONS.iter().find(|(known, _, _)| *known == name);
            let usage = usage.map_or("", |(_, usage, _)| usage);
            Err(format!("`{name}` is called as `{usage}`"))
        }
    }
}

/// The verbs `%s %d %f %t %q %v %%`, with width, precision, `-` and `0`.
fn format(pattern: &str, values: &[Val]) -> Result<Val, String> {
    let mut out = String::new();
    let mut values = values.iter();
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut spec = String::new();
        let verb = loop {
            match chars.next() {
                Some(c) if c.is_ascii_alphabetic() || c == '%' => break c,
                Some(c)
                    if (c.is_ascii_digit() || matches!(c, '-' | '.' | '+')) && spec.len() < 8 =>
                {
                    spec.push(c);
                }
                _ => return Err("`format` does not know this verb".to_owned()),
            }
        };
        if verb == '%' {
            out.push('%');
            continue;
        }
        let Some(value) = values.next() else {
            return Err("`format` has more verbs than values".to_owned());
        };
        if !value.is_known() {
            return Ok(Val::Unknown);
        }
        out.push_str(&padded(&verb_text(verb, &spec, value)?, &spec)?);
    }
    if values.next().is_some() {
        return Err("`format` has more values than verbs".to_owned());
    }
    Ok(Val::Text(out))
}

fn verb_text(verb: char, spec: &str, value: &Val) -> Result<String, String> {
    let wrong = || format!("`%{verb}` does not take {}", value.what());
    match verb {
        's' => value.in_template().ok_or_else(wrong),
        't' => match value {
            Val::Bool(value) => Ok(value.to_string()),
            _ => Err(wrong()),
        },
        'd' => match value {
            Val::Number(number) if number.is_i64() || number.is_u64() => Ok(number.to_string()),
            _ => Err(wrong()),
        },
        'f' => match value {
            Val::Number(number) => {
                let digits = spec
                    .split_once('.')
                    .and_then(|(_, digits)| digits.parse().ok());
                Ok(format!(
                    "{:.*}",
                    digits.unwrap_or(6),
                    number.as_f64().unwrap_or(0.0)
                ))
            }
            _ => Err(wrong()),
        },
        'q' => value
            .in_template()
            .map(|text| format!("{text:?}"))
            .ok_or_else(wrong),
        'v' => match value.in_template() {
            Some(text) => Ok(text),
            None => Ok(value
                .to_json()
                .map(|json| json.to_string())
                .unwrap_or_default()),
        },
        _ => Err(format!("`format` does not know `%{verb}`")),
    }
}

fn padded(text: &str, spec: &str) -> Result<String, String> {
    let spec = spec.split('.').next().unwrap_or_default();
    let left = spec.contains('-');
    let width = spec.trim_start_matches(['-', '+']);
    let zero = width.starts_with('0');
    let width: usize = match width {
        "" => 0,
        digits => digits
            .parse()
            .map_err(|_| "`format` does not know this verb".to_owned())?,
    };
    if width > 1024 {
        return Err("this width is too large".to_owned());
    }
    Ok(if left {
        format!("{text:<width$}")
    } else if zero {
        match text.strip_prefix('-') {
            Some(digits) => format!("-{digits:0>width$}", width = width.saturating_sub(1)),
            None => format!("{text:0>width$}"),
        }
    } else {
        format!("{text:>width$}")
    })
}
