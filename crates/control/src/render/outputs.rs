//! What comes out: plain files from an environment without secrets, and then, if there are any, the encrypted ones.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;

use drivers::process::Environment;
use drivers::render::disk::TemplateFile;
use drivers::render::{
    Bound, Disk, Reveal, TemplateError, TemplateText, Templates, read, read_data,
};
use drivers::secrets::{self, Reference, Sources, Surroundings};
use drivers::sops::{self, Format, Identities};
use globset::{GlobBuilder, GlobMatcher};
use model::diagnostic::{Finding, Location};
use model::project::Input;
use model::render::data::{Data, Node, SecretData};
use model::render::manifest::Manifest;
use model::render::{Render, is_secret_name};

use super::crew;
use super::inputs::Inputs;
use super::sealing::{SealError, Sealing};
use super::{Output, RenderError};

pub(super) struct Made {
    pub(super) outputs: BTreeMap<String, Output>,
    pub(super) not_opened: Vec<String>,
}

/// Renders everything. Where `known` is given and no key is at hand, encrypted files that are as it lists them are
/// taken as they are.
pub(super) async fn make(
    disk: &Disk,
    render: &Render,
    inputs: Inputs,
    env: &BTreeMap<String, String>,
    known: Option<&Manifest>,
) -> Result<Made, RenderError> {
    let mut making = Making {
        disk,
        render,
        findings: Vec::new(),
        outputs: BTreeMap::new(),
        secret: Vec::new(),
    };
    let Inputs {
        mut data,
        sealed,
        templates: files,
        texts,
        own,
        ..
    } = inputs;
    let sources: BTreeMap<String, TemplateText> = files
        .iter()
        .filter_map(|file| {
            let text = std::str::from_utf8(&file.bytes).ok()?.to_owned();
            let at = file.file.clone();
            Some((file.path.clone(), TemplateText { file: at, text }))
        })
        .collect();
    let texts = Texts {
        data: texts,
        templates: &sources,
    };
    let wrong = |findings: Vec<Finding>| RenderError::Wrong {
        name: render.name.clone(),
        texts: texts.of(&findings),
        findings,
    };
    let root = disk.root().to_owned();
    let templates = Templates::new(render, sources.clone(), root)
        .map_err(|err| wrong(vec![finding(&err, render)]))?;
    let bound = templates
        .bind(&data, Reveal::Nothing)
        .map_err(|err| wrong(vec![finding(&err, render)]))?;
    making.plain(&bound, &files, &own);
    making.findings.sort_by_key(place_of);
    if !making.findings.is_empty() {
        return Err(wrong(making.findings));
    }
    if making.secret.is_empty() {
        return Ok(Made {
            outputs: making.outputs,
            not_opened: Vec::new(),
        });
    }
    if let Err(err) = reveal(disk, render, &mut data, &sealed, env).await {
        return making.as_listed(known).ok_or(err);
    }
    let mut binds = Vec::new();
    let ways = (0..Reveal::ALTERNATES).map(Reveal::Alternate);
    for way in std::iter::once(Reveal::Everything).chain(ways) {
        let bound = templates.bind(&data, way);
        binds.push(bound.map_err(|err| wrong(vec![finding(&err, render)]))?);
    }
    match making.secret(&binds, env) {
        Err(RenderError::Seal(err)) if err.wants_key() => {
            making.as_listed(known).ok_or(RenderError::Seal(err))
        }
        Err(err) => Err(err),
        Ok(()) if making.findings.is_empty() => Ok(Made {
            outputs: making.outputs,
            not_opened: Vec::new(),
        }),
        Ok(()) => Err(wrong(making.findings)),
    }
}

