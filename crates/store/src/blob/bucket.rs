//! A bucket that several machines share: S3 and compatible services, Azure Blob, Google Cloud Storage, or a directory.
//! Objects are only created, each under a name that is used once (except a key that is wrapped again). The service
//! only has to support create-if-absent.
//!
//! Not here: which objects are in use, and when one is removed (`state::sweep`).

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::TryStreamExt as _;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::prefix::PrefixStore;
use object_store::{
    GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, PutPayload,
    RetryConfig,
};
use tokio::runtime::Handle;

mod error;

pub use error::{BucketError, BucketFault};

use crate::StoreError;
use crate::blob::segments::FrameLocation;
use crate::blob::segments::Staged;
use crate::blob::segments::frame::Frame;

/// How many markers wait for an object to carry them. Older ones are dropped: the next version of the state proves as
/// much.
const MOST_MARKERS: usize = 4096;

#[derive(Clone)]
pub(crate) struct Bucket {
    url: Arc<str>,
    objects: Arc<dyn ObjectStore>,
    /// Calls come from threads that may block.
    runtime: Handle,
    markers: Arc<Mutex<Vec<u8>>>,
    /// The path, if it is a directory.
    root: Option<Arc<Path>>,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenBucketError {
    #[error(
        "`{url}` is not a bucket address: `s3://BUCKET/PREFIX`, `az://CONTAINER/PREFIX`, `gs://BUCKET/PREFIX` or `file:///DIR` is expected"
    )]
    Url { url: String },
    #[error("could not use the bucket `{url}`")]
    Settings {
        url: String,
        source: Box<object_store::Error>,
    },
    #[error("cannot create the directory `{url}`")]
    Directory { url: String, source: std::io::Error },
}

impl Bucket {
    /// `settings` are the usual environment variables of each service.
    pub(crate) fn open<'a>(
        url: &str,
        settings: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, OpenBucketError> {
        let bad = || OpenBucketError::Url {
            url: url.to_owned(),
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(bad)?;
        let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if name.is_empty() != (scheme == "file") {
            return Err(bad());
        }
        let settings: Vec<(String, &str)> = settings
            .map(|(key, value)| (key.to_ascii_lowercase(), value))
            .collect();
        let failed = |source| OpenBucketError::Settings {
            url: url.to_owned(),
            source: Box::new(source),
        };
        let prefix = prefix.trim_end_matches('/');
        let mut root = None;
        let objects: Arc<dyn ObjectStore> = match scheme {
            "s3" => {
                let builder = AmazonS3Builder::new()
                    .with_bucket_name(name)
                    .with_retry(retries());
                let known = known(&settings, "aws_");
                let builder = known.fold(builder, |builder, (key, value)| {
                    builder.with_config(key, value)
                });
                within(builder.build().map_err(failed)?, prefix)
            }
            "az" => {
                let builder = MicrosoftAzureBuilder::new()
                    .with_container_name(name)
                    .with_retry(retries());
                let known = known(&settings, "azure_");
                let builder = known.fold(builder, |builder, (key, value)| {
                    builder.with_config(key, value)
                });
                within(builder.build().map_err(failed)?, prefix)
            }
            "gs" => {
                let builder = GoogleCloudStorageBuilder::new()
                    .with_bucket_name(name)
                    .with_retry(retries());
                let known = known(&settings, "google_");
                let builder = known.fold(builder, |builder, (key, value)| {
                    builder.with_config(key, value)
                });
                within(builder.build().map_err(failed)?, prefix)
            }
            "file" => {
                let dir = PathBuf::from(format!("/{prefix}"));
                crate::blob::files::make_dir(&dir).map_err(|source| {
                    OpenBucketError::Directory {
                        url: url.to_owned(),
                        source,
                    }
                })?;
                let directory = LocalFileSystem::new_with_prefix(&dir).map_err(failed)?;
                root = Some(Arc::from(dir));
                Arc::new(directory.with_fsync(true))
            }
            _ => return Err(bad()),
        };
        Ok(Self {
            url: Arc::from(url.trim_end_matches('/')),
            objects,
            runtime: Handle::current(),
            markers: Arc::default(),
            root,
        })
    }

    /// Whether it is a local directory, which can vanish and be created again unnoticed.
    pub(crate) fn is_directory(&self) -> bool {
        self.root.is_some()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        format!("{}/{name}", self.url).into()
    }

    pub(crate) fn write_new(&self, name: &str, bytes: Vec<u8>) -> Result<bool, StoreError> {
        match self.create(name, bytes) {
            Err(StoreError::Object { source, .. })
                if matches!(source.0, object_store::Error::AlreadyExists { .. }) =>
            {
                Ok(false)
            }
            other => other.map(|()| true),
        }
    }

    /// A small object, if it exists.
    pub(crate) async fn find(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let read = async {
            let found = self.objects.get(&object(name)).await?;
            found.bytes().await
        };
        match read.await {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(err) => Err(self.failed("read", name)(err)),
        }
    }

    pub(crate) async fn has(&self, name: &str) -> Result<bool, StoreError> {
        match self.objects.head(&object(name)).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(err) => Err(self.failed("look at", name)(err)),
        }
    }

