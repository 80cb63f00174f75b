//! Real services and tools that tests start: databases, buckets, clusters, DNS, Git and secrets.

pub(crate) mod azurite;
pub(crate) mod dex;
pub(crate) mod dns;
pub(crate) mod gcs;
pub(crate) mod git_http;
pub(crate) mod kubernetes;
pub(crate) mod makejinja;
pub(crate) mod minio;
pub(crate) mod moto;
pub(crate) mod postgres;
pub(crate) mod proxmox;
pub(crate) mod service;
pub(crate) mod sops;
pub(crate) mod sshd;
pub(crate) mod vault;