/// Gives every secret its value.
async fn reveal(
    disk: &Disk,
    render: &Render,
    data: &mut Node,
    sealed: &[(String, String)],
    env: &BTreeMap<String, String>,
) -> Result<(), RenderError> {
    for (file, text) in sealed {
        let format = Format::of(Path::new(file)).unwrap_or(Format::Yaml);
        let failed = |source| SealError::Open {
            path: file.clone(),
            source: Box::new(source),
        };
        let identities = Identities::from_environment(env).map_err(SealError::Identities)?;
        let opened = sops::decrypt(text, format, &identities).map_err(failed)?;
        let plain = opened.plain(sops::Layout::default());
        if let Some(Ok(plain)) = read_data(file, plain.expose()) {
            unseal_from(data, &plain, file);
        }
    }
    let (programs, sources): (Environment, _) = (env.iter().collect(), Sources::default());
    for (name, input) in &render.secrets {
        let reference = reference(input).unwrap_or_default();
        let around = Surroundings {
            asker: env,
            root: disk.root(),
            env: &programs,
            sources: &sources,
        };
        let failed = |source| RenderError::Secret {
            name: name.clone(),
            source: Box::new(source),
        };
        let reference: Reference = reference.parse().map_err(failed)?;
        let secret = secrets::resolve(&reference, around).await.map_err(failed)?;
        let at = render.declared_at.clone();
        data.put(name, Node::new(Data::Secret(SecretData::text(secret)), at));
    }
    Ok(())
}

/// Only keys that the file gave: another may have been laid over it.
fn unseal_from(data: &mut Node, plain: &Node, file: &str) {
    let Data::Map(entries) = &mut data.data else {
        return;
    };
    for entry in entries {
        let own = plain.entries().iter().find(|own| own.key == entry.key);
        if let Some(own) = own.filter(|_| entry.node.at.file == file) {
            read::unseal(&mut entry.node, &own.node);
        }
    }
}

fn reference(input: &Input) -> Option<String> {
    match input {
        Input::Known(_) => None,
        Input::Expression(expression) => expression.needs.secrets.first().cloned(),
    }
}

struct Making<'m> {
    disk: &'m Disk,
    render: &'m Render,
    findings: Vec<Finding>,
    outputs: BTreeMap<String, Output>,
    /// Those that are to be encrypted: path, and what they are made from.
    secret: Vec<(String, TemplateFile)>,
}