    pub(crate) fn read(&self, name: &str) -> Result<Vec<u8>, StoreError> {
        let read = async {
            let found = self.objects.get(&object(name)).await?;
            found.bytes().await
        };
        let bytes = self.runtime.block_on(read);
        Ok(bytes.map_err(self.failed("read", name))?.into())
    }

    pub(crate) fn list(&self, dir: &str) -> Result<Vec<String>, StoreError> {
        let dir = object(dir);
        let listing = self.objects.list_with_delimiter(Some(&dir));
        let found = self.runtime.block_on(listing);
        let found = found.map_err(self.failed("list", dir.as_ref()))?;
        let objects = found.objects.into_iter().map(|meta| meta.location);
        let mut names: Vec<String> = objects
            .chain(found.common_prefixes)
            .filter_map(|path| path.filename().map(str::to_owned))
            .collect();
        names.sort();
        Ok(names)
    }

    /// The names in a directory after a given name, in order.
    pub(crate) async fn list_after(
        &self,
        dir: &str,
        name: &str,
    ) -> Result<Vec<String>, StoreError> {
        let (dir, offset) = (object(dir), object(&format!("{dir}/{name}")));
        let listing = self.objects.list_with_offset(Some(&dir), &offset);
        let found: Vec<ObjectMeta> = listing
            .try_collect()
            .await
            .map_err(self.failed("list", dir.as_ref()))?;
        let locations = found.iter().map(|meta| &meta.location);
        let mut names: Vec<String> = locations
            .filter_map(|location| location.filename().map(str::to_owned))
            .collect();
        names.sort();
        Ok(names)
    }

