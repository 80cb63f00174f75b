//! Reads typed settings from a block whose values are known.
//!
//! Not here: what the file allows (`config`). Values from outputs are checked here for the first time.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::{Agent, AgentKind, Bootstrap, BootstrapAction, CommandStep, SecretObject};
use crate::base::diagnostic::Location;
use crate::base::duration::{self, EXAMPLES};
use crate::base::error::Explain as _;
use crate::base::exact_number;
use crate::base::secret::Secret;
use crate::stage::ResolvedBlock;
use crate::stage::kubernetes::{Kubeconfig, KubeconfigError};

/// An error in a `bootstrap` block. Never contains an attribute's value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bootstrap `{kind}`: {message}")]
pub struct BootstrapSettingError {
    pub kind: String,
    pub message: String,
    pub hint: Option<String>,
    pub at: Box<Location>,
}

impl Bootstrap {
    pub fn read(block: &ResolvedBlock) -> Result<Self, BootstrapSettingError> {
        let reader = Reader { block };
        let action = match block.kind.as_str() {
            "argocd" => BootstrapAction::Agent(reader.agent(AgentKind::Argocd)?),
            "flux" => BootstrapAction::Agent(reader.agent(AgentKind::Flux)?),
            "command" => BootstrapAction::Command(reader.command()?),
            other => return Err(reader.wrong(format!("there is no kind `{other}`"))),
        };
        let kubeconfig = reader.kubeconfig()?;
        let wants_cluster = matches!(action, BootstrapAction::Agent(_)) || !block.blocks.is_empty();
        if kubeconfig.is_none() && wants_cluster {
            let mut wrong = reader.wrong("`kubeconfig` has no value".to_owned());
            wrong.hint =
                Some("give it an output of the stack: `kubeconfig = output.kubeconfig`".to_owned());
            return Err(wrong);
        }
        let secrets = block.blocks.iter().filter(|inner| inner.kind == "secret");
        Ok(Self {
            action,
            kubeconfig,
            secrets: secrets
                .map(|inner| secret(inner, &reader))
                .collect::<Result<_, _>>()?,
            timeout: reader.duration("timeout")?,
            at: block.at.clone(),
        })
    }
}

fn secret(
    block: &ResolvedBlock,
    outer: &Reader<'_>,
) -> Result<SecretObject, BootstrapSettingError> {
    let reader = Reader { block };
    let named = |err: BootstrapSettingError| BootstrapSettingError {
        kind: outer.block.kind.clone(),
        message: format!("secret `{}`: {}", block.name, err.message),
        ..err
    };
    let read = || {
        let data = reader.texts_by_name("data")?;
        Ok(SecretObject {
            name: block.name.clone(),
            namespace: reader.required("namespace")?,
            kind: reader.text("type")?,
            labels: reader.texts_by_name("labels")?,
            data: data
                .into_iter()
                .map(|(key, value)| (key, Secret::new(value)))
                .collect(),
        })
    };
    read().map_err(named)
}

struct Reader<'a> {
    block: &'a ResolvedBlock,
}

impl Reader<'_> {
    fn agent(&self, kind: AgentKind) -> Result<Agent, BootstrapSettingError> {
        let agent = Agent {
            kind,
            version: self.required("version")?,
            namespace: self
                .text("namespace")?
                .unwrap_or_else(|| kind.namespace().to_owned()),
            manifests: self.texts("manifests")?,
            values: self.texts("values")?,
            digest: self.text("digest")?,
            root: self.texts("root")?,
            adopt: self.flag("adopt")?,
        };
        // It becomes part of a URL.
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-+_".contains(&byte);
        if !agent.version.bytes().all(plain) {
            return Err(self.wrong("`version` must be a version such as `v3.5.6`".to_owned()));
        }
        Ok(agent)
    }

    fn command(&self) -> Result<CommandStep, BootstrapSettingError> {
        let run = self.texts("run")?;
        if run.is_empty() {
            return Err(self.wrong("`run` names no program".to_owned()));
        }
        let env = self.texts_by_name("env")?.into_iter();
        Ok(CommandStep {
            run,
            env: env
                .map(|(name, value)| (name, Secret::new(value)))
                .collect(),
        })
    }

    fn kubeconfig(&self) -> Result<Option<(Kubeconfig, Secret)>, BootstrapSettingError> {
        let Some(value) = self.value("kubeconfig") else {
            return Ok(None);
        };
        let refused = |err: KubeconfigError| BootstrapSettingError {
            hint: err.hint(),
            ..self.wrong(err.to_string())
        };
        let config = Kubeconfig::from_value(value).map_err(refused)?;
        let text = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        Ok(Some((config, Secret::new(text))))
    }

    fn value(&self, name: &str) -> Option<&Value> {
        self.block.attrs.get(name).filter(|value| !value.is_null())
    }

    fn required(&self, name: &str) -> Result<String, BootstrapSettingError> {
        self.text(name)?
            .ok_or_else(|| self.wrong(format!("`{name}` has no value")))
    }

    fn text(&self, name: &str) -> Result<Option<String>, BootstrapSettingError> {
        match self.value(name) {
            None => Ok(None),
            Some(value) => match plain(value) {
                Some(text) => Ok(Some(text)),
                None => Err(self.wrong(format!("`{name}` must be a text"))),
            },
        }
    }

    fn flag(&self, name: &str) -> Result<bool, BootstrapSettingError> {
        match self.value(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(self.wrong(format!("`{name}` must be true or false"))),
        }
    }

    fn texts(&self, name: &str) -> Result<Vec<String>, BootstrapSettingError> {
        let wrong = || self.wrong(format!("`{name}` must be a list of texts"));
        match self.value(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => items
                .iter()
                .map(|item| plain(item).ok_or_else(wrong))
                .collect(),
            Some(single) => Ok(vec![plain(single).ok_or_else(wrong)?]),
        }
    }

    fn texts_by_name(&self, name: &str) -> Result<BTreeMap<String, String>, BootstrapSettingError> {
        match self.value(name) {
            None => Ok(BTreeMap::new()),
            Some(Value::Object(map)) => map
                .iter()
                .map(|(key, value)| {
                    let text = plain(value)
                        .or_else(|| composed(value))
                        .ok_or_else(|| self.wrong(format!("`{key}` in `{name}` has no value")))?;
                    Ok((key.clone(), text))
                })
                .collect(),
            Some(_) => Err(self.wrong(format!("`{name}` must be an object"))),
        }
    }

    fn duration(&self, name: &str) -> Result<Option<Duration>, BootstrapSettingError> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        match duration::parse(&text).filter(|time| !time.is_zero()) {
            Some(time) => Ok(Some(time)),
            None => Err(self.wrong(format!(
                "`{name}` must be a duration above zero, such as {EXAMPLES}"
            ))),
        }
    }

    fn wrong(&self, message: String) -> BootstrapSettingError {
        BootstrapSettingError {
            kind: self.block.kind.clone(),
            message,
            hint: None,
            at: Box::new(self.block.at.clone()),
        }
    }
}

/// A scalar value as text.
fn plain(value: &Value) -> Option<String> {
    if let Some(digits) = exact_number::digits(value) {
        return Some(digits.to_owned());
    }
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Lists and objects are passed on as JSON.
fn composed(value: &Value) -> Option<String> {
    (!value.is_null()).then(|| exact_number::write(value))
}
