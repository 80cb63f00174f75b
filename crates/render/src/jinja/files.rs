//! Functions that read files of the project, like the plugins of template authors: `age_key`, `github_deploy_key`
//! and others. Only encrypted files get their secret values.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minijinja::{Environment, Error, ErrorKind};
use model::render::Render;

use super::templates::{Reveal, TemplateText, refusal};

pub(super) fn add_to(
    env: &mut Environment<'static>,
    root: &Path,
    render: &Render,
    sources: &Arc<BTreeMap<String, TemplateText>>,
    reveal: Reveal,
    read: &FilesRead,
) {
    let place = FileAccess {
        root: root.to_owned(),
        reveal,
        read: read.clone(),
    };
    let here = place.clone();
    env.add_function("age_key", move |kind: &str, file: Option<&str>| {
        here.age_key(kind, file.unwrap_or("age.key"))
    });
    let here = place.clone();
    env.add_function("github_deploy_key", move |file: Option<&str>| {
        here.secret("github_deploy_key", file.unwrap_or("github-deploy.key"))
    });
    let here = place.clone();
    env.add_function("github_push_token", move |file: Option<&str>| {
        here.secret("github_push_token", file.unwrap_or("github-push-token.txt"))
    });
    let here = place.clone();
    env.add_function("cloudflare_tunnel_id", move |file: Option<&str>| {
        let tunnel = here.tunnel(file.unwrap_or("cloudflare-tunnel.json"))?;
        Ok::<_, Error>(tunnel.id)
    });
    let here = place;
    env.add_function("cloudflare_tunnel_secret", move |file: Option<&str>| {
        here.tunnel_secret(file.unwrap_or("cloudflare-tunnel.json"))
    });
    let sources = Arc::clone(sources);
    let suffix = format!(".yaml{}", render.suffix);
    env.add_function("talos_patches", move |name: &str| -> Vec<String> {
        let dir = format!("talos/patches/{name}/");
        let inside = sources.iter().filter(|(path, _)| {
            path.strip_prefix(&dir)
                .is_some_and(|rest| !rest.contains('/') && rest.ends_with(&suffix))
        });
        inside.map(|(_, source)| source.file.clone()).collect()
    });
}

/// The files that were read, by paths from the project's root. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct FilesRead(Arc<Mutex<BTreeSet<String>>>);

impl FilesRead {
    pub(super) fn all(&self) -> BTreeSet<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn add(&self, path: &Path) {
        let parts = path.components().filter_map(|part| match part {
            Component::Normal(part) => part.to_str(),
            _ => None,
        });
        let path = parts.collect::<Vec<_>>().join("/");
        let mut read = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        read.insert(path);
    }
}

#[derive(Clone)]
struct FileAccess {
    root: PathBuf,
    reveal: Reveal,
    read: FilesRead,
}

#[derive(serde::Deserialize)]
struct Tunnel {
    #[serde(rename = "AccountTag")]
    account: String,
    #[serde(rename = "TunnelID")]
    id: String,
    #[serde(rename = "TunnelSecret")]
    secret: String,
}

impl FileAccess {
    fn read(&self, file: &str) -> Result<String, Error> {
        let path = Path::new(file);
        let is_inside = path
            .components()
            .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !is_inside {
            let problem = format!("`{file}` points outside the project");
            return Err(Error::new(ErrorKind::InvalidOperation, problem));
        }
        self.read.add(path);
        fs::read_to_string(self.root.join(path)).map_err(|err| {
            let problem = format!("could not read `{file}`: {err}");
            Error::new(ErrorKind::InvalidOperation, problem)
        })
    }

    /// The secret, an alternate value, or an error, as `reveal` allows.
    fn give(&self, name: &str, file: &str, value: String) -> Result<String, Error> {
        match self.reveal {
            Reveal::Nothing => Err(refusal(&format!("{name}({file})"))),
            Reveal::Everything => Ok(value),
            Reveal::Alternate(which) => Ok(format!("alternate-{which}-of-{name}")),
        }
    }

    fn secret(&self, name: &str, file: &str) -> Result<String, Error> {
        let value = match self.reveal {
            Reveal::Nothing => String::new(),
            Reveal::Everything | Reveal::Alternate(_) => self.read(file)?.trim().to_owned(),
        };
        self.give(name, file, value)
    }

    fn age_key(&self, kind: &str, file: &str) -> Result<String, Error> {
        let wrong = |problem: String| Error::new(ErrorKind::InvalidOperation, problem);
        let find = |text: &str, start: &str| {
            let (_, after) = text.split_once(start)?;
            let end = after.find(|c: char| !c.is_alphanumeric() && c != '-');
            Some(after[..end.unwrap_or(after.len())].to_owned())
        };
        let read = || {
            if self.root.join(file).exists() {
                return self.read(file);
            }
            Err(wrong(format!(
                "there is no `{file}`: `age-keygen -o {file}` makes it"
            )))
        };
        match kind {
            "public" => {
                let found = find(&read()?, "# public key: ");
                found.ok_or_else(|| wrong(format!("`{file}` names no public key")))
            }
            "private" => {
                if self.reveal == Reveal::Nothing {
                    return self.give("age_key", file, String::new());
                }
                let found = find(&read()?, "AGE-SECRET-KEY-");
                let key = found.ok_or_else(|| wrong(format!("`{file}` holds no private key")))?;
                self.give("age_key", file, format!("AGE-SECRET-KEY-{key}"))
            }
            _ => Err(wrong(
                "`age_key` gives the `public` or the `private` key".to_owned(),
            )),
        }
    }

    fn tunnel(&self, file: &str) -> Result<Tunnel, Error> {
        serde_json::from_str(&self.read(file)?).map_err(|_| {
            let problem = format!("`{file}` is no description of a tunnel");
            Error::new(ErrorKind::InvalidOperation, problem)
        })
    }

    fn tunnel_secret(&self, file: &str) -> Result<String, Error> {
        if self.reveal == Reveal::Nothing {
            return self.give("cloudflare_tunnel_secret", file, String::new());
        }
        let Tunnel {
            account,
            id,
            secret,
        } = self.tunnel(file)?;
        // In the order and form that Python writes.
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let text = format!(
            "{{\"a\": {}, \"t\": {}, \"s\": {}}}",
            quoted(&account),
            quoted(&id),
            quoted(&secret)
        );
        self.give("cloudflare_tunnel_secret", file, STANDARD.encode(text))
    }
}
