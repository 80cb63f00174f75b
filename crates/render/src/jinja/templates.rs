//! Binds templates to data: evaluates expressions and renders files.
//!
//! **Secrets are absent from plain renderings.** A plain file is rendered in an environment without any secret:
//! each is replaced by an error value, which raises its error on use. So nothing that a template does can write a
//! secret into a plain file. Only files that are encrypted afterwards are rendered with the real values.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use minijinja::{Environment, Error, ErrorKind, Expression, Value, context};
use model::base::diagnostic::Location;
use model::base::masking::Mask;
use model::render::Render;
use model::render::data::{Data, MapKey, Node, SecretData};

use super::code::Code;
use super::environment::{FUEL, add_has, changes, environment};
use super::{alternate, dates, files, mutable, origin};

/// The start of the error for a withheld secret; the text up to `END` names the secret.
const WITHHELD: &str = "\u{2}withheld secret \u{2}";
const END: char = '\u{3}';

/// Marks error messages that quote no value, so that they may be shown.
const OPEN: char = '\u{4}';

/// Which secrets a rendering sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reveal {
    Nothing,
    Everything,
    /// Alternate values, with an index below [`Reveal::ALTERNATES`].
    Alternate(usize),
}

impl Reveal {
    pub(crate) const ALTERNATES: usize = alternate::COUNT;
}

/// Why a rendering failed. It contains no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct TemplateError {
    pub(crate) message: String,
    /// The position in a template.
    pub(crate) at: Option<Location>,
    /// The secret that it used without permission.
    pub(crate) secret: Option<String>,
}

/// The text of a template.
#[derive(Clone, Debug)]
pub(crate) struct TemplateText {
    /// The path from the project's root.
    pub(crate) file: String,
    pub(crate) text: String,
}

/// All templates of a render.
pub(crate) struct Templates {
    env: Environment<'static>,
    sources: Arc<BTreeMap<String, TemplateText>>,
    /// The same templates, rewritten for the engine.
    codes: Arc<BTreeMap<String, Code>>,
    render: Render,
    root: PathBuf,
    read: files::FilesRead,
}

impl Templates {
    /// `sources` has every text below the template directories, by its path there.
    pub(crate) fn new(
        render: &Render,
        sources: BTreeMap<String, TemplateText>,
        root: PathBuf,
    ) -> Result<Self, TemplateError> {
        let sources: BTreeMap<String, TemplateText> = sources
            .into_iter()
            .map(|(name, TemplateText { file, text })| {
                let text = with_newlines(text);
                (name, TemplateText { file, text })
            })
            .collect();
        let sources = Arc::new(sources);
        let (env, codes) = environment(render, &sources).map_err(|err| TemplateError {
            message: format!("the delimiters cannot be used: {err}"),
            at: None,
            secret: None,
        })?;
        Ok(Self {
            env,
            sources,
            codes,
            render: render.clone(),
            root,
            read: files::FilesRead::default(),
        })
    }

    /// The files of the project that templates have read so far.
    pub(crate) fn files_read(&self) -> BTreeSet<String> {
        self.read.all()
    }

    /// Binds the templates to data, including the values that the project file derives from it.
    pub(crate) fn bind(
        &self,
        data: &Node,
        reveal: Reveal,
    ) -> Result<BoundTemplates<'_>, TemplateError> {
        let mut bound = BoundTemplates {
            env: self.env.clone(),
            templates: self,
            reveal,
            mask: match reveal {
                Reveal::Nothing | Reveal::Alternate(_) => Mask::default(),
                Reveal::Everything => mask(data),
            },
        };
        // Debug mode keeps values in errors, so it is off where secrets are visible.
        bound.env.set_debug(reveal == Reveal::Nothing);
        files::add_to(
            &mut bound.env,
            &self.root,
            &self.render,
            &self.sources,
            reveal,
            &self.read,
        );
        let mut names = Vec::new();
        for entry in data.entries() {
            if let MapKey::Text(name) = &entry.key {
                let value = value(&entry.node, name, reveal);
                bound.env.add_global(name.clone(), value);
                names.push(name.clone());
            }
        }
        add_has(&mut bound.env, names.clone());
        let names: BTreeSet<String> = names.into_iter().collect();
        bound.add_values(&names, reveal)?;
        bound.add_each(data, reveal)?;
        if changes(&self.sources) {
            let shared = mutable::shared(&bound.env);
            mutable::add_to(&mut bound.env, shared);
        }
        Ok(bound)
    }
}

