//! The template environment: delimiters, the treatment of missing names, and all filters, tests and functions that
//! the engine lacks.
//!
//! Values that differ in each run (`random`, the time, environment variables) are not available: the same input
//! gives the same bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{AutoEscape, Environment, Error, UndefinedBehavior};
use model::render::{Render, UndefinedMode};

use super::code::Code;
use super::templates::TemplateText;
use super::{
    comparing, defaults, import_scope, literals, mutable, networks, percent, python, repr,
    variadic, views,
};

/// The instruction limit of one template, against endless loops.
pub(super) const FUEL: u64 = 200_000_000;

pub(super) fn environment(
    render: &Render,
    sources: &BTreeMap<String, TemplateText>,
) -> Result<(Environment<'static>, Arc<BTreeMap<String, Code>>), Error> {
    let mut env = Environment::new();
    let delimiters = render.delimiters.clone();
    let syntax = SyntaxConfig::builder()
        .block_delimiters(delimiters.block.0, delimiters.block.1)
        .variable_delimiters(delimiters.variable.0, delimiters.variable.1)
        .comment_delimiters(delimiters.comment.0, delimiters.comment.1)
        .trim_blocks(render.spaces.trim_blocks)
        .lstrip_blocks(render.spaces.lstrip_blocks)
        .keep_trailing_newline(render.spaces.keep_trailing_newline)
        .build()?;
    env.set_syntax(syntax);
    env.set_undefined_behavior(match render.undefined {
        UndefinedMode::Strict => UndefinedBehavior::Strict,
        UndefinedMode::Lenient => UndefinedBehavior::Lenient,
        UndefinedMode::Chainable => UndefinedBehavior::Chainable,
    });
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_fuel(Some(FUEL));
    let changes = changes(sources);
    let (open, close) = &render.delimiters.block;
    let code = |source: &TemplateText| {
        Code::of_template(&source.text, env.syntax(), (open, close), changes)
    };
    let codes = sources.iter();
    let codes = codes.map(|(name, source)| (name.clone(), code(source)));
    let codes: Arc<BTreeMap<String, Code>> = Arc::new(codes.collect());
    let seen = Arc::clone(&codes);
    env.set_loader(move |name| Ok(seen.get(name).map(|code| code.text.clone())));
    env.set_formatter(|out, state, value| {
        let is_plain = match value.kind() {
            ValueKind::Number => value.is_integer(),
            kind => !matches!(kind, ValueKind::Seq | ValueKind::Map | ValueKind::Bytes),
        };
        if is_plain {
            return minijinja::escape_formatter(out, state, value);
        }
        out.write_str(&repr::str(value)?).map_err(Error::from)
    });
    env.set_unknown_method_callback(python::method);
    // It prints every name with its value.
    env.remove_global("debug");
    python::add_to(&mut env);
    networks::add_to(&mut env);
    comparing::add_to(&mut env);
    percent::add_to(&mut env);
    literals::add_to(&mut env);
    views::add_to(&mut env);
    import_scope::add_to(&mut env);
    variadic::add_to(&mut env);
    defaults::add_to(&mut env);
    Ok((env, codes))
}

/// Whether any template changes a list or a map; if none does, the rewrite is skipped.
pub(super) fn changes(sources: &BTreeMap<String, TemplateText>) -> bool {
    let mut sources = sources.values();
    sources.any(|source| mutable::may_change(&source.text))
}

/// `has("name")`: whether the data contains a name, also allowed for a secret.
pub(super) fn add_has(env: &mut Environment<'static>, names: Vec<String>) {
    env.add_function("has", move |name: &str| -> bool {
        names.iter().any(|known| known == name)
    });
}
