//! The inputs of a rendering: data and templates, checked, without the values of secrets.

use std::collections::BTreeMap;

use model::base::diagnostic::{Finding, Location};
use model::project::Project;
use model::render::data::{Data, Node, SecretData};
use model::render::schema::Schema;
use model::render::{Render, Select, checks, names};
use serde_json::json;

use super::RenderError;
use super::data::{self, read_data};
use super::disk::{DiskError, ProjectFiles, TemplateFile, digest};

/// Increased when the same inputs give different output than before.
const GENERATION: u32 = 3;

pub(super) struct Inputs {
    pub(super) data: Node,
    /// Encrypted data files with their texts.
    pub(super) sealed: Vec<(String, String)>,
    pub(super) templates: Vec<TemplateFile>,
    /// Texts that findings may quote.
    pub(super) texts: BTreeMap<String, String>,
    settings: serde_json::Value,
    /// Paths that no output may use.
    pub(super) own: Vec<String>,
}

impl Inputs {
    pub(super) fn read(
        disk: &ProjectFiles,
        project: &Project,
        render: &Render,
    ) -> Result<Self, RenderError> {
        let mut reading = Reading {
            disk,
            render,
            findings: Vec::new(),
            texts: BTreeMap::new(),
            sealed: Vec::new(),
        };
        let data = reading.data()?;
        let data_is_read = reading.findings.is_empty();
        let schema = reading.schema()?;
        let templates = reading.templates()?;
        if data_is_read {
            reading.check(&data, schema.as_ref());
        }
        let Reading {
            findings,
            mut texts,
            sealed,
            ..
        } = reading;
        // A line of a file with secrets may be a secret.
        texts.retain(|file, _| {
            !data
                .secrets()
                .iter()
                .any(|(path, _)| stands_in(&data, path, file))
        });
        if !findings.is_empty() {
            return Err(RenderError::Wrong { findings, texts });
        }
        let mut own = vec![render.manifest_path()];
        own.extend(render.data.iter().cloned());
        own.extend(render.schema.clone());
        own.extend(
            project
                .renders
                .values()
                .map(Render::manifest_path)
                .filter(|path| *path != render.manifest_path()),
        );
        Ok(Self {
            data,
            sealed,
            templates,
            texts,
            settings: render.settings(),
            own,
        })
    }

    /// Changes with every input that affects the output, except the values of secrets: otherwise a reader of the
    /// list could test guessed passwords against it.
    pub(super) fn digest(&self) -> String {
        let templates: Vec<_> = self
            .templates
            .iter()
            .map(|file| match file.layer {
                0 => json!([file.path, digest(&file.bytes), file.is_executable]),
                layer => json!([file.path, digest(&file.bytes), file.is_executable, layer]),
            })
            .collect();
        let sealed: Vec<_> = self
            .sealed
            .iter()
            .map(|(file, text)| json!([file, digest(text.as_bytes())]))
            .collect();
        let whole = json!({
            "generation": GENERATION,
            "settings": self.settings,
            "data": self.data.outline(),
            "sealed": sealed,
            "templates": templates,
        });
        digest(whole.to_string().as_bytes())
    }
}

/// Whether the value at a path comes from a file.
fn stands_in(data: &Node, path: &str, file: &str) -> bool {
    let found: Result<Select, _> = path.parse();
    found.is_ok_and(|select| {
        let found = select.find(data);
        found.is_empty() || found.iter().any(|(_, node)| node.at.file == file)
    })
}

struct Reading<'r> {
    disk: &'r ProjectFiles,
    render: &'r Render,
    findings: Vec<Finding>,
    texts: BTreeMap<String, String>,
    sealed: Vec<(String, String)>,
}