impl Making<'_> {
    fn plain(&mut self, bound: &Bound<'_>, files: &[TemplateFile], own: &[String]) {
        let excluded: Vec<GlobMatcher> = self
            .render
            .exclude
            .iter()
            .filter_map(|raw| glob(raw))
            .collect();
        let when = self.conditions(bound);
        let mut taken: BTreeMap<String, usize> = BTreeMap::new();
        let mut plain: Vec<(String, &TemplateFile)> = Vec::new();
        for file in files {
            let name = file.path.rsplit('/').next().unwrap_or(&file.path);
            // As makejinja does: a pattern without a directory means the name.
            if excluded
                .iter()
                .any(|glob| glob.is_match(&file.path) || glob.is_match(name))
            {
                continue;
            }
            let path = self.render.output_of(&file.path);
            let below = path
                .strip_prefix(&self.render.output)
                .map_or(path.as_str(), |below| below.trim_start_matches('/'));
            if when
                .iter()
                .any(|(glob, is_true)| !is_true && glob.is_match(below))
            {
                continue;
            }
            if !self.may_be_made(&path, file, own) {
                continue;
            }
            match taken.entry(path.clone()) {
                Entry::Vacant(entry) => _ = entry.insert(file.layer),
                // As makejinja does: an earlier directory made it.
                Entry::Occupied(entry) if *entry.get() < file.layer => continue,
                Entry::Occupied(_) => {
                    let message = format!("`{path}` is made twice");
                    self.wrong("made-twice", message, file, "and by another file here");
                    continue;
                }
            }
            if is_secret_name(&path) {
                self.secret.push((path, file.clone()));
            } else {
                plain.push((path, file));
            }
        }
        let made = crew::each(&plain, |(_, file)| render_one(self.render, bound, file));
        for ((path, file), made) in plain.into_iter().zip(made) {
            if let Some(bytes) = self.take(made) {
                self.put(path, file, bytes, false);
            }
        }
    }

    /// Without what went wrong, which is told with all the rest.
    fn take(&mut self, made: Result<Option<Vec<u8>>, Finding>) -> Option<Vec<u8>> {
        made.unwrap_or_else(|finding| {
            self.findings.push(finding);
            None
        })
    }

    fn secret(
        &mut self,
        binds: &[Bound<'_>],
        env: &BTreeMap<String, String>,
    ) -> Result<(), RenderError> {
        let Some((real, others)) = binds.split_first() else {
            return Ok(());
        };
        for (path, file) in std::mem::take(&mut self.secret) {
            let before = self.findings.len();
            let Some(bytes) = self.take(render_one(self.render, real, &file)) else {
                let is_made = |other: &Bound<'_>| {
                    let text = other.render(&file.path);
                    text.is_ok_and(|text| !text.trim().is_empty())
                };
                if self.findings.len() == before && others.iter().any(is_made) {
                    self.in_clear(&path, &file, "whether it is made depends on a secret");
                }
                continue;
            };
            let rules: BTreeMap<&str, &[u8]> = self
                .outputs
                .iter()
                .map(|(path, output)| (path.as_str(), output.bytes.as_slice()))
                .collect();
            let sealing = Sealing::new(self.disk, &path, &rules, env)?;
            // Copied as it is: whoever put it there encrypted it.
            let is_sealed = !self.render.is_template(&file.path) && sealing.is_sealed(&bytes);
            if is_sealed {
                self.put(path, &file, bytes, true);
                continue;
            }
            let clear = sealing.clear(&bytes)?;
            if self.render.is_template(&file.path) {
                let mut shown = None;
                for other in others {
                    if let Ok(text) = other.render(&file.path) {
                        let is_same = sealing.clear(text.as_bytes())? == clear;
                        shown = Some(shown.unwrap_or(true) && is_same);
                    }
                }
                if shown != Some(true) {
                    self.in_clear(&path, &file, "what is not encrypted depends on a secret");
                    continue;
                }
            }
            let bytes = sealing.seal(&bytes)?;
            self.put(path, &file, bytes, true);
        }
        Ok(())
    }

    fn in_clear(&mut self, path: &str, file: &TemplateFile, label: &str) {
        let message = format!("a secret would stand in clear in `{path}`");
        let hint = "`.sops.yaml` leaves keys, and what its rule does not name, as they are: put the secret where it encrypts";
        let at = at_file(file);
        let finding = Finding::error("secret-in-clear", message).at(at, label);
        self.findings.push(finding.hint(hint));
    }

    /// The encrypted files as they are, if they are as listed.
    fn as_listed(&mut self, known: Option<&Manifest>) -> Option<Made> {
        let known = known?;
        let mut not_opened = Vec::new();
        let mut outputs = std::mem::take(&mut self.outputs);
        outputs.retain(|_, output| !output.is_encrypted);
        let listed = known.files.iter().filter(|(path, _)| is_secret_name(path));
        for (path, digest) in listed {
            let (facts, bytes) = self.disk.look(path).ok()??;
            if facts.digest != *digest {
                return None;
            }
            not_opened.push(path.clone());
            let output = Output {
                template: String::new(),
                bytes,
                is_executable: facts.is_executable,
                is_encrypted: true,
            };
            outputs.insert(path.clone(), output);
        }
        Some(Made {
            outputs,
            not_opened,
        })
    }

    fn put(&mut self, path: String, file: &TemplateFile, bytes: Vec<u8>, is_encrypted: bool) {
        let output = Output {
            template: file.file.clone(),
            bytes,
            is_executable: file.is_executable,
            is_encrypted,
        };
        self.outputs.insert(path, output);
    }

    /// Nothing is made over what it is made from, nor where Git and terrane keep theirs.
    fn may_be_made(&mut self, path: &str, file: &TemplateFile, own: &[String]) -> bool {
        let top = path.split('/').next().unwrap_or(path);
        let is_below = |dir: &String| {
            let rest = path.strip_prefix(dir.as_str());
            rest.is_some_and(|rest| rest.starts_with('/'))
        };
        let name = path.rsplit('/').next().unwrap_or(path);
        let what = if top == ".git" || top == ".terrane" {
            "nothing is rendered there"
        } else if self.render.templates.iter().any(is_below) {
            "this would be among the templates"
        } else if name == "terrane.hcl" || name.ends_with(".terrane.hcl") {
            "the project file says what is rendered, so it is not rendered itself"
        } else if own.iter().any(|own| own == path) {
            "it is read to make it"
        } else {
            return true;
        };
        self.wrong("own-input", format!("`{path}` cannot be made"), file, what);
        false
    }

    /// Which files are made at all.
    fn conditions(&mut self, bound: &Bound<'_>) -> Vec<(GlobMatcher, bool)> {
        let mut all = Vec::new();
        for (pattern, expression) in &self.render.when {
            match (glob(pattern), bound.is_true(expression)) {
                (Some(glob), Ok(is_true)) => all.push((glob, is_true)),
                (None, _) => self.findings.push(
                    Finding::error("invalid-value", format!("`{pattern}` of `when` is no glob"))
                        .at(self.render.declared_at.clone(), "here"),
                ),
                (_, Err(err)) => {
                    let mut finding = finding(&err, self.render);
                    finding.message = format!("`{pattern}` of `when`: {}", finding.message);
                    self.findings.push(finding);
                }
            }
        }
        all
    }

    fn wrong(&mut self, code: &'static str, message: String, file: &TemplateFile, label: &str) {
        let finding = Finding::error(code, message).at(at_file(file), label);
        self.findings.push(finding);
    }
}

