//! Downloads official release archives and verifies them: a pinned key must have signed their checksums.
//!
//! Not here: when a release is fetched and where it goes (`install`), the signature itself (`openpgp`).

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use aws_lc_rs::digest;
use model::project::engine::{EngineRequirement, Flavor};
use semver::Version;
use serde::Deserialize;

use super::install::InstallProgress;
use super::locate::allows;
use super::openpgp;
use crate::snapshot::hex;

/// Where the releases of one flavor are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseSource {
    pub flavor: Flavor,
    /// The address that contains the `{version}` directories.
    pub releases: String,
    /// A JSON document that lists all versions.
    pub index: String,
    /// The address of the public key, which must have the pinned fingerprint.
    pub key: String,
    pub fingerprint: String,
}

impl ReleaseSource {
    /// The vendors' own addresses.
    pub fn official(flavor: Flavor) -> Self {
        let (releases, index, key, fingerprint) = match flavor {
            Flavor::Tofu => (
                "https://github.com/opentofu/opentofu/releases/download",
                "https://get.opentofu.org/tofu/api.json",
                "https://get.opentofu.org/opentofu.asc",
                "E3E6E43D84CB852EADB0051D0C0AF313E5FD9F80",
            ),
            Flavor::Terraform => (
                "https://releases.hashicorp.com/terraform",
                "https://releases.hashicorp.com/terraform/index.json",
                "https://www.hashicorp.com/.well-known/pgp-key.txt",
                "C874011F0AB405110D02105534365D9472D7468F",
            ),
        };
        Self {
            flavor,
            releases: releases.to_owned(),
            index: index.to_owned(),
            key: key.to_owned(),
            fingerprint: fingerprint.to_owned(),
        }
    }

    /// A mirror of either flavor: `{base}/{flavor}/index.json`, `{base}/{flavor}/key.asc`, and the vendors' file
    /// names below that. The mirror need not be trusted: the pinned key decides.
    pub fn mirror(flavor: Flavor, base: impl AsRef<str>) -> Self {
        let base = format!("{}/{flavor}", base.as_ref().trim_end_matches('/'));
        Self {
            index: format!("{base}/index.json"),
            key: format!("{base}/key.asc"),
            releases: base,
            ..Self::official(flavor)
        }
    }

    fn file(&self, version: &Version, name: &str) -> String {
        let dir = match self.flavor {
            Flavor::Tofu => format!("v{version}"),
            Flavor::Terraform => version.to_string(),
        };
        format!("{}/{dir}/{name}", self.releases)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum FetchReleaseError {
    #[error("could not fetch `{url}`")]
    Fetch { url: String, source: reqwest::Error },
    #[error("`{url}` answered {status}")]
    Status { url: String, status: u16 },
    #[error("`{url}` is larger than {limit} bytes")]
    TooLarge { url: String, limit: u64 },
    #[error("`{url}` does not list versions")]
    Index { url: String },
    #[error("there is no release for this machine ({platform})")]
    Platform { platform: String },
    #[error("cannot trust the checksums of {engine}: {reason}")]
    Signature { engine: String, reason: String },
    #[error("`{archive}` has the checksum {seen}, but the signed one is {signed}")]
    Checksum {
        archive: String,
        signed: String,
        seen: String,
    },
    #[error("could not unpack `{archive}`")]
    Unpack { archive: String, source: io::Error },
    #[error("could not write to `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl FetchReleaseError {
    /// Whether the release could not be downloaded, as opposed to one that failed a check.
    pub(super) fn is_unreachable(&self) -> bool {
        match self {
            Self::Fetch { .. } | Self::Status { .. } | Self::Platform { .. } => true,
            Self::TooLarge { .. }
            | Self::Index { .. }
            | Self::Signature { .. }
            | Self::Checksum { .. }
            | Self::Unpack { .. }
            | Self::Write { .. } => false,
        }
    }
}

pub(super) struct Releases<'a> {
    source: &'a ReleaseSource,
    client: reqwest::Client,
}

impl<'a> Releases<'a> {
    pub(super) fn new(source: &'a ReleaseSource) -> Result<Self, FetchReleaseError> {
        let client = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(10))
            .read_timeout(Duration::from_secs(30))
            .user_agent(concat!("terrane/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|source_error| FetchReleaseError::Fetch {
                url: source.releases.clone(),
                source: source_error,
            })?;
        Ok(Self { source, client })
    }

