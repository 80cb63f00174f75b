//! Releases from a server on loopback: accepted when every check passes, else refused.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use model::base::error::Explain;
use model::project::engine::EngineRequirement;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!("../../../fixtures/release/", $name)).to_vec()
    };
}

type Files = BTreeMap<String, Vec<u8>>;

/// All files of a valid release, as a mirror has them.
fn release() -> Files {
    let mut files = BTreeMap::from([
        ("/tofu/key.asc".to_owned(), fixture!("release.asc")),
        (
            "/tofu/index.json".to_owned(),
            br#"{"versions":[{"id":"1.99.0"},{"id":"1.98.0"},{"id":"2.0.0-rc1"}]}"#.to_vec(),
        ),
        (
            "/tofu/v1.99.0/tofu_1.99.0_SHA256SUMS".to_owned(),
            fixture!("SHA256SUMS"),
        ),
        (
            "/tofu/v1.99.0/tofu_1.99.0_SHA256SUMS.gpgsig".to_owned(),
            fixture!("SHA256SUMS.release.sig"),
        ),
    ]);
    for platform in ["linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64"] {
        files.insert(
            format!("/tofu/v1.99.0/tofu_1.99.0_{platform}.zip"),
            fixture!("tofu.zip"),
        );
    }
    files
}

fn with(files: &[(&str, Vec<u8>)]) -> Files {
    let mut all = release();
    for (name, bytes) in files {
        let of_all_platforms: Vec<String> = all
            .keys()
            .filter(|path| path.ends_with(name))
            .cloned()
            .collect();
        assert!(!of_all_platforms.is_empty(), "{name}");
        for path in of_all_platforms {
            all.insert(path, bytes.clone());
        }
    }
    all
}

/// Serves the files until the test ends; returns the address.
async fn serve(files: Files) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let files = Arc::new(files);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let files = Arc::clone(&files);
            tokio::spawn(async move {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                let request = String::from_utf8_lossy(&request).into_owned();
                let path = request.split(' ').nth(1).unwrap_or_default();
                let (status, body) = match files.get(path) {
                    Some(body) => ("200 OK", body.as_slice()),
                    None => ("404 Not Found", &b""[..]),
                };
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all(&[head.as_bytes(), body].concat()).await;
            });
        }
    });
    format!("http://{address}")
}

/// Installs from a mirror into an empty cache. Returns the outcome with variable parts replaced.
async fn install_from(base: &str, constraint: &str, cache: &Path) -> String {
    let requirement = EngineRequirement {
        flavor: Flavor::Tofu,
        constraint: (!constraint.is_empty()).then(|| constraint.parse().unwrap()),
    };
    let source = ReleaseSource {
        fingerprint: String::from_utf8(fixture!("release.fingerprint"))
            .unwrap()
            .trim()
            .to_owned(),
        ..ReleaseSource::mirror(Flavor::Tofu, base)
    };
    // `PATH` has `sh` for the engine, but no engine of this machine.
    let tools = cache.join("bin");
    let _ = fs::create_dir_all(&tools);
    let options = InstallOptions {
        search: EngineSearch::new(Some(tools.as_os_str()), cache),
        source,
    };
    let mut steps = Vec::new();
    let seen = install(&requirement, &options, &mut |step| steps.push(step)).await;
    let said = match seen {
        Ok(engine) => {
            assert!(engine.program.is_file());
            let finished = steps.contains(&InstallProgress::Unpacking);
            format!("{engine} {:?}, unpacked now: {finished}", engine.origin)
        }
        Err(err) => {
            let mut lines = vec![err.to_string()];
            lines.extend(std::error::Error::source(&err).map(ToString::to_string));
            lines.extend(err.hint().map(|hint| format!("hint: {hint}")));
            let home = fs::read_dir(cache.join("engines/tofu")).unwrap();
            let left: Vec<_> = home.map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(left, [".lock"], "nothing is left behind");
            lines.join("\n")
        }
    };
    said.replace(base, "MIRROR")
        .replace("linux_amd64", "PLATFORM")
        .replace("linux_arm64", "PLATFORM")
}

async fn attempt(files: Files, constraint: &str) -> String {
    let cache = tempfile::tempdir().unwrap();
    install_from(&serve(files).await, constraint, cache.path()).await
}

#[tokio::test]
async fn a_good_release_is_installed_once() {
    let cache = tempfile::tempdir().unwrap();
    let base = serve(release()).await;
    let first = install_from(&base, "~> 1.90", cache.path()).await;
    assert_eq!(first, "tofu 1.99.0 Release, unpacked now: true");
    let second = install_from("http://127.0.0.1:1", "~> 1.90", cache.path()).await;
    assert_eq!(second, "tofu 1.99.0 Cache, unpacked now: false");
}

