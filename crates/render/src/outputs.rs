//! Renders the outputs: plain files in an environment without secrets, and then the encrypted ones, if any.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use drivers::process::Environment;
use drivers::secrets::{self, SecretContext, SecretReference, SecretSources};
use drivers::sops::{self, Identities, SopsFormat};
use globset::{GlobBuilder, GlobMatcher};
use model::base::diagnostic::{Finding, Location};
use model::base::error::Explain as _;
use model::base::masking::MASKED;
use model::hcl::expression::Input;
use model::render::data::{Data, Node, SecretData};
use model::render::manifest::RenderManifest;
use model::render::names::unmatched_glob;
use model::render::{Render, is_secret_name};

use super::data::{self, read_data};
use super::disk::{ProjectFiles, TemplateFile};
use super::inputs::Inputs;
use super::jinja::{BoundTemplates, Reveal, TemplateError, TemplateText, Templates};
use super::parallel;
use super::sealing::{SealError, Sealing, key_here};
use super::{OutputFile, RenderError};

pub(super) struct GeneratedFiles {
    pub(super) outputs: BTreeMap<String, OutputFile>,
    pub(super) not_opened: Vec<String>,
    pub(super) warnings: Vec<Finding>,
    /// Files of the project that were read besides data and templates, such as key files.
    pub(super) read: BTreeSet<String>,
}

/// Renders everything. If `known` is given and no key is available, encrypted files that match its list are
/// accepted as they are. `anew`: an encrypted file that can no longer be opened is made again.
pub(super) async fn make(
    disk: &ProjectFiles,
    render: &Render,
    inputs: Inputs,
    env: &BTreeMap<String, String>,
    known: Option<&RenderManifest>,
    anew: bool,
) -> Result<GeneratedFiles, RenderError> {
    let mut making = Generator {
        disk,
        render,
        anew,
        findings: Vec::new(),
        warnings: Vec::new(),
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
    if !making.findings.is_empty() {
        making.look_at_secret(&bound);
        making.findings.sort_by_key(place_of);
        return Err(wrong(making.findings));
    }
    let mut read: BTreeSet<String> = render.secrets.values().filter_map(file_of).collect();
    if making.secret.is_empty() {
        read.extend(templates.files_read());
        return Ok(making.made(read));
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
    let done = making.secret(&binds, env);
    read.extend(templates.files_read());
    match done {
        Err(RenderError::Seal(err)) if err.wants_key() => {
            making.as_listed(known).ok_or(RenderError::Seal(err))
        }
        Err(err) => Err(err),
        Ok(()) if making.findings.is_empty() => Ok(making.made(read)),
        Ok(()) => Err(wrong(making.findings)),
    }
}

/// Sets the value of every secret.
async fn reveal(
    disk: &ProjectFiles,
    render: &Render,
    data: &mut Node,
    sealed: &[(String, String)],
    env: &BTreeMap<String, String>,
) -> Result<(), RenderError> {
    for (file, text) in sealed {
        let format = SopsFormat::of(Path::new(file)).unwrap_or(SopsFormat::Yaml);
        let failed = |source| SealError::Open {
            path: file.clone(),
            source: Box::new(source),
            key_here: key_here(disk),
        };
        let identities = Identities::from_environment(env).map_err(SealError::Identities)?;
        let opened = sops::decrypt(text, format, &identities).map_err(failed)?;
        let plain = opened.plain(sops::SopsLayout::default());
        if let Some(Ok(plain)) = read_data(file, plain.expose()) {
            unseal_from(data, &plain, file);
        }
    }
    let (programs, sources): (Environment, _) = (env.iter().collect(), SecretSources::default());
    let mut findings = Vec::new();
    for (name, input) in &render.secrets {
        let reference = reference(input).unwrap_or_default();
        let around = SecretContext {
            asker: env,
            root: disk.root(),
            env: &programs,
            sources: &sources,
        };
        let at = render.place(&format!("secrets.{name}"));
        let resolved = match reference.parse::<SecretReference>() {
            Ok(reference) => secrets::resolve(&reference, around).await,
            Err(err) => Err(err),
        };
        match resolved {
            Ok(secret) => {
                data.put(name, Node::new(Data::Secret(SecretData::text(secret)), at));
            }
            Err(err) => {
                let message = format!("could not resolve the secret `{name}`: {}", causes(&err));
                let finding =
                    Finding::error("missing-secret", message).at(at, "`secrets` names it here");
                let hint = err.hint();
                findings.push(hint.into_iter().fold(finding, Finding::hint));
            }
        }
    }
    if findings.is_empty() {
        return Ok(());
    }
    Err(RenderError::Wrong {
        findings,
        texts: BTreeMap::new(),
    })
}

/// An error with its chain of causes.
fn causes(err: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(err), |err| err.source());
    let words: Vec<String> = causes.map(ToString::to_string).collect();
    words.join(": ")
}

/// Sets only keys that come from this file: another file may override it.
fn unseal_from(data: &mut Node, plain: &Node, file: &str) {
    let Data::Map(entries) = &mut data.data else {
        return;
    };
    for entry in entries {
        let own = plain.entries().iter().find(|own| own.key == entry.key);
        if let Some(own) = own.filter(|_| entry.node.at.file == file) {
            data::unseal(&mut entry.node, &own.node);
        }
    }
}

fn reference(input: &Input) -> Option<String> {
    match input {
        Input::Known(_) => None,
        Input::Expression(expression) => expression.needs.secrets.first().cloned(),
    }
}

/// The file of the project that a reference names, if any: `file:PATH`, `sops:PATH#KEY`.
fn file_of(input: &Input) -> Option<String> {
    let reference = reference(input)?;
    let (_, place) = reference.split_once(':')?;
    let file = place.split('#').next().unwrap_or(place);
    Some(file.trim_start_matches("./").to_owned())
}

struct Generator<'m> {
    disk: &'m ProjectFiles,
    render: &'m Render,
    anew: bool,
    findings: Vec<Finding>,
    warnings: Vec<Finding>,
    outputs: BTreeMap<String, OutputFile>,
    /// The files to encrypt: path and template.
    secret: Vec<(String, TemplateFile)>,
}