/// The source of an error.
#[derive(Clone, Copy)]
enum Within<'a> {
    Template(&'a str),
    /// An expression of the project file.
    Expression(&'a str),
}

/// Templates and data, ready to be rendered.
pub(crate) struct BoundTemplates<'t> {
    env: Environment<'static>,
    templates: &'t Templates,
    reveal: Reveal,
    mask: Mask,
}

impl BoundTemplates<'_> {
    /// Renders a template.
    pub(crate) fn render(&self, template: &str) -> Result<String, TemplateError> {
        let rendered = self
            .env
            .get_template(template)
            .and_then(|found| found.render(context! {}));
        let text = rendered.map_err(|err| self.error(&err, Within::Template(template)))?;
        // A list or a map that contains a withheld secret prints its error as text.
        if let Some(secret) = withheld(&text) {
            return Err(TemplateError {
                message: said(&secret),
                at: self.find(template, &secret),
                secret: Some(secret),
            });
        }
        Ok(text)
    }

    /// Whether an expression is true.
    pub(crate) fn is_true(&self, expression: &str) -> Result<bool, TemplateError> {
        let value = self.eval(expression, context! {});
        let value = value.map_err(|err| self.error(&err, Within::Expression(expression)))?;
        Ok(value.is_true())
    }

    fn eval(&self, expression: &str, with: Value) -> Result<Value, Error> {
        self.expression(expression)?.eval(with)
    }

    fn expression(&self, text: &str) -> Result<Expression<'_, 'static>, Error> {
        let code = Code::of_expression(text, self.env.syntax());
        self.env.compile_expression_owned(code.text)
    }

    /// Adds the names that expressions define, in order of dependency.
    fn add_values(
        &mut self,
        known: &BTreeSet<String>,
        reveal: Reveal,
    ) -> Result<(), TemplateError> {
        let values = self.templates.render.values.clone();
        let mut left: BTreeMap<String, String> = values
            .into_iter()
            .filter(|(name, _)| !known.contains(name))
            .collect();
        while !left.is_empty() {
            let mut ready = None;
            for (name, text) in &left {
                let compiled = self.expression(text);
                let compiled =
                    compiled.map_err(|err| self.in_block(("values", name), text, &err))?;
                let needs = compiled.undeclared_variables(false);
                if !needs.iter().any(|need| left.contains_key(need)) {
                    ready = Some(name.clone());
                    break;
                }
            }
            let Some(name) = ready else {
                let names: Vec<String> = left.keys().map(|name| format!("`{name}`")).collect();
                return Err(TemplateError {
                    message: format!("{} of `values` need each other", names.join(" and ")),
                    at: Some(self.templates.render.declared_at.clone()),
                    secret: None,
                });
            };
            let text = left.remove(&name).unwrap_or_default();
            let value = match self.eval(&text, context! {}) {
                Ok(value) => value,
                Err(err) => self.or_withheld(&err, reveal, ("values", &name), &text)?,
            };
            self.env.add_global(name, value);
        }
        Ok(())
    }

    /// Adds the computed keys of list items.
    fn add_each(&mut self, data: &Node, reveal: Reveal) -> Result<(), TemplateError> {
        for (list, keys) in self.templates.render.each.clone() {
            let Some(Data::List(items)) = data.get(&list).map(|node| &node.data) else {
                continue; // the schema reports it if it is required
            };
            let mut filled = Vec::new();
            for (index, item) in items.iter().enumerate() {
                let path = format!("{list}[{index}]");
                let own = value(item, &path, reveal);
                let mut pairs: Vec<(Value, Value)> = item
                    .entries()
                    .iter()
                    .map(|entry| {
                        let path = format!("{path}.{}", entry.key);
                        (key(&entry.key), value(&entry.node, &path, reveal))
                    })
                    .collect();
                for (name, text) in &keys {
                    if item.get(name).is_some() {
                        continue;
                    }
                    let made = self.eval(text, context! { item => own.clone() });
                    let made = match made {
                        Ok(made) => made,
                        Err(err) => {
                            let block = format!("each.{list}");
                            self.or_withheld(&err, reveal, (&block, name), text)?
                        }
                    };
                    pairs.push((Value::from(name.as_str()), made));
                }
                filled.push(match item.data {
                    Data::Map(_) => Value::from_pairs(pairs),
                    _ => own,
                });
            }
            self.env.add_global(list, Value::from(filled));
        }
        Ok(())
    }

    /// A value derived from a secret is a secret, too.
    fn or_withheld(
        &self,
        err: &Error,
        reveal: Reveal,
        part: (&str, &str),
        expression: &str,
    ) -> Result<Value, TemplateError> {
        let secret = err.detail().and_then(withheld);
        match (reveal, secret) {
            (Reveal::Nothing, Some(secret)) => Ok(missing(&secret)),
            (_, _) => Err(self.in_block(part, expression, err)),
        }
    }

    fn in_block(
        &self,
        (block, name): (&str, &str),
        expression: &str,
        err: &Error,
    ) -> TemplateError {
        let mut shown = self.error(err, Within::Expression(expression));
        let word = block.split('.').next().unwrap_or(block);
        shown.message = format!("`{name}` of `{word}`: {}", shown.message);
        let place = self.templates.render.place(&format!("{block}.{name}"));
        shown.at = Some(place);
        shown
    }

    /// An error that may be shown.
    fn error(&self, err: &Error, within: Within<'_>) -> TemplateError {
        let mut innermost = err;
        let mut secret = err.detail().and_then(withheld);
        let mut next = std::error::Error::source(err);
        while let Some(source) = next {
            if let Some(inner) = source.downcast_ref::<Error>() {
                if inner.line().is_some() || innermost.line().is_none() {
                    innermost = inner;
                }
                secret = secret.or_else(|| inner.detail().and_then(withheld));
            }
            next = source.source();
        }
        let message = match &secret {
            Some(secret) => said(secret),
            None => self.mask.mask_text(&self.words(innermost, within)),
        };
        let at = match within {
            Within::Expression(_) => None,
            Within::Template(template) => {
                let name = innermost.name().unwrap_or(template);
                self.place(name, innermost)
            }
        };
        TemplateError {
            message,
            at,
            secret,
        }
    }

    /// The engine's message. If secrets are visible, only for errors that quote the template and no value.
    fn words(&self, err: &Error, within: Within<'_>) -> String {
        let kind = match err.kind() {
            ErrorKind::UndefinedError => {
                return match self.quoted(err, within).or_else(|| self.undefined(within)) {
                    Some(name) => format!("`{name}` is not defined"),
                    None => "a name is not defined".to_owned(),
                };
            }
            ErrorKind::TemplateNotFound => "there is no such template".to_owned(),
            ErrorKind::UnknownFilter => "there is no such filter".to_owned(),
            ErrorKind::UnknownTest => "there is no such test".to_owned(),
            ErrorKind::UnknownFunction => "there is no such function".to_owned(),
            ErrorKind::UnknownMethod => "there is no such method".to_owned(),
            ErrorKind::OutOfFuel => {
                let most = FUEL / 1_000_000;
                return format!(
                    "this template was ended after {most} million steps: a loop goes over too much; shorten it, or split the template"
                );
            }
            kind => kind.to_string(),
        };
        let detail = err.detail().unwrap_or_default();
        if let Some(words) = detail.strip_prefix(OPEN) {
            return words.to_owned();
        }
        let quotes_no_value = matches!(
            err.kind(),
            ErrorKind::UnknownFilter
                | ErrorKind::UnknownTest
                | ErrorKind::UnknownFunction
                | ErrorKind::UnknownMethod
                | ErrorKind::SyntaxError
        );
        match (detail, err.kind()) {
            ("", _) => kind,
            (_, _) if !quotes_no_value && self.reveal != Reveal::Nothing => kind,
            ("recursion limit exceeded", _) => {
                "this includes, imports or calls itself without end".to_owned()
            }
            // The engine calls foreign types "plain object"; in data, those are dates.
            (detail, ErrorKind::InvalidOperation) => detail.replace("plain object", "date"),
            (detail, _) => format!("{kind}: {detail}").replace("plain object", "date"),
        }
    }

    /// The part of a template that an error points at, if it is short.
    fn quoted(&self, err: &Error, within: Within<'_>) -> Option<String> {
        let text = match within {
            Within::Expression(text) => {
                let code = Code::of_expression(text, self.env.syntax());
                text.get(code.written(err.range()?))?
            }
            Within::Template(template) => {
                let name = err.name().unwrap_or(template);
                let source = self.templates.sources.get(name)?;
                source.text.get(self.range(name, err)?)?
            }
        };
        let text = text.trim();
        (!text.is_empty() && text.len() <= 60 && !text.contains('\n')).then(|| text.to_owned())
    }

    /// An undefined name in an expression.
    fn undefined(&self, within: Within<'_>) -> Option<String> {
        let Within::Expression(text) = within else {
            return None;
        };
        let names = self.expression(text).ok()?.undeclared_variables(false);
        let mut names: Vec<String> = names.into_iter().collect();
        names.retain(|name| self.env.globals().all(|(known, _)| known != name));
        names.sort();
        names.into_iter().next()
    }

    /// The first occurrence of a secret's name in a template.
    fn find(&self, template: &str, secret: &str) -> Option<Location> {
        let name = secret.split(['.', '[']).next().unwrap_or(secret);
        let text = &self.templates.sources.get(template)?.text;
        let line = text.lines().position(|line| line.contains(name));
        self.line(template, line.map_or(1, |line| line + 1))
    }

    /// The position of an error, or else its line.
    fn place(&self, template: &str, err: &Error) -> Option<Location> {
        let line = self.line(template, err.line().unwrap_or(1))?;
        let text = &self.templates.sources.get(template)?.text;
        let Some(range) = self.range(template, err).filter(|range| {
            range.start >= line.start && range.end <= line.end && range.start < range.end
        }) else {
            return Some(line);
        };
        let before = text.get(line.start..range.start)?;
        Some(Location {
            column: line.column + before.chars().count(),
            start: range.start,
            end: range.end,
            ..line
        })
    }

    /// The range of an error in the original template.
    fn range(&self, template: &str, err: &Error) -> Option<Range<usize>> {
        let code = self.templates.codes.get(template)?;
        Some(code.written(err.range()?))
    }

    /// The template line that produced a line of the output, as far as the literal text shows.
    pub(crate) fn origin(&self, template: &str, made: &str) -> Option<Location> {
        let text = &self.templates.sources.get(template)?.text;
        let delimiters = &self.templates.render.delimiters;
        let lines = text.lines().enumerate().filter_map(|(index, line)| {
            let words = origin::likeness(line, made, delimiters)?;
            Some((words, index + 1))
        });
        let (_, number) = lines.max_by_key(|(words, number)| (*words, usize::MAX - number))?;
        self.line(template, number)
    }

    /// A line of a template.
    fn line(&self, template: &str, number: usize) -> Option<Location> {
        let TemplateText { file, text } = self.templates.sources.get(template)?;
        let mut start = 0;
        for (index, line) in text.split_inclusive('\n').enumerate() {
            if index + 1 == number {
                let body = line.trim_end();
                let indent = body.len() - body.trim_start().len();
                return Some(Location {
                    file: file.clone(),
                    line: number,
                    column: body[..indent].chars().count() + 1,
                    start: start + indent,
                    end: start + body.len(),
                });
            }
            start += line.len();
        }
        Some(Location {
            file: file.clone(),
            line: number,
            column: 1,
            start: text.len(),
            end: text.len(),
        })
    }
}