    /// Up to `length` bytes of an object from an offset, and the object's size. `None` if it does not exist.
    pub(crate) async fn find_part(
        &self,
        name: &str,
        offset: u64,
        length: u64,
    ) -> Result<Option<(Vec<u8>, u64)>, StoreError> {
        let options = GetOptions {
            range: Some((offset..offset.saturating_add(length)).into()),
            ..GetOptions::default()
        };
        let read = async {
            let found = self.objects.get_opts(&object(name), options).await?;
            let size = found.meta.size;
            Ok((found.bytes().await?.into(), size))
        };
        match read.await {
            Ok(part) => Ok(Some(part)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(err) => Err(self.failed("read", name)(err)),
        }
    }

    pub(crate) fn remove(&self, name: &str) -> Result<(), StoreError> {
        let path = object(name);
        match self.runtime.block_on(self.objects.delete(&path)) {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(err) => Err(self.failed("remove", name)(err)),
        }
    }

    pub(crate) fn read_frame(&self, place: &FrameLocation) -> Result<Vec<u8>, StoreError> {
        let (path, range) = (
            object(&place.object),
            place.offset..place.offset.saturating_add(place.length),
        );
        let bytes = self.runtime.block_on(self.objects.get_range(&path, range));
        Ok(bytes.map_err(self.failed("read", &place.object))?.into())
    }

    /// One object for all frames, preceded by the markers of earlier ones.
    pub(crate) fn put_frames(
        &self,
        object: &str,
        frames: &[Arc<Frame>],
    ) -> Result<Staged, StoreError> {
        let markers = self.take_markers();
        let mut bytes = markers.clone();
        let place = |frame: &Arc<Frame>| {
            let place = FrameLocation {
                object: object.to_owned(),
                offset: bytes.len() as u64,
                length: frame.bytes.len() as u64,
            };
            bytes.extend_from_slice(&frame.bytes);
            place
        };
        let places = frames.iter().map(place).collect();
        if let Err(err) = self.create(object, bytes) {
            // Later objects will carry them.
            self.waiting().extend(markers);
            return Err(err);
        }
        Ok(Staged { places })
    }

    pub(crate) fn mark_later(&self, marker: &Frame) {
        let mut waiting = self.waiting();
        if waiting.len() < MOST_MARKERS * marker.bytes.len() {
            waiting.extend_from_slice(&marker.bytes);
        }
    }

    pub(crate) fn has_markers(&self) -> bool {
        !self.waiting().is_empty()
    }

    /// Writes the markers that no object carried yet as an object of their own.
    pub(crate) fn put_markers(&self, object: &str) -> Result<(), StoreError> {
        let markers = self.take_markers();
        let put = self.create(object, markers.clone());
        if put.is_err() {
            self.waiting().extend(markers);
        }
        put
    }

    fn take_markers(&self) -> Vec<u8> {
        std::mem::take(&mut *self.waiting())
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<u8>> {
        self.markers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces an existing object.
    pub(crate) fn write(&self, name: &str, bytes: Vec<u8>) -> Result<(), StoreError> {
        self.put(name, bytes, PutMode::Overwrite)
    }

    fn create(&self, name: &str, bytes: Vec<u8>) -> Result<(), StoreError> {
        self.put(name, bytes, PutMode::Create)
    }

    fn put(&self, name: &str, bytes: Vec<u8>, mode: PutMode) -> Result<(), StoreError> {
        if let Some(root) = self.root.as_deref().filter(|root| !root.is_dir()) {
            // The library would create it again, empty.
            let source = std::io::ErrorKind::NotFound.into();
            return Err(crate::blob::files::file_error(
                "find",
                root.to_owned(),
                source,
            ));
        }
        let options = PutOptions::from(mode);
        let (path, payload) = (object(name), PutPayload::from(bytes));
        let put = self.objects.put_opts(&path, payload, options);
        let done = self.runtime.block_on(put);
        done.map(drop).map_err(self.failed("write", name))
    }

    fn failed(
        &self,
        action: &'static str,
        name: &str,
    ) -> impl Fn(object_store::Error) -> StoreError {
        let path = self.path(name);
        move |source| StoreError::Object {
            action,
            path: path.clone(),
            source: Box::new(BucketError(source)),
        }
    }
}

/// Retries short failures, and gives up while the writer still waits.
fn retries() -> RetryConfig {
    RetryConfig {
        max_retries: 4,
        retry_timeout: Duration::from_secs(20),
        ..RetryConfig::default()
    }
}

/// The settings that belong to this service.
fn known<'a, K: std::str::FromStr>(
    settings: &'a [(String, &'a str)],
    service: &'static str,
) -> impl Iterator<Item = (K, &'a str)> {
    settings
        .iter()
        .filter(move |(key, _)| key.starts_with(service))
        .filter_map(|(key, value)| Some((key.parse().ok()?, *value)))
}

fn within(objects: impl ObjectStore, prefix: &str) -> Arc<dyn ObjectStore> {
    if prefix.is_empty() {
        Arc::new(objects)
    } else {
        Arc::new(PrefixStore::new(objects, prefix))
    }
}

/// Names contain only characters that need no escape, except `%` and `~` from names of states; `parse` keeps those as
/// they are.
fn object(name: &str) -> ObjectPath {
    ObjectPath::parse(name).unwrap_or_else(|_| ObjectPath::from(name))
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bucket({})", self.url)
    }
}

#[cfg(test)]
mod tests;
