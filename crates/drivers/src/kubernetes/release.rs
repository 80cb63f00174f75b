//! Downloads manifests as their vendors publish them. The caller checks the digest.

use std::time::Duration;

use reqwest::redirect;

const PATIENCE: Duration = Duration::from_mins(2);
const MAX_SIZE: usize = 32 << 20;

#[derive(Debug, thiserror::Error)]
pub enum FetchManifestError {
    #[error("could not reach `{place}`")]
    Send {
        place: String,
        source: reqwest::Error,
    },
    #[error("`{place}` answered {status}")]
    Status { place: String, status: u16 },
    #[error("`{place}` answered more than {MAX_SIZE} bytes")]
    TooLong { place: String },
    #[error("the response of `{place}` is not text")]
    NoText { place: String },
}

pub async fn fetch_manifest(place: &str) -> Result<String, FetchManifestError> {
    let failed = |source: reqwest::Error| FetchManifestError::Send {
        place: place.to_owned(),
        source: source.without_url(),
    };
    let client = reqwest::Client::builder()
        .https_only(place.starts_with("https:"))
        .redirect(redirect::Policy::limited(5))
        .connect_timeout(PATIENCE / 4)
        .timeout(PATIENCE)
        .user_agent(concat!("terrane/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(failed)?;
    let mut answer = client.get(place).send().await.map_err(failed)?;
    if !answer.status().is_success() {
        return Err(FetchManifestError::Status {
            place: place.to_owned(),
            status: answer.status().as_u16(),
        });
    }
    let mut body = Vec::new();
    while let Some(part) = answer.chunk().await.map_err(failed)? {
        if body.len() + part.len() > MAX_SIZE {
            return Err(FetchManifestError::TooLong {
                place: place.to_owned(),
            });
        }
        body.extend_from_slice(&part);
    }
    String::from_utf8(body).map_err(|_| FetchManifestError::NoText {
        place: place.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    /// Answers one request with this.
    fn serve(answer: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            stream.write_all(answer.as_bytes()).unwrap();
        });
        format!("http://{address}/install.yaml")
    }

    #[tokio::test]
    async fn a_manifest_is_fetched_or_the_answer_named() {
        let place =
            serve("HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nkind: A");
        assert_eq!(fetch_manifest(&place).await.unwrap(), "kind: A");
        let place = serve("HTTP/1.1 404 Gone\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        let err = fetch_manifest(&place).await.unwrap_err();
        assert_eq!(err.to_string(), format!("`{place}` answered 404"));
    }
}