fn said(secret: &str) -> String {
    format!("this file is not encrypted, and it looks at the secret `{secret}`")
}

/// The withheld secret that a text names.
fn withheld(text: &str) -> Option<String> {
    let (_, after) = text.split_once(WITHHELD)?;
    let (secret, _) = after.split_once(END)?;
    Some(secret.to_owned())
}

/// An error that quotes nothing but the template.
pub(super) fn open_error(words: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("{OPEN}{words}"))
}

/// The placeholder of a withheld secret.
pub(super) fn missing(secret: &str) -> Value {
    Value::from(refusal(secret))
}

/// The error for the use of a withheld secret.
pub(super) fn refusal(secret: &str) -> Error {
    let detail = format!("{WITHHELD}{secret}{END}");
    Error::new(ErrorKind::InvalidOperation, detail)
}

fn value(node: &Node, path: &str, reveal: Reveal) -> Value {
    match &node.data {
        Data::Secret(secret) => secret_value(secret, path, reveal),
        Data::List(items) => items
            .iter()
            .enumerate()
            .map(|(index, item)| value(item, &format!("{path}[{index}]"), reveal))
            .collect::<Vec<Value>>()
            .into(),
        Data::Map(entries) => Value::from_pairs(entries.iter().map(|entry| {
            let path = format!("{path}.{}", entry.key);
            (key(&entry.key), value(&entry.node, &path, reveal))
        })),
        scalar => plain(scalar),
    }
}