#[tokio::test]
async fn two_at_once_end_with_one_engine() {
    let cache = tempfile::tempdir().unwrap();
    let base = serve(release()).await;
    let (one, two) = tokio::join!(
        install_from(&base, "1.99.0", cache.path()),
        install_from(&base, "= 1.99.0", cache.path()),
    );
    let mut both = [one, two];
    both.sort();
    assert_eq!(
        both,
        [
            "tofu 1.99.0 Cache, unpacked now: false",
            "tofu 1.99.0 Release, unpacked now: true"
        ]
    );
}

#[tokio::test]
async fn an_archive_that_was_changed_is_refused() {
    let mut changed = fixture!("tofu.zip");
    changed[60] ^= 1;
    insta::assert_snapshot!(attempt(with(&[(".zip", changed)]), "1.99.0").await, @r"
    could not install the official release
    `tofu_1.99.0_PLATFORM.zip` has the checksum 7cf36e9b3855dcdf78ab46f3a012ca993106c2b874ea7df57e1cc9ad7f5a4e1d, but the signed one is 5101b64ec6cbddb1840211e0850ca8888b5f0805efc03530097f5b3b09273a70
    ");
}

#[tokio::test]
async fn an_archive_that_was_cut_is_refused() {
    let mut cut = fixture!("tofu.zip");
    cut.truncate(100);
    insta::assert_snapshot!(attempt(with(&[(".zip", cut)]), "1.99.0").await, @r"
    could not install the official release
    `tofu_1.99.0_PLATFORM.zip` has the checksum c55a478b77d3dd28d6a406bfd3d4b94c02923af88f63655445fe5d38731e184a, but the signed one is 5101b64ec6cbddb1840211e0850ca8888b5f0805efc03530097f5b3b09273a70
    ");
}

#[tokio::test]
async fn checksums_that_were_changed_are_refused() {
    let changed = String::from_utf8(fixture!("SHA256SUMS"))
        .unwrap()
        .replace('5', "6")
        .into_bytes();
    insta::assert_snapshot!(attempt(with(&[("SHA256SUMS", changed)]), "1.99.0").await, @r"
    could not install the official release
    cannot trust the checksums of tofu 1.99.0: the file is not signed by the key 252A369A1313DBF0269FE7ED25B352482F957F6E
    ");
}

#[tokio::test]
async fn checksums_signed_by_another_are_refused() {
    let files = with(&[("gpgsig", fixture!("SHA256SUMS.other.sig"))]);
    insta::assert_snapshot!(attempt(files, "1.99.0").await, @r"
    could not install the official release
    cannot trust the checksums of tofu 1.99.0: the file is not signed by the key 252A369A1313DBF0269FE7ED25B352482F957F6E
    ");
}

#[tokio::test]
async fn another_key_is_refused_even_if_all_fits_together() {
    let files = with(&[
        ("gpgsig", fixture!("SHA256SUMS.other.sig")),
        ("key.asc", fixture!("other.asc")),
    ]);
    insta::assert_snapshot!(attempt(files, "1.99.0").await, @r"
    could not install the official release
    cannot trust the checksums of tofu 1.99.0: the key has the fingerprint F695314A82577190C3C305D4697E4A96A5F4C25E, not 252A369A1313DBF0269FE7ED25B352482F957F6E
    ");
}

#[tokio::test]
async fn what_cannot_be_had_is_said() {
    let mut sums_only = release();
    sums_only.retain(|path, _| !path.contains(".zip"));
    let nothing = Files::new();
    let said = [
        attempt(release(), "~> 3.0").await,
        attempt(nothing.clone(), "~> 3.0").await,
        attempt(nothing, "").await,
        attempt(sums_only, "1.99.0").await,
    ];
    insta::assert_snapshot!(said.join("\n\n"), @"
    no released version meets `tofu ~> 3.0`
    hint: change the `version` of the `engine` block

    could not look up which versions meet `tofu ~> 3.0`, and the default 1.11.14 does not
    `MIRROR/tofu/index.json` answered 404
    hint: set an exact `version`, or a mirror that can be reached: `TERRANE_ENGINE_MIRROR`

    could not install the official release
    `MIRROR/tofu/v1.11.14/tofu_1.11.14_SHA256SUMS` answered 404
    hint: put a suitable version on `PATH`, or set a mirror that can be reached: `TERRANE_ENGINE_MIRROR`

    could not install the official release
    `MIRROR/tofu/v1.99.0/tofu_1.99.0_PLATFORM.zip` answered 404
    hint: put a suitable version on `PATH`, or set a mirror that can be reached: `TERRANE_ENGINE_MIRROR`
    ");
}
