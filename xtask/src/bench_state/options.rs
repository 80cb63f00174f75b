//! The options of `cargo xtask bench-state`. The table reports services that are not given.

use std::path::{Path, PathBuf};

use super::service::ServiceKind;

#[derive(Debug)]
pub(crate) struct StateBenchOptions {
    pub(crate) terrane: PathBuf,
    /// The directory of `initdb` and `postgres`.
    pub(crate) postgres: Option<PathBuf>,
    pub(crate) nimbolus: Option<PathBuf>,
    pub(crate) tfstated: Option<PathBuf>,
    pub(crate) seconds: u64,
    pub(crate) rounds: usize,
    /// Limits the bench to one size or one number of clients, for an investigation.
    pub(crate) resources: Option<usize>,
    pub(crate) clients: Option<usize>,
}

impl StateBenchOptions {
    pub(crate) fn parse(root: &Path, args: &[&str]) -> Result<Self, String> {
        let mut options = Self {
            terrane: root.join("target/release/terrane"),
            postgres: None,
            nimbolus: None,
            tfstated: None,
            seconds: 3,
            rounds: 3,
            resources: None,
            clients: None,
        };
        let mut args = args.iter();
        while let Some(option) = args.next() {
            let value = *args
                .next()
                .ok_or_else(|| format!("`{option}` requires a value"))?;
            let number = || {
                let wrong = |_| format!("`{option}` must be a number, not `{value}`");
                value.parse::<u64>().map_err(wrong)
            };
            match *option {
                "--terrane" => options.terrane = value.into(),
                "--postgres" => options.postgres = Some(value.into()),
                "--nimbolus" => options.nimbolus = Some(value.into()),
                "--tfstated" => options.tfstated = Some(value.into()),
                "--seconds" => options.seconds = number()?,
                "--rounds" => options.rounds = usize::try_from(number()?).unwrap_or(1),
                "--resources" => options.resources = usize::try_from(number()?).ok(),
                "--clients" => options.clients = usize::try_from(number()?).ok(),
                _ => return Err(format!("there is no option `{option}`")),
            }
        }
        Ok(options)
    }

    /// Whether a cell of the table is selected.
    pub(crate) fn wants(&self, resources: usize, clients: usize) -> bool {
        let is_wanted = |wish: Option<usize>, it| wish.is_none_or(|wish| wish == it);
        is_wanted(self.resources, resources) && is_wanted(self.clients, clients)
    }

    /// Why a service cannot be measured here.
    pub(crate) fn missing(&self, kind: ServiceKind) -> Option<&'static str> {
        let postgres = self.postgres.is_none().then_some("PostgreSQL is not here");
        let nimbolus = self
            .nimbolus
            .is_none()
            .then_some("`terraform-backend` is not on PATH");
        match kind {
            ServiceKind::TerraneSqlite => None,
            ServiceKind::TerranePostgres => postgres,
            ServiceKind::NimbolusFiles => nimbolus,
            ServiceKind::NimbolusPostgres => nimbolus.or(postgres),
            ServiceKind::Tfstated => self
                .tfstated
                .is_none()
                .then_some("`tfstated` is not on PATH"),
        }
    }
}