impl Reading<'_> {
    fn data(&mut self) -> Result<Node, RenderError> {
        let at = self.render.declared_at.clone();
        let mut all = Node::map(at.clone());
        for file in &self.render.data {
            let Some(text) = self.text(file, "data file")? else {
                continue;
            };
            match read_data(file, &text) {
                Some(Ok(data)) if data::is_sealed(&data) => {
                    all.overlay(data::withhold(data));
                    self.sealed.push((file.clone(), text));
                    continue;
                }
                Some(Ok(data)) => all.overlay(data),
                Some(Err(err)) => {
                    let finding =
                        Finding::error("unreadable-data", err.problem.clone()).at(err.at, "here");
                    self.findings.push(finding);
                    // The positions of its secrets are unknown.
                    if !self.render.sensitive.is_empty() {
                        continue;
                    }
                }
                None => {
                    let message = format!("cannot determine the format of `{file}` from its name");
                    let finding = Finding::error("unreadable-data", message)
                        .at(at.clone(), "read for this")
                        .hint("data files end with `.yaml`, `.yml`, `.json` or `.toml`");
                    self.findings.push(finding);
                }
            }
            self.texts.insert(file.clone(), text);
        }
        all.fill(&self.render.defaults, &at);
        for name in self.render.secrets.keys() {
            let secret = Data::Secret(SecretData { value: None });
            all.put(name, Node::new(secret, at.clone()));
        }
        for path in &self.render.sensitive {
            match path.parse::<Select>() {
                Ok(select) => all.hide(&select),
                Err(err) => self.findings.push(
                    Finding::error("invalid-value", err.to_string()).at(at.clone(), "`sensitive`"),
                ),
            }
        }
        Ok(all)
    }

    fn templates(&mut self) -> Result<Vec<TemplateFile>, RenderError> {
        match self.disk.templates(&self.render.templates) {
            Ok(templates) => Ok(templates),
            Err(DiskError::NotADirectory { path }) => {
                let message = format!("there is no directory `{path}` of templates");
                let finding = Finding::error("missing-templates", message)
                    .at(self.render.place("templates"), "read for this")
                    .hint("paths count from the project's root");
                self.findings.push(finding);
                Ok(Vec::new())
            }
            Err(err) => Err(err.into()),
        }
    }

    fn check(&mut self, data: &Node, schema: Option<&Schema>) {
        let by_schema = schema.map(|schema| schema.check(data)).unwrap_or_default();
        let mut by_checks = checks::check(&self.render.checks, data);
        // A value of the wrong form is reported once.
        let place = |finding: &Finding| finding.places.first().map(|place| place.at.clone());
        by_checks.retain(|finding| {
            let is_form = finding.code == "not-an-address";
            !is_form || by_schema.iter().all(|other| place(other) != place(finding))
        });
        self.findings.extend(by_schema);
        self.findings.extend(by_checks);
        let unmatched = names::unmatched(self.render, data, schema);
        self.findings.extend(unmatched);
    }

    fn schema(&mut self) -> Result<Option<Schema>, RenderError> {
        let Some(file) = &self.render.schema else {
            return Ok(None);
        };
        let Some(text) = self.text(file, "schema")? else {
            return Ok(None);
        };
        match Schema::read(&text) {
            Ok(schema) => Ok(Some(schema)),
            Err(err) => {
                let at = Location {
                    file: file.clone(),
                    line: 1,
                    column: 1,
                    ..Location::default()
                };
                let finding = Finding::error("invalid-schema", format!("`{file}`: {err}"));
                self.findings.push(finding.at(at, "named as `schema`"));
                Ok(None)
            }
        }
    }

    fn text(&mut self, file: &str, what: &str) -> Result<Option<String>, RenderError> {
        let part = if what == "schema" { "schema" } else { "data" };
        let at = self.render.place(part);
        let Some(bytes) = self.disk.read(file)? else {
            let finding = Finding::error("missing-file", format!("there is no {what} `{file}`"))
                .at(at, "read for this")
                .hint("paths count from the project's root");
            self.findings.push(finding);
            return Ok(None);
        };
        if let Ok(text) = String::from_utf8(bytes) {
            return Ok(Some(text));
        }
        let finding = Finding::error("unreadable-data", format!("`{file}` is not UTF-8"));
        self.findings.push(finding.at(at, "read for this"));
        Ok(None)
    }
}
