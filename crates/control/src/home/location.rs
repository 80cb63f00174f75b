//! Where the store of a home is: a directory on this machine, or a database and a bucket that several
//! machines share. Written as `DIR` or `postgres://…?blobs=s3://BUCKET/PREFIX`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use model::base::error::{ErrorKind, Explain, NextStep, advice};
use model::base::secret::Secret;
use store::{BlobLocation, DatabaseLocation, Keyring, OpenMode, OpenStoreError, Store};

#[derive(Clone, Debug)]
pub enum HomeLocation {
    Directory(PathBuf),
    Shared(SharedHome),
}

/// A database for the tables, a bucket for the rest.
#[derive(Clone, Debug)]
pub struct SharedHome {
    /// May contain a password.
    database: Secret,
    blobs: String,
    /// Settings of the bucket's service from the environment, including credentials.
    settings: BTreeMap<String, Secret>,
}

#[derive(Debug, thiserror::Error)]
pub enum InvalidHomeLocation {
    #[error("the home `{scheme}://…` is neither a directory nor a database")]
    Scheme { scheme: String },
    #[error("the home `{scheme}://…` does not name a location for its blobs")]
    NoBlobs { scheme: String },
    #[error(
        "`blobs=` must name only a bucket: the given address contains credentials, which are not shown here"
    )]
    BlobsOpened,
}

impl Explain for InvalidHomeLocation {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Usage
    }

    fn next_steps(&self) -> Vec<NextStep> {
        vec![advice(match self {
            Self::Scheme { .. } => "name a directory, or `postgres://…?blobs=s3://BUCKET/PREFIX`",
            Self::NoBlobs { .. } => {
                "add `?blobs=s3://BUCKET/PREFIX` (or `az://`, `gs://`, `file:///DIR`)"
            }
            Self::BlobsOpened => {
                "set credentials in the service's own variables: `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, `AZURE_STORAGE_…`, `GOOGLE_…`"
            }
        })]
    }
}

impl HomeLocation {
    /// Parses what the user gave. `env` is only read for settings of the bucket's service.
    pub fn parse(
        text: &str,
        cwd: &Path,
        env: &BTreeMap<String, String>,
    ) -> Result<Self, InvalidHomeLocation> {
        let Some((scheme, _)) = text.split_once("://") else {
            return Ok(Self::Directory(cwd.join(text)));
        };
        let scheme = scheme.to_owned();
        if !matches!(scheme.as_str(), "postgres" | "postgresql") {
            return Err(InvalidHomeLocation::Scheme { scheme });
        }
        let (address, query) = text.split_once('?').unwrap_or((text, ""));
        let (blobs, rest): (Vec<&str>, Vec<&str>) = query
            .split('&')
            .filter(|part| !part.is_empty())
            .partition(|part| part.starts_with("blobs="));
        let blobs = blobs.first().and_then(|part| part.strip_prefix("blobs="));
        let Some(blobs) = blobs else {
            return Err(InvalidHomeLocation::NoBlobs { scheme });
        };
        let bucket = blobs.split_once("://").map_or("", |(_, rest)| rest);
        let bucket = bucket.split('/').next().unwrap_or(bucket);
        if bucket.contains('@') {
            return Err(InvalidHomeLocation::BlobsOpened);
        }
        let database = if rest.is_empty() {
            address.to_owned()
        } else {
            format!("{address}?{}", rest.join("&"))
        };
        let services = ["AWS_", "AZURE_", "GOOGLE_"];
        let settings = env
            .iter()
            .filter(|(name, _)| services.iter().any(|service| name.starts_with(service)))
            .map(|(name, value)| (name.clone(), Secret::new(value)));
        Ok(Self::Shared(SharedHome {
            database: Secret::new(database),
            blobs: blobs.to_owned(),
            settings: settings.collect(),
        }))
    }

    pub async fn open(&self, keys: Keyring, how: OpenMode) -> Result<Store, OpenStoreError> {
        self.open_with(async |tables, blobs| Store::open_with(tables, blobs, keys, how).await)
            .await
    }

    /// Opens the store to rebuild its tables from its files.
    pub(crate) async fn open_to_rebuild(&self, keys: Keyring) -> Result<Store, OpenStoreError> {
        self.open_with(async |tables, blobs| Store::open_to_rebuild(tables, blobs, keys).await)
            .await
    }