/// The bytes that a file becomes; none if it becomes nothing.
fn render_one(
    render: &Render,
    bound: &Bound<'_>,
    file: &TemplateFile,
) -> Result<Option<Vec<u8>>, Finding> {
    if !render.is_template(&file.path) {
        return Ok(Some(file.bytes.clone()));
    }
    if std::str::from_utf8(&file.bytes).is_err() {
        let message = format!("template `{}` is not UTF-8", file.path);
        let finding = Finding::error("unreadable-template", message);
        return Err(finding.at(at_file(file), "this file"));
    }
    let text = bound.render(&file.path);
    let text = text.map_err(|err| finding(&err, render))?;
    let is_kept = render.keep_empty || !text.trim().is_empty();
    Ok(is_kept.then(|| text.into_bytes()))
}

/// In the order in which somebody mends them.
fn place_of(finding: &Finding) -> (String, usize) {
    let place = finding.places.first();
    place.map_or_else(Default::default, |place| {
        (place.at.file.clone(), place.at.line)
    })
}

fn at_file(file: &TemplateFile) -> Location {
    Location {
        file: file.file.clone(),
        line: 1,
        column: 1,
        ..Location::default()
    }
}

fn glob(raw: &str) -> Option<GlobMatcher> {
    let built = GlobBuilder::new(raw).literal_separator(true).build();
    Some(built.ok()?.compile_matcher())
}

fn finding(err: &TemplateError, render: &Render) -> Finding {
    let at = err.at.clone().unwrap_or_else(|| render.declared_at.clone());
    match &err.secret {
        None => Finding::error("template", err.message.clone()).at(at, "here"),
        Some(secret) => {
            let hint = if secret.contains('(') {
                "only files called `*.sops.*` may hold secrets".to_owned()
            } else {
                format!(
                    "only files called `*.sops.*` may hold secrets; `has(\"{}\")` asks whether it is there",
                    secret.split(['.', '[']).next().unwrap_or(secret)
                )
            };
            Finding::error("secret-in-plain-file", err.message.clone())
                .at(at, "a secret is looked at here")
                .hint(hint)
        }
    }
}

/// Where findings find their excerpts.
struct Texts<'t> {
    data: BTreeMap<String, String>,
    templates: &'t BTreeMap<String, TemplateText>,
}

impl Texts<'_> {
    fn of(&self, findings: &[Finding]) -> BTreeMap<String, String> {
        let mut all = self.data.clone();
        for place in findings.iter().flat_map(|finding| &finding.places) {
            let file = &place.at.file;
            let mut sources = self.templates.values();
            let source = sources.find(|source| source.file == *file);
            if let Some(source) = source.filter(|_| place.at.end > 0) {
                all.insert(file.clone(), source.text.clone());
            }
        }
        all
    }
}
