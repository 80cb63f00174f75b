//! The same for `.tf.json` or `.tofu.json` files, where expressions are templates inside strings.

use serde_json::{Map, Value, json};

use super::RewriteError;
use super::hcl::{Splice, early};
use crate::hcl::syntax::SourceFile;

/// The text with `var.NAME` replaced, if it occurs.
pub(super) fn rewrite(
    source: &SourceFile,
    splice: &mut Splice<'_>,
) -> Result<Option<String>, RewriteError> {
    let mut root: Value = serde_json::from_str(source.code())
        .map_err(|err| RewriteError::Unreadable(format!("`{}` is not JSON: {err}", source.path)))?;
    let before = root.clone();
    for (word, body) in each_field(&mut root) {
        match word.as_str() {
            "//" => {}
            "variable" => variables(body, splice),
            "terraform" => {
                if let Some(variable) = mention(body, splice) {
                    return Err(early(&variable, "a setting of the engine"));
                }
            }
            "module" => {
                for (name, call) in each_field(body) {
                    check_source(name, call, splice)?;
                    values(call, splice);
                }
            }
            "locals" => {
                for (name, value) in each_field(body) {
                    splice.local(name, |splice| values(value, splice));
                }
            }
            _ => values(body, splice),
        }
    }
    Ok((root != before).then(|| format!("{root:#}\n")))
}

fn variables(body: &mut Value, splice: &mut Splice<'_>) {
    for (name, variable) in each_field(body) {
        if splice.is_unknown(name) {
            *variable = json!({ "default": null });
            continue;
        }
        let Value::Object(fields) = variable else {
            continue;
        };
        if let Some(validation) = fields.get_mut("validation")
            && mention(validation, splice).is_some()
        {
            fields.remove("validation");
        }
    }
}

fn check_source(
    module: &str,
    call: &mut Value,
    splice: &mut Splice<'_>,
) -> Result<(), RewriteError> {
    for (name, value) in each_field(call) {
        if matches!(name.as_str(), "source" | "version")
            && let Some(variable) = mention(value, splice)
        {
            return Err(early(
                &variable,
                &format!("the {name} of module `{module}`"),
            ));
        }
    }
    Ok(())
}

/// The first unknown variable in a value, which is not changed.
fn mention(value: &Value, splice: &mut Splice<'_>) -> Option<String> {
    let mut copy = value.clone();
    splice.mention(|splice| values(&mut copy, splice))
}

fn values(value: &mut Value, splice: &mut Splice<'_>) {
    match value {
        Value::String(text) => {
            if let Some(new) = splice.template(text) {
                *text = new;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| values(item, splice)),
        Value::Object(fields) => {
            let old = std::mem::take(fields);
            for (key, mut field) in old {
                if key == "depends_on" {
                    references(&mut field, splice);
                } else {
                    values(&mut field, splice);
                }
                let key = splice.template(&key).unwrap_or(key);
                fields.insert(key, field);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// References are written without `${}`.
fn references(value: &mut Value, splice: &mut Splice<'_>) {
    for item in value.as_array_mut().into_iter().flatten() {
        if let Value::String(text) = item
            && let Some(new) = splice.bare(text)
        {
            *text = new;
        }
    }
}

/// The fields of an object, or of all objects in a list: JSON allows both.
fn each_field(value: &mut Value) -> Vec<(&String, &mut Value)> {
    let objects: Vec<&mut Map<String, Value>> = match value {
        Value::Object(fields) => vec![fields],
        Value::Array(items) => items.iter_mut().filter_map(Value::as_object_mut).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    objects.into_iter().flat_map(Map::iter_mut).collect()
}