fn secret_value(secret: &SecretData, path: &str, reveal: Reveal) -> Value {
    if secret.value.is_none() {
        return missing(path);
    }
    match reveal {
        Reveal::Nothing => missing(path),
        Reveal::Everything => plain(&Node::revealed(secret)),
        Reveal::Alternate(which) => plain(&alternate::alternate(secret, which)),
    }
}

fn plain(data: &Data) -> Value {
    match data {
        Data::Bool(value) => Value::from(*value),
        Data::Int(number) => match i64::try_from(*number) {
            Ok(number) => Value::from(number),
            Err(_) => Value::from(*number),
        },
        Data::Float(number) => Value::from(*number),
        Data::Text(text) => Value::from(text.as_str()),
        Data::Moment(text) => match dates::read(text) {
            Some(Ok(moment)) => Value::from_object(moment),
            Some(Err(_)) | None => Value::from(text.as_str()),
        },
        Data::Null | Data::List(_) | Data::Map(_) | Data::Secret(_) => Value::from(()),
    }
}

fn key(key: &MapKey) -> Value {
    match key {
        MapKey::Text(text) => Value::from(text.as_str()),
        MapKey::Int(number) => plain(&Data::Int(*number)),
        MapKey::Bool(value) => Value::from(*value),
        MapKey::Null => Value::from(()),
    }
}

/// Hides every secret in messages about a rendering that sees them.
fn mask(data: &Node) -> Mask {
    let secrets = data.secrets().into_iter();
    let texts = secrets.filter_map(|(_, secret)| Some(secret.value.as_ref()?.1.clone()));
    Mask::new(&texts.collect::<Vec<_>>())
}

/// Normalises line ends as Jinja2 does.
fn with_newlines(text: String) -> String {
    if text.contains('\r') {
        text.replace("\r\n", "\n").replace('\r', "\n")
    } else {
        text
    }
}