    async fn open_with(
        &self,
        open: impl AsyncFnOnce(DatabaseLocation<'_>, BlobLocation<'_>) -> Result<Store, OpenStoreError>,
    ) -> Result<Store, OpenStoreError> {
        match self {
            Self::Directory(dir) => {
                let file = dir.join("terrane.db");
                open(DatabaseLocation::File(&file), BlobLocation::Directory(dir)).await
            }
            Self::Shared(shared) => {
                let settings = shared.settings.iter();
                let settings = settings
                    .map(|(name, value)| (name.clone(), value.expose().to_owned()))
                    .collect();
                let blobs = BlobLocation::Bucket {
                    url: &shared.blobs,
                    settings: &settings,
                };
                open(DatabaseLocation::Postgres(&shared.database), blobs).await
            }
        }
    }

    /// The directory, if it is one.
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Self::Directory(dir) => Some(dir),
            Self::Shared(_) => None,
        }
    }

    /// A description without the password.
    pub fn describe(&self) -> String {
        match self {
            Self::Directory(dir) => dir.display().to_string(),
            Self::Shared(shared) => {
                let address = shared.database.expose();
                let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
                let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
                let rest = rest.split('?').next().unwrap_or(rest);
                format!("{scheme}://{rest} with {}", shared.blobs)
            }
        }
    }

    /// The values for a runner; they are never written to a disk.
    pub(crate) fn to_values(&self) -> Option<serde_json::Value> {
        match self {
            Self::Directory(_) => None,
            Self::Shared(shared) => {
                let settings = shared.settings.iter();
                let settings: BTreeMap<&String, &str> = settings
                    .map(|(name, value)| (name, value.expose()))
                    .collect();
                Some(serde_json::json!({
                    "database": shared.database.expose(),
                    "blobs": shared.blobs,
                    "settings": settings,
                }))
            }
        }
    }

    pub(crate) fn from_values(values: &serde_json::Value) -> Option<Self> {
        let text = |name: &str| values[name].as_str().map(str::to_owned);
        let settings = values["settings"].as_object()?.iter();
        let settings = settings
            .filter_map(|(name, value)| Some((name.clone(), Secret::new(value.as_str()?))))
            .collect();
        Some(Self::Shared(SharedHome {
            database: Secret::new(text("database")?),
            blobs: text("blobs")?,
            settings,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let env = BTreeMap::from([("AWS_REGION".to_owned(), "eu-1".to_owned())]);
        let seen = match HomeLocation::parse(text, Path::new("/here"), &env) {
            Ok(place) => place.describe(),
            Err(err) => format!("{err}: {}", err.hint().unwrap()),
        };
        assert_eq!(seen, expected, "{text}");
    }

    #[test]
    fn homes_as_people_write_them() {
        check("kept", "/here/kept");
        check("/srv/terrane", "/srv/terrane");
        check(
            "postgres://me:secret@db.example.io/terrane?sslmode=require&blobs=s3://states/prod",
            "postgres://db.example.io/terrane with s3://states/prod",
        );
        check(
            "postgres://db.example.io/terrane",
            "the home `postgres://…` does not name a location for its blobs: add `?blobs=s3://BUCKET/PREFIX` (or `az://`, `gs://`, `file:///DIR`)",
        );
        check(
            "postgres://db.example.io/terrane?blobs=s3://KEY:hunter2@states/prod",
            "`blobs=` must name only a bucket: the given address contains credentials, which are not shown here: set credentials in the service's own variables: `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, `AZURE_STORAGE_…`, `GOOGLE_…`",
        );
        check(
            "https://terrane.example.io",
            "the home `https://…` is neither a directory nor a database: name a directory, or `postgres://…?blobs=s3://BUCKET/PREFIX`",
        );
    }

    #[test]
    fn a_runner_gets_the_same_place() {
        let text = "postgresql://me:pw@h/d?blobs=gs://b/p&sslmode=disable";
        let env = BTreeMap::from([("GOOGLE_TOKEN".to_owned(), "t".to_owned())]);
        let place = HomeLocation::parse(text, Path::new("/"), &env).unwrap();
        let values = place.to_values().unwrap();
        let again = HomeLocation::from_values(&values).unwrap();
        assert_eq!(again.to_values().unwrap(), values);
        assert_eq!(values["database"], "postgresql://me:pw@h/d?sslmode=disable");
        assert_eq!(values["settings"]["GOOGLE_TOKEN"], "t");
    }
}