impl Generator<'_> {
    fn plain(&mut self, bound: &BoundTemplates<'_>, files: &[TemplateFile], own: &[String]) {
        let excluded: Vec<GlobMatcher> = self
            .render
            .exclude
            .iter()
            .filter_map(|raw| glob(raw))
            .collect();
        let when = self.conditions(bound);
        self.check_globs(files, &excluded, &when);
        let mut taken: BTreeMap<String, usize> = BTreeMap::new();
        let mut plain: Vec<(String, &TemplateFile)> = Vec::new();
        for file in files {
            if excluded.iter().any(|glob| names(glob, file)) {
                continue;
            }
            let path = self.render.output_of(&file.path);
            let below = self.below(&path);
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
                // Like makejinja: an earlier directory takes precedence.
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
        let made = parallel::each(&plain, |(_, file)| render_one(self.render, bound, file));
        for ((path, file), made) in plain.into_iter().zip(made) {
            if let Some(bytes) = self.take(made) {
                self.put(path, file, bytes, false);
            }
        }
    }

    /// A generated file's path below the output directory.
    fn below<'p>(&self, path: &'p str) -> &'p str {
        path.strip_prefix(&self.render.output)
            .map_or(path, |below| below.trim_start_matches('/'))
    }

    /// Reports patterns of `when` and `exclude` that match nothing: otherwise a typo would silently add or omit a
    /// file.
    fn check_globs(
        &mut self,
        files: &[TemplateFile],
        excluded: &[GlobMatcher],
        when: &[(GlobMatcher, bool)],
    ) {
        for glob in excluded {
            if !files.iter().any(|file| names(glob, file)) {
                let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
                let raw = glob.glob().glob();
                let warning = unmatched_glob(self.render, "exclude", raw, &paths, false);
                self.warnings.push(warning);
            }
        }
        let kept = files
            .iter()
            .filter(|file| !excluded.iter().any(|glob| names(glob, file)));
        let made: Vec<String> = kept.map(|file| self.render.output_of(&file.path)).collect();
        let made: Vec<&str> = made.iter().map(|path| self.below(path)).collect();
        for (glob, _) in when {
            if !made.iter().any(|path| glob.is_match(path)) {
                let raw = glob.glob().glob();
                let error = unmatched_glob(self.render, "when", raw, &made, true);
                self.findings.push(error);
            }
        }
    }

    /// Reports errors in the templates of encrypted files that occur even without secrets, together with all
    /// others.
    fn look_at_secret(&mut self, bound: &BoundTemplates<'_>) {
        for (_, file) in &self.secret {
            if !self.render.is_template(&file.path) {
                continue;
            }
            if let Err(err) = bound.render(&file.path)
                && err.secret.is_none()
            {
                self.findings.push(finding(&err, self.render));
            }
        }
    }

    fn made(self, read: BTreeSet<String>) -> GeneratedFiles {
        GeneratedFiles {
            outputs: self.outputs,
            not_opened: Vec::new(),
            warnings: self.warnings,
            read,
        }
    }

    /// Returns the content, and records a finding for later.
    fn take(&mut self, made: Result<Option<Vec<u8>>, Finding>) -> Option<Vec<u8>> {
        made.unwrap_or_else(|finding| {
            self.findings.push(finding);
            None
        })
    }

    fn secret(
        &mut self,
        binds: &[BoundTemplates<'_>],
        env: &BTreeMap<String, String>,
    ) -> Result<(), RenderError> {
        let Some((real, others)) = binds.split_first() else {
            return Ok(());
        };
        for (path, file) in std::mem::take(&mut self.secret) {
            let before = self.findings.len();
            let Some(bytes) = self.take(render_one(self.render, real, &file)) else {
                let is_made = |other: &BoundTemplates<'_>| {
                    let text = other.render(&file.path);
                    text.is_ok_and(|text| !text.trim().is_empty())
                };
                if self.findings.len() == before && others.iter().any(is_made) {
                    let at = at_file(&file);
                    self.in_clear(&path, at, "whether it is made depends on a secret");
                }
                continue;
            };
            let rules: BTreeMap<&str, &[u8]> = self
                .outputs
                .iter()
                .map(|(path, output)| (path.as_str(), output.bytes.as_slice()))
                .collect();
            let sealing = Sealing::new(self.disk, &path, &rules, env)?;
            // A copied file that its author has already encrypted.
            let is_sealed = !self.render.is_template(&file.path) && sealing.is_sealed(&bytes);
            if is_sealed {
                self.put(path, &file, bytes, true);
                continue;
            }
            let clear = match sealing.clear(&bytes) {
                Ok(clear) => clear,
                Err(err) => {
                    let shown = unreadable(err, &path, &file, &bytes, &sealing, binds)?;
                    self.findings.push(shown);
                    continue;
                }
            };
            if self.render.is_template(&file.path) {
                let mut shown = None;
                let mut at = None;
                for other in others {
                    if let Ok(text) = other.render(&file.path) {
                        let other = sealing.clear(text.as_bytes()).unwrap_or_default();
                        shown = Some(shown.unwrap_or(true) && other == clear);
                        let made = String::from_utf8_lossy(&bytes);
                        let line = in_clear((&made, &clear), (&text, &other));
                        at = at.or_else(|| real.origin(&file.path, line?));
                    }
                }
                if shown != Some(true) {
                    let at = at.unwrap_or_else(|| at_file(&file));
                    self.in_clear(&path, at, "what is not encrypted depends on a secret");
                    continue;
                }
            }
            let sealed = sealing.seal(&bytes, self.anew)?;
            let changes = sealing.changes(&sealed);
            self.put(path.clone(), &file, sealed, true);
            if let Some(output) = self.outputs.get_mut(&path) {
                output.changes = changes;
            }
        }
        Ok(())
    }

    fn in_clear(&mut self, path: &str, at: Location, label: &str) {
        let message = format!("a secret would stand in clear in `{path}`");
        let hint = "`.sops.yaml` leaves keys, and what its rule does not name, as they are: put the secret where it encrypts";
        let finding = Finding::error("secret-in-clear", message).at(at, label);
        self.findings.push(finding.hint(hint));
    }

    /// The existing encrypted files, if they match the list.
    fn as_listed(&mut self, known: Option<&RenderManifest>) -> Option<GeneratedFiles> {
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
            let output = OutputFile {
                template: String::new(),
                bytes,
                is_executable: facts.is_executable,
                is_encrypted: true,
                changes: None,
            };
            outputs.insert(path.clone(), output);
        }
        Some(GeneratedFiles {
            outputs,
            not_opened,
            warnings: std::mem::take(&mut self.warnings),
            read: BTreeSet::new(), // nothing is written, so nothing is removed
        })
    }

    fn put(&mut self, path: String, file: &TemplateFile, bytes: Vec<u8>, is_encrypted: bool) {
        let output = OutputFile {
            template: file.file.clone(),
            bytes,
            is_executable: file.is_executable,
            is_encrypted,
            changes: None,
        };
        self.outputs.insert(path, output);
    }

    /// Whether a path may be generated: it must not replace an input or a file of Git or terrane.
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

    /// Evaluates the conditions of `when`.
    fn conditions(&mut self, bound: &BoundTemplates<'_>) -> Vec<(GlobMatcher, bool)> {
        let mut all = Vec::new();
        for (pattern, expression) in &self.render.when {
            match (glob(pattern), bound.is_true(expression)) {
                (Some(glob), Ok(is_true)) => all.push((glob, is_true)),
                (None, _) => self.findings.push(
                    Finding::error("invalid-value", format!("`{pattern}` of `when` is no glob"))
                        .at(self.render.place(&format!("when.{pattern}")), "here"),
                ),
                (_, Err(mut err)) => {
                    err.at = Some(self.render.place(&format!("when.{pattern}")));
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

/// The finding for a text that cannot be encrypted, without quoting any secret.
fn unreadable(
    err: SealError,
    path: &str,
    file: &TemplateFile,
    bytes: &[u8],
    sealing: &Sealing<'_>,
    binds: &[BoundTemplates<'_>],
) -> Result<Finding, SealError> {
    let Some((line, problem)) = err.in_text() else {
        return Err(err);
    };
    // A message that is the same for all values of the secrets quotes none of them.
    let is_same = |other: &BoundTemplates<'_>| {
        let text = other.render(&file.path);
        let clear = text.ok().map(|text| sealing.clear(text.as_bytes()));
        let said = clear.and_then(|clear| Some(clear.err()?.in_text()?.1.to_owned()));
        said.as_deref() == Some(problem)
    };
    let mut others = binds.iter().skip(1);
    let problem = if others.all(is_same) {
        problem.to_owned()
    } else {
        without_quotes(problem)
    };
    let text = String::from_utf8_lossy(bytes);
    let made = text.lines().take(line).last().unwrap_or_default();
    let at = binds
        .first()
        .and_then(|real| real.origin(&file.path, made))
        .unwrap_or_else(|| at_file(file));
    let message = format!("what this makes cannot be encrypted: {problem}");
    let label = format!("line {line} of `{path}`");
    Ok(Finding::error("unreadable-output", message).at(at, label))
}

/// The text with every quoted part hidden.
fn without_quotes(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let parts = parts.map(|(index, part)| if index % 2 == 1 { MASKED } else { part });
    parts.collect::<Vec<_>>().join("`")
}

/// The output line with a clear part that changes with the secret. Each argument is a text and its clear part.
fn in_clear<'t>(one: (&'t str, &str), other: (&str, &str)) -> Option<&'t str> {
    let mut others = other.1.lines();
    let clear = one.1.lines().find(|line| others.next() != Some(*line))?;
    let (key, _) = clear.split_once(": ").unwrap_or((clear, ""));
    let key = key.trim_matches(|c: char| !c.is_alphanumeric());
    let mut lines = one.0.lines().zip(other.0.lines());
    let found = lines.find(|(line, other)| line != other && line.contains(key))?;
    Some(found.0)
}

/// Whether a pattern matches a file. Like makejinja: a pattern without a directory matches the name.
fn names(glob: &GlobMatcher, file: &TemplateFile) -> bool {
    let name = file.path.rsplit('/').next().unwrap_or(&file.path);
    glob.is_match(&file.path) || glob.is_match(name)
}

/// The output of one template; `None` if the file is not made.
fn render_one(
    render: &Render,
    bound: &BoundTemplates<'_>,
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

/// Sorts findings by position.
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

/// The texts for excerpts of findings.
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
