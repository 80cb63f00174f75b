//! Produces an unknown value of a declared type with `terraform_data`: its `output` has the type of its `input`, and is
//! unknown until it is created.

use hcl_edit::expr::{Expression, FuncCall, ObjectKey};

/// A sample value of the type, which is never shown. None if only the real value determines the type.
pub(super) fn sample(declared: &str) -> Option<String> {
    of_type(&hcl_edit::parser::parse_expr(declared).ok()?)
}

/// An unknown value of which at most the collection type is known: `any`, `list(any)`.
pub(super) fn of_any(declared: Option<&str>, resource: &str) -> String {
    let value = format!("jsondecode(terraform_data.{resource}.id)");
    let kind = declared.map(|text| text.trim_start_matches(['"', ' ']));
    let is = |name: &str| kind.is_some_and(|kind| kind.starts_with(name));
    if is("list") {
        format!("tolist({value})")
    } else if is("set") {
        format!("toset({value})")
    } else if is("map") {
        format!("tomap({value})")
    } else {
        value
    }
}

pub(super) fn of_type(declared: &Expression) -> Option<String> {
    match declared {
        Expression::Variable(name) => of_word(name.as_str()),
        // The legacy notation: `type = "string"`.
        Expression::String(name) => of_word(name.as_str()),
        Expression::FuncCall(call) => of_call(call),
        _ => None,
    }
}

fn of_word(word: &str) -> Option<String> {
    let sample = match word {
        "string" => "\"\"",
        "number" => "0",
        "bool" => "false",
        _ => return None,
    };
    Some(sample.to_owned())
}

fn of_call(call: &FuncCall) -> Option<String> {
    let inner = call.args.get(0)?;
    match call.name.name.as_str() {
        "list" => Some(format!("tolist([{}])", of_type(inner)?)),
        "set" => Some(format!("toset([{}])", of_type(inner)?)),
        "map" => Some(format!("tomap({{ key = {} }})", of_type(inner)?)),
        "optional" => of_type(inner),
        "tuple" => {
            let items = inner.as_array()?.iter().map(of_type);
            let items = items.collect::<Option<Vec<String>>>()?;
            Some(format!("[{}]", items.join(", ")))
        }
        "object" => {
            let fields = inner.as_object()?.iter().map(|(key, value)| {
                let key = match key {
                    ObjectKey::Ident(name) => name.as_str(),
                    ObjectKey::Expression(Expression::Variable(name)) => name.as_str(),
                    ObjectKey::Expression(expr) => expr.as_str()?,
                };
                Some(format!("{key:?} = {}", of_type(value.expr())?))
            });
            let fields = fields.collect::<Option<Vec<String>>>()?;
            Some(format!("{{ {} }}", fields.join(", ")))
        }
        _ => None,
    }
}