    /// The newest released version that meets the requirement.
    pub(super) async fn newest(
        &self,
        requirement: &EngineRequirement,
    ) -> Result<Option<Version>, FetchReleaseError> {
        /// OpenTofu lists versions; Terraform uses them as keys.
        #[derive(Deserialize)]
        #[serde(untagged)]
        #[expect(
            clippy::zero_sized_map_values,
            reason = "the document is a map, and its values are megabytes of no use"
        )]
        enum Index {
            Listed {
                versions: Vec<Entry>,
            },
            Named {
                versions: std::collections::BTreeMap<String, serde::de::IgnoredAny>,
            },
        }
        #[derive(Deserialize)]
        struct Entry {
            id: String,
        }
        const LIMIT: u64 = 64 << 20;
        let bytes = self.fetch(&self.source.index, LIMIT).await?;
        let names: Vec<String> = match serde_json::from_slice(&bytes) {
            Ok(Index::Listed { versions }) => versions.into_iter().map(|it| it.id).collect(),
            Ok(Index::Named { versions }) => versions.into_keys().collect(),
            Err(_) => {
                return Err(FetchReleaseError::Index {
                    url: self.source.index.clone(),
                });
            }
        };
        let versions = names.iter().filter_map(|name| name.parse().ok());
        Ok(versions
            .filter(|version| allows(requirement, version))
            .max())
    }

    /// Downloads and verifies the release of this version, and unpacks its program into `dir`.
    pub(super) async fn unpack_into(
        &self,
        version: &Version,
        dir: &Path,
        progress: &mut (dyn FnMut(InstallProgress) + Send),
    ) -> Result<PathBuf, FetchReleaseError> {
        let program = self.source.flavor.program();
        let archive = format!("{program}_{version}_{}.zip", platform()?);
        let signed = self.signed_checksum(version, &archive).await?;

        let path = dir.join(&archive);
        let seen = self.download(version, &archive, &path, progress).await?;
        progress(InstallProgress::Verifying);
        if seen != signed {
            return Err(FetchReleaseError::Checksum {
                archive,
                signed,
                seen,
            });
        }
        progress(InstallProgress::Unpacking);
        let unpacked = unpack(&path, program, dir)
            .map_err(|source| FetchReleaseError::Unpack { archive, source })?;
        // On success, `dir` is kept as it is.
        let _ = std::fs::remove_file(path);
        Ok(unpacked)
    }

    /// The archive's checksum, from a list signed by the pinned key.
    async fn signed_checksum(
        &self,
        version: &Version,
        archive: &str,
    ) -> Result<String, FetchReleaseError> {
        const LIMIT: u64 = 4 << 20;
        let flavor = self.source.flavor;
        let sums_name = format!("{}_{version}_SHA256SUMS", flavor.program());
        let signature_name = match flavor {
            Flavor::Tofu => format!("{sums_name}.gpgsig"),
            Flavor::Terraform => format!("{sums_name}.sig"),
        };
        let sums = self
            .fetch(&self.source.file(version, &sums_name), LIMIT)
            .await?;
        let signature = self
            .fetch(&self.source.file(version, &signature_name), LIMIT)
            .await?;
        let key = self.fetch(&self.source.key, LIMIT).await?;
        let distrust = |reason: String| FetchReleaseError::Signature {
            engine: format!("{flavor} {version}"),
            reason,
        };
        openpgp::verify(&key, &self.source.fingerprint, &sums, &signature)
            .map_err(|err| distrust(err.to_string()))?;
        String::from_utf8_lossy(&sums)
            .lines()
            .filter_map(|line| line.split_once(char::is_whitespace))
            .find(|(_, name)| name.trim_start_matches([' ', '*']) == archive)
            .map(|(sum, _)| sum.to_ascii_lowercase())
            .ok_or_else(|| distrust(format!("`{archive}` is not among them")))
    }

    async fn fetch(&self, url: &str, limit: u64) -> Result<Vec<u8>, FetchReleaseError> {
        let mut response = self.open(url).await?;
        let mut bytes = Vec::new();
        while let Some(part) = next(&mut response, url).await? {
            bytes.extend_from_slice(&part);
            if bytes.len() as u64 > limit {
                return Err(FetchReleaseError::TooLarge {
                    url: url.to_owned(),
                    limit,
                });
            }
        }
        Ok(bytes)
    }

    /// Writes the archive to `path` and returns its SHA-256.
    async fn download(
        &self,
        version: &Version,
        archive: &str,
        path: &Path,
        progress: &mut (dyn FnMut(InstallProgress) + Send),
    ) -> Result<String, FetchReleaseError> {
        const LIMIT: u64 = 1 << 30;
        let url = self.source.file(version, archive);
        let written = |source| FetchReleaseError::Write {
            path: path.to_owned(),
            source,
        };
        let mut response = self.open(&url).await?;
        let total = response.content_length();
        let mut file = File::create(path).map_err(written)?;
        let mut sum = digest::Context::new(&digest::SHA256);
        let mut done = 0;
        progress(InstallProgress::Downloading { done, total });
        while let Some(part) = next(&mut response, &url).await? {
            sum.update(&part);
            file.write_all(&part).map_err(written)?;
            done += part.len() as u64;
            if done > LIMIT {
                return Err(FetchReleaseError::TooLarge { url, limit: LIMIT });
            }
            progress(InstallProgress::Downloading { done, total });
        }
        Ok(hex(sum.finish().as_ref()))
    }

    async fn open(&self, url: &str) -> Result<reqwest::Response, FetchReleaseError> {
        let response =
            self.client
                .get(url)
                .send()
                .await
                .map_err(|source| FetchReleaseError::Fetch {
                    url: url.to_owned(),
                    source,
                })?;
        if !response.status().is_success() {
            return Err(FetchReleaseError::Status {
                url: url.to_owned(),
                status: response.status().as_u16(),
            });
        }
        Ok(response)
    }
}

async fn next(
    response: &mut reqwest::Response,
    url: &str,
) -> Result<Option<impl AsRef<[u8]> + std::ops::Deref<Target = [u8]> + use<>>, FetchReleaseError> {
    response
        .chunk()
        .await
        .map_err(|source| FetchReleaseError::Fetch {
            url: url.to_owned(),
            source,
        })
}

/// `linux_amd64`, as both vendors write it.
fn platform() -> Result<String, FetchReleaseError> {
    let os = match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    };
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "arm" => "arm",
        other => {
            return Err(FetchReleaseError::Platform {
                platform: format!("{os}_{other}"),
            });
        }
    };
    Ok(format!("{os}_{arch}"))
}

fn unpack(archive: &Path, program: &str, dir: &Path) -> io::Result<PathBuf> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut archive = zip::ZipArchive::new(File::open(archive)?).map_err(io::Error::other)?;
    let mut entry = archive.by_name(program).map_err(io::Error::other)?;
    let path = dir.join(program);
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o755)
        .open(&path)?;
    io::copy(&mut entry, &mut file)?;
    file.sync_all()?;
    Ok(path)
}
